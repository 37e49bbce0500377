"""Labelled sentences by kind: those that the lexical check must judge right, and those that it is expected to miss."""
# ruff: noqa: RUF001 - text of other scripts is meant

from typing import NamedTuple

FERRY = (
    "The ferry between Aldmoor and Skerrin runs from 12 April to 30 September. A crossing takes 85 minutes and costs"
    " 18.50 euros for adults. The vessel Northwind carries 240 passengers and 36 cars. In winter the line is closed."
)
MUSEUM = (
    "The Harrow Clock Museum was founded in 1894 by the watchmaker Edith Callender. It owns 3,200 clocks, of which some"
    " 400 are on display. The oldest clock dates from the 16th century. Admission is free on the first Sunday of each month."
)
LOAN = (
    "Borrowers may repay the loan early. The bank charges a fee of 1% of the amount repaid. No fee is charged in the last"
    " year of the term. Applications must be signed by all account holders and received by 31 March 2023."
)
REPORT = (
    "Revenue rose to 8,537,673 euros in 2023, up 4.2% from the year before. The company employs twenty-one engineers in"
    " three offices. Chief executive Maren Voss expects growth of 5% in 2024. Two plants were closed in the spring."
)
MIETE = (
    "Die Miete darf innerhalb von drei Jahren höchstens um 20 Prozent steigen. Der Vermieter muss die Erhöhung schriftlich"
    " begründen. Der Mieter kann bis zum Ablauf des zweiten Monats kündigen."
)
TREN = (
    "El tren nocturno sale de Valdoria a las 22:40 y llega a Puerto Claro a las 7:15. El billete cuesta 64 euros e incluye"
    " el desayuno. Las bicicletas no se admiten en el tren nocturno."
)
CHA = "茶园位于海拔八百米的山坡上，每年采摘两次。春茶在四月采摘，味道比秋茶更清淡。参观者需要提前预约。"
MAKTABA = "تفتح المكتبة أبوابها من الساعة التاسعة صباحا حتى السادسة مساء. يمكن استعارة خمسة كتب لمدة ثلاثة أسابيع. الدخول مجاني للطلاب."


class Case(NamedTuple):
    """A claim about sources; ``missed`` marks one that the lexical check judges wrongly, because words are not enough."""

    kind: str
    sources: tuple[str, ...]
    claim: str
    supported: bool
    missed: bool = False


def _cases(kind: str, *rows: tuple[str, str, bool] | tuple[str, str, bool, bool]) -> list[Case]:
    return [Case(kind, (row[0],), row[1], row[2], len(row) > 3 and bool(row[3])) for row in rows]


CASES = [
    *_cases(
        "number",
        (FERRY, "A crossing takes 85 minutes.", True),
        (FERRY, "A crossing takes 58 minutes.", False),
        (FERRY, "Adults pay 18.50 euros for the crossing.", True),
        (FERRY, "Adults pay 81.50 euros for the crossing.", False),
        (FERRY, "The Northwind carries 240 passengers.", True),
        (FERRY, "The Northwind carries 420 passengers.", False),
        (MUSEUM, "The museum owns 3200 clocks.", True),
        (MUSEUM, "The museum owns 5,200 clocks.", False),
        (REPORT, "Revenue was about 8.5 million euros in 2023.", True),
        (REPORT, "Revenue was about 9.5 million euros in 2023.", False),
        (REPORT, "Growth of 5% is expected in 2024.", True),
        (REPORT, "The company has 3 offices.", True),
        (LOAN, "The bank charges a fee of 3% of the amount repaid.", False),
        (REPORT, "Growth of 4.2% is expected in 2024.", False),
    ),
    *_cases(
        "date",
        (FERRY, "The ferry runs from April 12 to September 30.", True),
        (FERRY, "The ferry runs from 19 April to 30 September.", False),
        (LOAN, "Applications must be received by March 31, 2023.", True),
        (LOAN, "Applications must be received by 28 March 2023.", False),
        (LOAN, "Applications must be received by 31 March 2024.", False),
        (MUSEUM, "The museum was founded in 1894.", True),
        (MUSEUM, "The museum was founded in 1849.", False),
        (MUSEUM, "Its oldest clock is from the sixteenth century.", True),
    ),
    *_cases(
        "name",
        (MUSEUM, "The museum was founded by Edith Callender.", True),
        (MUSEUM, "The museum was founded by Edward Pelham.", False),
        (REPORT, "Chief executive Maren Voss expects growth.", True),
        (REPORT, "Chief executive Tilda Brenner expects growth.", False),
        (FERRY, "The ferry runs between Aldmoor and Skerrin.", True),
        (FERRY, "The ferry runs between Aldmoor and Port Lune.", False),
        (FERRY, "The vessel Southwind carries 36 cars.", False),
    ),
    *_cases(
        "negation",
        (LOAN, "No fee is charged in the last year of the term.", True),
        (LOAN, "In winter the line is open.", False),
        (FERRY, "In winter the line is not closed.", False),
        (LOAN, "Borrowers may not repay the loan early.", False),
        (TREN, "Las bicicletas se admiten en el tren nocturno.", False),
    ),
    *_cases(
        "quantifier",
        (LOAN, "All account holders must sign the application.", True),
        (LOAN, "Only one account holder must sign the application.", False, True),
        (MUSEUM, "Some 400 of its clocks are on display.", True),
        (MUSEUM, "All of its clocks are on display.", False),
        (REPORT, "Two plants were closed in the spring.", True),
    ),
    *_cases(
        "paraphrase",
        (FERRY, "The line does not operate during the winter.", True),
        (LOAN, "Early repayment of the loan is possible.", True),
        (LOAN, "Repaying early costs one percent of the sum.", True, True),
        (MUSEUM, "Visitors pay nothing on the first Sunday of the month.", True),
        (REPORT, "Revenue grew in 2023.", True),
        (REPORT, "In spring, two plants shut down.", True),
        (FERRY, "The ship can take 36 cars.", True),
        (MUSEUM, "Only a fraction of the clocks can be seen.", True, True),
    ),
    *_cases(
        "invention",
        (FERRY, "Dogs travel free of charge on deck.", False),
        (MUSEUM, "A café on the roof serves home-made cake.", False),
        (LOAN, "Customers receive a toaster as a gift.", False),
        (REPORT, "Shareholders will vote on a merger with Brixholm Steel.", False),
        (MUSEUM, "Thieves stole several paintings last winter.", False),
    ),
    *_cases(
        "other languages",
        (MIETE, "Die Miete darf in drei Jahren um höchstens 20 Prozent steigen.", True),
        (MIETE, "Die Miete darf in drei Jahren um höchstens 35 Prozent steigen.", False),
        (MIETE, "Der Vermieter muss die Erhöhung schriftlich begründen.", True),
        (MIETE, "Haustiere brauchen die Zustimmung der Hausverwaltung.", False),
        (TREN, "El billete cuesta 64 euros e incluye el desayuno.", True),
        (TREN, "El billete cuesta 46 euros e incluye la cena.", False),
        (TREN, "El aeropuerto abre una terminal nueva.", False),
        (CHA, "春茶在四月采摘。", True),
        (CHA, "参观者需要提前预约。", True),
        (CHA, "工厂生产自行车和汽车。", False),
        (MAKTABA, "يمكن استعارة خمسة كتب لمدة ثلاثة أسابيع.", True),
        (MAKTABA, "يوجد مقهى كبير في الطابق العلوي.", False),
    ),
]
