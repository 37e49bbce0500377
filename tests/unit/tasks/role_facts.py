"""Claims in which two things have each other's role, and right ones that say the same in another order or voice."""

from tests.unit.tasks.differences import changes

RULES = (
    "Children under 12 ride free with an adult. The tenant pays the landlord a deposit. Parents must inform the class teacher"
    " within two days. Plan A is cheaper than Plan B. The ferry sails from Velmo to Harsund. Keys are handed to the tenant by the"
    " landlord. The clinic sends the report to the insurer. Maria Lund succeeded Peter Holt as director."
)

ROLES = [
    *changes(
        "en",
        RULES,
        ("Adults ride free with a child under 12.", "role"),
        ("The landlord pays the tenant a deposit.", "role"),
        ("The teacher must inform the parents within two days.", "role"),
        ("Plan B is cheaper than Plan A.", "role"),
        ("The ferry sails from Harsund to Velmo.", "role"),
        ("The keys are handed to the landlord by the tenant.", "role"),
        ("The insurer sends the report to the clinic.", "role"),
        ("Peter Holt succeeded Maria Lund as director.", "role"),
        ("With an adult, children under 12 ride free.", ""),
        ("A deposit is paid by the tenant to the landlord.", ""),
        ("The landlord gets a deposit, which the tenant pays.", ""),
        ("Within two days parents have to inform the teacher.", ""),
        ("The class teacher must be informed by the parents within two days.", ""),
        ("The ferry sails to Harsund from Velmo.", ""),
        ("By the landlord, keys are handed to the tenant.", ""),
        ("The report is sent to the insurer by the clinic.", ""),
    ),
    *changes(
        "en",
        "The buyer may call the seller, and the seller may call the buyer. Oil and vinegar are mixed with salt.",
        ("The seller may call the buyer.", ""),
        ("The buyer may call the seller.", ""),
        ("Vinegar and oil are mixed with salt.", ""),
    ),
    # Cases, not the order, tell the roles of a German sentence.
    *changes(
        "de",
        "Der Mieter informiert den Vermieter über den Schaden.",
        ("Den Vermieter informiert der Mieter über den Schaden.", ""),
    ),
]
