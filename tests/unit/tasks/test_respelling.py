"""Times of day and fractions in another spelling than the sources', rights and duties that are denied, and percentage points."""

import pytest

from schemas.grounding import Claim, Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground
from tasks.text.respelling import respell

HOURS = (
    "The office is open from 10 a.m. to 6 p.m., on Thursdays until 9 p.m. The last bus leaves at 11.40 p.m. The programme takes"
    " 45 minutes. Groups must register two weeks ahead. Up to half the tax may be remitted. A test is held every quarter. The"
    " cake is baked at 170°C. The ratio rose from 38 to 41 percent. The fee rose by 2 percentage points. Net profit fell from"
    " EUR 31 million to EUR 27 million."
)
DUTIES = (
    "Tablets must not be crushed. Dogs may not be taken into the flat. Visitors need not wear a badge. Members are not required"
    " to register. Guests must sign the book."
)
STUNDEN = "Das Büro öffnet um 9 Uhr und schließt um 17.30 Uhr."
HEURES = "Le bureau ouvre à 9h30 et ferme à 18 h 15."


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        (HOURS, "The office opens at 10:00."),
        (HOURS, "The office opens at 10:00 a.m."),
        (HOURS, "On Thursdays the office is open until 21:00."),
        (HOURS, "The last bus leaves at 23:40."),
        (HOURS, "The programme takes three quarters of an hour."),
        (HOURS, "Groups must register a fortnight ahead."),
        (HOURS, "Up to 50 percent of the tax may be remitted."),
        (HOURS, "A test is held four times a year."),
        (HOURS, "The cake is baked at 170 degrees Celsius."),
        (HOURS, "The ratio rose by three percentage points."),
        (HOURS, "Net profit was EUR 4 million lower."),
        (DUTIES, "Tablets may not be crushed."),
        (DUTIES, "Dogs must not be taken into the flat."),
        (DUTIES, "Visitors do not have to wear a badge."),
        (DUTIES, "Members need not register."),
        (STUNDEN, "Das Büro schließt um 17:30 Uhr."),
        (HEURES, "Le bureau ferme à 18h15."),
    ],
)
def test_the_same_in_another_spelling_is_supported(source: str, claim: str) -> None:
    assert check(source, claim).verdict is Verdict.SUPPORTED


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        (HOURS, "The last bus leaves at 22:40."),
        (HOURS, "The office opens at 11:00."),
        (HOURS, "A test is held three times a year."),
        (HOURS, "The cake is baked at 180 degrees Celsius."),
        (HOURS, "The ratio rose by four percentage points."),
        (HOURS, "The fee rose by 2 percent."),
        (HOURS, "Net profit was EUR 6 million lower."),
        (DUTIES, "Dogs need not be taken into the flat."),
        (DUTIES, "Visitors must not wear a badge."),
        (DUTIES, "Members are required to register."),
        (DUTIES, "Guests need not sign the book."),
        (STUNDEN, "Das Büro schließt um 18:30 Uhr."),
    ],
)
def test_another_value_or_duty_is_not(source: str, claim: str) -> None:
    assert check(source, claim).verdict is not Verdict.SUPPORTED


def test_an_error_shows_the_words_of_the_claim() -> None:
    source = "The library opens at 9 a.m. The hall opens at 11 a.m."
    claim = check(source, "The library opens at 11:00.")
    assert claim.error is not None
    assert claim.error.claim_words in claim.text


@pytest.mark.parametrize(
    ("text", "sources", "respelled"),
    [
        ("It opens at 9 pm.", ["Open until 21:00."], "It opens at 21:00"),
        ("It opens at 9:00.", ["Open from 9 p.m."], "It opens at 9 p.m.."),
        ("It opens at 14:00.", ["Open from 2 a.m."], "It opens at 14:00."),
        ("It opens at 10:00.", ["Open from 10:00 and from 10 a.m."], "It opens at 10:00."),
        ("It opens at 9:00.", ["Version 9:00:15 is out."], "It opens at 9:00."),
        ("Half an hour later.", ["After 30 minutes."], "30 minutes later."),
        ("Half an hour later.", ["Half an hour is 30 minutes."], "Half an hour later."),
        ("A 25 % share.", ["A quarter of it."], "A a quarter share."),
        ("It takes 2 h 40.", ["It takes 2 h 40 min."], "It takes 2 h 40."),
        ("Two weeks, two week\u017f.", ["After 14 days."], "14 days, two week\u017f."),
    ],
)
def test_only_what_no_source_has_as_the_claim_does_is_respelled(text: str, sources: list[str], respelled: str) -> None:
    assert respell(text, sources).text == respelled


def check(source: str, sentence: str) -> Claim:
    request = JobRequest(query="What holds?", context=[source], response=f"{sentence.removesuffix('.')} [1].")
    (claim,) = ground(request, postprocess(request, None, None)).claims
    return claim
