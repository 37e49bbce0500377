"""Claims that say what their source says in another spelling, and the same spellings with another value."""

import pytest

from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground

STAFF = "On 31 December 2023, Norwick had 684 employees, 11.9% more than a year earlier (611)."
SERIES = "A second series commenced on 14 January 2000 and finished on 18 February 2000, again including six episodes."
GAS = "Greenhouse gas intensity fell by 8.0% to 64.2 g CO₂e per tonne-kilometre (2023: 69.8 g)."
EXCESS = "The excess is $100 per person, and $40 for each day of delay."
DEBT = "Net debt stood at €212 million on 31 December 2024, compared with €198 million a year earlier."
WALLS = "You are not required to repaint the walls at fixed intervals. The total length must not exceed 400 m."
RENT = "You need not pay the fee. The deposit may not exceed two months' rent. Tickets will not be refunded."
BEANS = "It was not until July 5, 1905, that jelly beans were mentioned in the Chicago Daily News."
SALT = "Before the first use, pour 1 litre of water into the salt container. In the twenty-first century rents rose."
TREE = "The Trafalgar Square Christmas tree is a Christmas tree donated to the people of Britain by the city of Oslo."
BOOKS = "Project Gutenberg offers over 59,000 free eBooks. The parks cover 40,500 km (15,600 sq mi)."
LIVRES = "The library lends 59 000 books a year, and 1 250 of them are in French."
PAYOUT = "The dividend policy provides for a payout of 50 to 65%. Leasing can take 2 to 5 years or longer."
ROOM = "The room is 20 square metres large. The speed limit is 50 kilometres per hour."
DEVICES = "Devices that use a random address appear as new devices and are not covered by the profile."
LOG = "The plant was opened on 2019-03-04. The licence ends on 30.06.2027."

DESK = "The account number of the tenant is 1234567890. Call the desk at 4412345678 before noon."

RIGHT = [
    ("Die Miete beträgt 1.200 Euro im Monat.", "Die Miete beträgt 1200 Euro im Monat."),
    (STAFF, "On 31 December 2023, Norwick had 684 employees, 11.9 percent more than a year earlier (611)."),
    (STAFF, "On 2023-12-31, Norwick had 684 employees, 11.9% more than a year earlier (611)."),
    (STAFF, "On December 31, 2023, Norwick had 684 employees."),
    (SERIES, "A second series commenced on 2000-01-14 and finished on 2000-02-18, again including six episodes."),
    (GAS, "Greenhouse gas intensity fell by 8.0 percent to 64.2 g CO₂e per tonne-kilometre (2023: 69.8 g)."),
    (EXCESS, "The excess is USD 100 per person."),
    (EXCESS, "The excess is US$100 per person."),
    (EXCESS, "The excess is 100 US dollars per person."),
    (DEBT, "Net debt stood at EUR 212 million on 31 December 2024."),
    (DEBT, "Net debt stood at 212 million euros on 31 December 2024, compared with EUR 198 million a year earlier."),
    (WALLS, "You aren't required to repaint the walls at fixed intervals."),
    (WALLS, "The total length mustn't exceed 400 m."),
    (RENT, "You needn't pay the fee."),
    (RENT, "You don’t have to pay the fee."),  # noqa: RUF001 - a typographic apostrophe
    (RENT, "The deposit mayn't exceed two months' rent."),
    (RENT, "Tickets won't be refunded."),
    (BEANS, "It wasn't until July 5, 1905, that jelly beans were mentioned in the Chicago Daily News."),
    (BOOKS, "Project Gutenberg offers over 59 000 free eBooks."),
    (BOOKS, "The parks cover 40 500 km (15 600 sq mi)."),
    (BOOKS, "The parks cover 40'500 km."),
    (LIVRES, "The library lends 59,000 books a year."),
    (LIVRES, "The library lends 59000 books a year, and 1,250 of them are in French."),
    (PAYOUT, "The dividend policy provides for a payout of 50 to 65 per cent."),
    (PAYOUT, "The dividend policy provides for a payout of 50-65 percent."),
    (PAYOUT, "Leasing can take two to five years or longer."),
    (ROOM, "The room is 20 m² large."),
    (ROOM, "The speed limit is 50 km/h."),
    (DEVICES, "Devices that use a random address appear as new devices & are not covered by the profile."),
    (LOG, "The plant was opened on 4 March 2019."),
    (LOG, "The licence ends on 30 June 2027."),
]
OPEN = [
    (SERIES, "The second series finished on 18/02/2000, again including six episodes."),
    (SERIES, "A second series commenced on January 14th, 2000."),
    (GAS, "Greenhouse gas intensity fell by 8.0% to 64.2 g CO2e per tonne-kilometre."),
    (SALT, "Before the 1st use, pour 1 litre of water into the salt container."),
    (SALT, "In the 21st century rents rose."),
    (TREE, "The Trafalgar Square Christmas tree was a Christmas tree donated to the people of Britain by Oslo."),
    ("The pool is open from 9:00 to 17:00, and lessons take 2 hours.", "The pool is open for 8 hours."),
]
"""Right, too, and more than words can tell: another article or tense, ordinals, a part left out, hours between two times."""
WRONG = [
    (DESK, "The account number of the tenant is 1234567891."),
    (DESK, "Call the desk at 4412345679 before noon."),
    (STAFF, "On 2023-12-30, Norwick had 684 employees."),
    (STAFF, "On 2022-12-31, Norwick had 684 employees."),
    (SERIES, "A second series commenced on 2000-02-14 and finished on 2000-02-18."),
    (SERIES, "The second series finished on 19/02/2000."),
    (EXCESS, "The excess is USD 200 per person."),
    (EXCESS, "The excess is USD 40 per person."),
    (DEBT, "Net debt stood at EUR 198 million on 31 December 2024."),
    (DEBT, "Net debt stood at EUR 221 million on 31 December 2024."),
    (WALLS, "You are required to repaint the walls at fixed intervals."),
    (WALLS, "The total length mustn't exceed 500 m."),
    (RENT, "You have to pay the fee."),
    (RENT, "Tickets will be refunded."),
    (RENT, "The deposit mayn't exceed three months' rent."),
    (SALT, "Before the 3rd use, pour 1 litre of water into the salt container."),
    (SALT, "Before the 1st use, pour 2 litres of water into the salt container."),
    (BOOKS, "Project Gutenberg offers over 95 000 free eBooks."),
    (BOOKS, "The parks cover 15 600 km (40 500 sq mi)."),
    (LIVRES, "The library lends 59,500 books a year."),
    (PAYOUT, "The dividend policy provides for a payout of 50 to 75 per cent."),
    (PAYOUT, "Leasing can take two to six years or longer."),
    (ROOM, "The room is 30 m² large."),
    (ROOM, "The speed limit is 80 km/h."),
    (LOG, "The plant was opened on 3 April 2019."),
    (LOG, "The licence ends on 30 June 2026."),
]


@pytest.mark.parametrize(("source", "claim"), RIGHT)
def test_the_same_in_another_spelling_is_supported(source: str, claim: str) -> None:
    assert verdict(source, claim) is Verdict.SUPPORTED


@pytest.mark.parametrize(("source", "claim"), OPEN)
def test_what_differs_beside_the_spelling_is_left_open(source: str, claim: str) -> None:
    assert verdict(source, claim) is Verdict.UNDECIDED


@pytest.mark.parametrize(("source", "claim"), WRONG)
def test_another_value_in_another_spelling_is_not(source: str, claim: str) -> None:
    assert verdict(source, claim) is not Verdict.SUPPORTED


def verdict(source: str, sentence: str) -> Verdict:
    request = JobRequest(query="What holds?", context=[source], response=f"{sentence.removesuffix('.')} [1].")
    (claim,) = ground(request, postprocess(request, None, None)).claims
    return claim.verdict
