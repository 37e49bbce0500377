"""Claims that make a condition of an exception, or the reverse, and right ones that say the rule in the other form."""

from tests.unit.tasks.differences import changes

LOANS = (
    "Books may be renewed twice, unless another reader has reserved them. Data are not passed on to third parties unless a court"
    " orders it. The museum is closed on Mondays, except on Mondays that are public holidays. The fee is paid back if the course is"
    " cancelled. The lease may not be assigned unless the landlord agrees."
)
AUSLEIHE = "Das Buch kann verlängert werden, außer es ist vorgemerkt. Hunde sind erlaubt, wenn der Vermieter zustimmt."
PRET = "Le livre est prolongé, sauf si un autre lecteur le réserve."
RESERVA = "El curso empieza en mayo, salvo si faltan alumnos."
CORSO = "Il corso inizia a maggio, salvo se mancano gli iscritti."

CONDITIONS = [
    *changes(
        "en",
        LOANS,
        ("Books may be renewed twice even if another reader has reserved them.", "direction"),
        ("Data are not passed on to third parties even if a court orders it.", "direction"),
        ("The museum is closed on Mondays even if they are public holidays.", "direction"),
        ("The fee is paid back unless the course is cancelled.", "direction"),
        ("The lease may not be assigned even if the landlord agrees.", "direction"),
        ("Books cannot be renewed if another reader has reserved them.", ""),
        ("Books may be renewed twice if no other reader has reserved them.", ""),
        ("Data are passed on to third parties if a court orders it.", ""),
        ("The museum is closed on Mondays, unless they are public holidays.", ""),
        ("If the course is cancelled, the fee is paid back.", ""),
        ("The lease may be assigned if the landlord agrees.", ""),
        ("The lease may only be assigned if the landlord agrees.", ""),
    ),
    *changes(
        "de",
        AUSLEIHE,
        ("Das Buch kann verlängert werden, wenn es vorgemerkt ist.", "direction"),
        ("Hunde sind erlaubt, außer der Vermieter zustimmt.", "direction"),
        ("Das Buch kann nicht verlängert werden, wenn es vorgemerkt ist.", ""),
        ("Hunde sind nur erlaubt, wenn der Vermieter zustimmt.", ""),
    ),
    *changes("fr", PRET, ("Le livre est prolongé même si un autre lecteur le réserve.", "direction")),
    *changes("es", RESERVA, ("El curso empieza en mayo aunque faltan alumnos.", "direction")),
    *changes("it", CORSO, ("Il corso inizia a maggio quando mancano gli iscritti.", "direction")),
]
