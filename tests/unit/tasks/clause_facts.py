"""Claims that join a subject of their source with a number of another clause, row or unit, and right ones beside them."""

from tests.unit.tasks.differences import changes

FERRY = (
    "A crossing costs EUR 14 for adults and EUR 6 for children. Bicycles travel for EUR 5; motorcycles pay EUR 22. The night"
    " ferry takes nine hours, the day ferry takes six hours. The cabin deposit is EUR 40 where it has a window, and EUR 25"
    " where it has none. Dogs up to 10 kg stay in the cabin, dogs over 10 kg stay on the car deck. Fuel use fell from 95 tonnes"
    " to 70 tonnes."
)
LIBRARY = (
    "Adults borrow up to 20 books; pupils borrow up to 12 books. The fine for books is 30 cents a day; for films it rises to"
    " 90 cents. The hall was opened on 4 May 1998 and renovated on 17 June 2015. The loan period for books is four weeks. The"
    " loan period for films is one week."
)
WERKSTATT = (
    "Der Reifenwechsel kostet 48 Euro, die Einlagerung kostet 62 Euro. Die Garantie beträgt zwei Jahre auf Teile und sechs"
    " Monate auf Lackarbeiten. Das Werkstor öffnet um sieben Uhr; die Annahme öffnet um acht Uhr."
)
CAMPING = (
    "La nuit coûte 18 euros pour une tente et 31 euros pour une caravane. Le préavis est de deux semaines en juin, de six"
    " semaines en août."
)
TALLER = "El cambio de aceite cuesta 55 euros; la revisión completa cuesta 140 euros. La garantía es de dos años para piezas y de un año para pintura."
CORSI = "Il corso base dura otto settimane; il corso avanzato dura dodici settimane. La quota è di 90 euro per i soci e di 130 euro per gli ospiti."

KAYAKS = """Our boats, weights in kg, prices in EUR.

| Boat | Length (m) | Weight (kg) | Hire per day | Places |
|---|---|---|---|---|
| Otter | 3.2 | 19 | 28 | 1 |
| Otter Duo | 4.6 | 31 | 44 | 2 |
| Heron | 5.1 | 27 | 39 | 1 |

Life jackets cost EUR 4 for each boat."""
BRANCHES = """| Branch | Sales 2022 (EUR m) | Sales 2023 (EUR m) | Staff |
| --- | --- | --- | --- |
| Harbour | 12.4 | 13.9 | 210 |
| Old Town | 8.7 | 7.9 | 145 |"""
ZIMMER = """| Zimmer | Preis (Euro/Nacht) | Fläche (m²) | Storno |
|---|---|---|---|
| Garten | 84,50 | 19 | zwei Tage |
| Turm | 112,00 | 27 | eine Woche |"""

CLAUSES = [
    *changes(
        "en",
        FERRY,
        ("Children pay EUR 14 for a crossing.", "number"),
        ("Adults pay EUR 6 for a crossing.", "number"),
        ("Motorcycles pay EUR 5.", "number"),
        ("The day ferry takes nine hours.", "number"),
        ("The deposit for a cabin with a window is EUR 25.", "number"),
        ("Fuel use fell to 95 tonnes.", "number"),
        ("A crossing costs adults EUR 14.", ""),
        ("For children a crossing costs EUR 6.", ""),
        ("Motorcycles are carried for EUR 22.", ""),
        ("The night ferry needs nine hours.", ""),
        ("Fuel use fell to 70 tonnes.", ""),
    ),
    *changes(
        "en",
        LIBRARY,
        ("Pupils borrow up to 20 books.", "number"),
        ("Films cost a fine of 30 cents a day.", "number"),
        ("The hall was renovated on 4 May.", "date"),
        ("The loan period for films is four weeks.", "number"),
        ("Pupils may borrow up to 12 books.", ""),
        ("The fine for films is 90 cents.", ""),
        ("The hall was renovated on 17 June 2015.", ""),
        ("Books are lent for a loan period of four weeks.", ""),
    ),
    *changes(
        "de",
        WERKSTATT,
        ("Die Einlagerung kostet 48 Euro.", "number"),
        ("Auf Lackarbeiten beträgt die Garantie zwei Jahre.", "number"),
        ("Die Einlagerung kostet 62 Euro.", ""),
        ("Auf Teile gibt es zwei Jahre Garantie.", ""),
    ),
    *changes(
        "fr",
        CAMPING,
        ("La nuit coûte 18 euros pour une caravane.", "number"),
        ("La nuit coûte 31 euros pour une caravane.", ""),
    ),
    *changes(
        "es",
        TALLER,
        ("La revisión completa cuesta 55 euros.", "number"),
        ("La revisión completa cuesta 140 euros.", ""),
    ),
    *changes(
        "it",
        CORSI,
        ("Il corso avanzato dura otto settimane.", "number"),
        ("Gli ospiti pagano una quota di 90 euro.", "number"),
        ("Il corso avanzato dura dodici settimane.", ""),
        ("La quota per gli ospiti è di 130 euro.", ""),
    ),
]

ROWS = [
    *changes(
        "en",
        KAYAKS,
        ("The Otter weighs 31 kg.", "number"),
        ("The weight of the Heron is 19 kg.", "number"),
        ("Hire of the Otter Duo is 39 per day.", "number"),
        ("The Heron has a weight of 39 kg.", "number"),
        ("The Otter weighs 19 kg.", ""),
        ("The Otter Duo has a weight of 31 kg.", ""),
        ("The hire of the Heron is 39 per day.", ""),
        ("Life jackets for the Otter cost EUR 4.", ""),
    ),
    *changes(
        "en",
        BRANCHES,
        ("Harbour had sales of EUR 7.9 million in 2023.", "number"),
        ("Old Town had 210 staff.", "number"),
        ("Old Town had sales of EUR 7.9 million in 2023.", ""),
        ("Harbour has a staff of 210.", ""),
    ),
    *changes(
        "de",
        ZIMMER,
        ("Das Zimmer Garten kostet 112,00 Euro je Nacht.", "number"),
        ("Für das Zimmer Turm ist ein Storno bis zwei Tage vorher möglich.", "number"),
        ("Das Zimmer Turm kostet 112 Euro je Nacht.", ""),
        ("Für das Zimmer Garten ist das Storno bis zwei Tage vorher möglich.", ""),
    ),
]
