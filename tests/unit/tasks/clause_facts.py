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
PROGRAMMES = """Programme | Temperature | Maximum load | Duration
Cotton | 60 °C | 7 kg | 2 h 40 min
Wool | 30 °C | 1.5 kg | 45 min
Quick | 30 °C | 2 kg | 20 min

The drum is cleaned once a month."""
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
        PROGRAMMES,
        ("In the Wool programme the maximum load is 2 kg.", "number"),
        ("The Quick programme takes 45 minutes.", "number"),
        ("In the Wool programme the maximum load is 1.5 kg.", ""),
        ("The Quick programme takes 20 minutes.", ""),
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

GYM = (
    "A membership costs EUR 39 a month. The locker is EUR 6 per quarter, a towel EUR 2 per visit. Damage to machines is paid up"
    " to EUR 400 in total. Trainers work 18 hours a week. The monthly fee of the sauna is EUR 11. The kettlebell weighs 16 kg, the"
    " running track is 5 km long."
)
VEREIN = "Der Beitrag beträgt 45 Euro im Jahr. Der Hallenwart arbeitet 12 Stunden pro Woche. Die Platzmiete kostet 8 Euro je Stunde."
CLUB = "La cotisation est de 60 euros par an. Le casier coûte 3 euros par mois."
GIMNASIO = "La cuota es de 30 euros al mes. La taquilla cuesta 12 euros al año."
PALESTRA = "La quota è di 55 euro al mese. L'armadietto costa 20 euro all'anno."
TARIFE = """| Tarif | Preis (Euro/Monat) | Daten (GB) |
|---|---|---|
| Mini | 7,90 | 5 |
| Maxi | 19,90 | 40 |"""

RATES = [
    *changes(
        "en",
        GYM,
        ("A membership costs EUR 39 a year.", "number"),
        ("The locker is EUR 6 per month.", "number"),
        ("Damage to machines is paid up to EUR 400 per machine.", "number"),
        ("Trainers work 18 hours a day.", "number"),
        ("The sauna costs a yearly fee of EUR 11.", "number"),
        ("The kettlebell weighs 16 pounds.", "number"),
        ("The running track is 5 miles long.", "number"),
        ("The monthly cost of a membership is EUR 39.", ""),
        ("A membership costs EUR 39 each month.", ""),
        ("The locker costs EUR 6 every quarter.", ""),
        ("Trainers work 18 hours per week.", ""),
        ("The sauna costs EUR 11 a month.", ""),
        ("The kettlebell weighs 16 kilograms.", ""),
    ),
    *changes(
        "de",
        VEREIN,
        ("Der Beitrag beträgt 45 Euro im Monat.", "number"),
        ("Der Hallenwart arbeitet 12 Stunden im Monat.", "number"),
        ("Der Beitrag beträgt jährlich 45 Euro.", ""),
        ("Die Platzmiete kostet 8 Euro pro Stunde.", ""),
    ),
    *changes(
        "fr",
        CLUB,
        ("La cotisation est de 60 euros par mois.", "number"),
        ("La cotisation annuelle est de 60 euros.", ""),
    ),
    *changes(
        "es",
        GIMNASIO,
        ("La cuota es de 30 euros al año.", "number"),
        ("La cuota mensual es de 30 euros.", ""),
    ),
    *changes(
        "it",
        PALESTRA,
        ("La quota è di 55 euro all'anno.", "number"),
        ("La quota mensile è di 55 euro.", ""),
    ),
    *changes(
        "de",
        TARIFE,
        ("Der Tarif Maxi hat einen Preis von 19,90 Euro im Jahr.", "number"),
        ("Der Tarif Maxi hat einen Preis von 19,90 Euro im Monat.", ""),
    ),
]

HOSTEL = (
    "A group has no fewer than eight guests. A stay may not exceed 21 nights. Passports must not be older than ten years. Luggage is"
    " kept for up to five days. Bookings are changed no later than three weeks before arrival. Meals are served not earlier than two"
    " hours after arrival."
)
HERBERGE = (
    "Eine Gruppe hat wenigstens acht Gäste. Der Pass darf nicht älter als zehn Jahre sein. Der Aufenthalt dauert höchstens 21"
    " Nächte. Änderungen sind spätestens drei Wochen vor der Anreise zu melden."
)
AUBERGE = "Un groupe compte au moins huit personnes. Le séjour ne dépasse pas 21 nuits."
ALBERGUE = "Un grupo tiene al menos ocho personas. La estancia no puede superar las 21 noches."
OSTELLO = "Un gruppo ha almeno otto persone. Il soggiorno non supera le 21 notti."

LIMITS = [
    *changes(
        "en",
        HOSTEL,
        ("A group has at most eight guests.", "direction"),
        ("A stay must be at least 21 nights.", "direction"),
        ("Passports must be older than ten years.", "direction"),
        ("Luggage is kept for at least five days.", "direction"),
        ("Meals are served at the latest two hours after arrival.", "direction"),
        ("A group has at least eight guests.", ""),
        ("A group has eight guests or more.", ""),
        ("A stay is limited to 21 nights.", ""),
        ("Passports must be at most ten years old.", ""),
        ("Luggage is kept for a maximum of five days.", ""),
        ("Bookings are changed at least three weeks before arrival.", ""),
        ("Meals are served at the earliest two hours after arrival.", ""),
    ),
    *changes(
        "de",
        HERBERGE,
        ("Eine Gruppe hat höchstens acht Gäste.", "direction"),
        ("Der Pass muss älter als zehn Jahre sein.", "direction"),
        ("Der Pass darf höchstens zehn Jahre alt sein.", ""),
        ("Änderungen sind mindestens drei Wochen vor der Anreise zu melden.", ""),
    ),
    *changes(
        "fr",
        AUBERGE,
        ("Un groupe compte au plus huit personnes.", "direction"),
        ("Le séjour est de 21 nuits au maximum.", ""),
    ),
    *changes(
        "es",
        ALBERGUE,
        ("La estancia es como mínimo de 21 noches.", "direction"),
        ("La estancia es como máximo de 21 noches.", ""),
    ),
    *changes(
        "it",
        OSTELLO,
        ("Un gruppo ha al massimo otto persone.", "direction"),
        ("Il soggiorno dura al massimo 21 notti.", ""),
    ),
]

WORKSHOP = (
    "The hoist may not be used by apprentices to lift trailers. Never clean the belt grinder while the motor is running. Spare keys"
    " are handed out at the desk. If the alarm does not stop, call the caretaker. Solvents are not to be poured into the sink."
)
DEPOT = "Lehrlinge dürfen die Hebebühne nicht allein bedienen. Schlüssel werden am Tresen ausgegeben."
OFFICINA = "Durante le pulizie si può entrare senza casco. Le chiavi si ritirano in portineria."

DENIED = [
    *changes(
        "en",
        WORKSHOP,
        ("Apprentices may use the hoist to lift trailers.", "negation"),
        ("The belt grinder may be cleaned while the motor is running.", "negation"),
        ("Solvents are to be poured into the sink.", "negation"),
        ("Apprentices are forbidden to use the hoist to lift trailers.", ""),
        ("Spare keys are handed out at the desk.", ""),
        ("The caretaker is called about the alarm.", ""),
    ),
    *changes(
        "de",
        DEPOT,
        ("Lehrlinge dürfen die Hebebühne allein bedienen.", "negation"),
        ("Die Schlüssel werden am Tresen ausgegeben.", ""),
    ),
    *changes(
        "it",
        OFFICINA,
        ("Durante le pulizie si può entrare con casco.", "negation"),
        ("Le chiavi si ritirano in portineria.", ""),
    ),
]
