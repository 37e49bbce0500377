"""Facts of a claim that differ from its source, in the languages that the check reads."""

import pytest

from schemas.job import SourceContext
from tasks.grounding.absent_facts import Sources, absent_facts
from tasks.grounding.alignment import Difference
from tasks.grounding.conflicts import differences, near_windows
from tasks.text.evidence import begin_search
from tasks.text.fact_reader import read_facts
from tasks.text.quantities import NUMBER, Quantity, equal, equal_fraction, follows
from tasks.text.sentences import words
from tasks.text.wording import content_words
from tests.unit.tasks.differences import CHANGES, Change


def compare(source: str, claim: str, language: str) -> tuple[list[Difference], tuple[str, ...]]:
    content = content_words(words(claim))
    search = begin_search([SourceContext(content=source)], content)
    windows = near_windows(search, content, language)
    facts = read_facts(claim, language)
    different = list(differences(facts, windows, search.weights, language)) if windows else []
    return different, absent_facts(facts, language, Sources(search, [window.facts for window in windows]))


@pytest.mark.parametrize("change", [change for change in CHANGES if change.kind], ids=lambda change: change.claim)
def test_a_changed_fact_is_found(change: Change) -> None:
    different, absent = compare(change.source, change.claim, change.language)
    assert change.kind in {*(difference.kind.value for difference in different), *(["absent"] if absent else [])}


@pytest.mark.parametrize("change", [change for change in CHANGES if not change.kind], ids=lambda change: change.claim)
def test_a_right_paraphrase_has_no_difference(change: Change) -> None:
    assert compare(change.source, change.claim, change.language) == ([], ())


def test_both_sides_of_a_difference_are_shown_with_their_place() -> None:
    source = "It rains. The notice period is three months. The tenant pays."
    (difference, *_), _ = compare(source, "The notice period is six months.", "en")
    assert (difference.claim_words, difference.source_words) == ("six months", "three months")
    assert source[difference.start : difference.end] == "three months"


def quantity(text: str, language: str = "en") -> Quantity:
    return read_facts(text, language).quantities[0]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("4 %", "four per cent"),
        ("1,200 euros", "€1200"),
        ("two years", "24 months"),
        ("8.5 million", "8,537,673"),
        ("about 1,000", "1,040"),
        ("two dozen eggs", "24 eggs"),
        ("twenty-one", "21"),
        ("two hundred and five", "205"),
        ("48 hours", "two days"),
        ("EUR 85", "85 euros"),
        ("USD 1,200", "$1200"),
        ("EUR 1.32 to 1.36 billion", "1.32 billion euros"),
        ("598 x 420 mm", "59.8 cm"),
    ],
)
def test_a_number_has_several_spellings(one: str, two: str) -> None:
    assert equal(quantity(one), quantity(two))


@pytest.mark.parametrize(
    ("one", "two"),
    [("4 %", "5 %"), ("3 months", "3 weeks"), ("$35", "€35"), ("1998", "2000"), ("12 km", "12 %"), ("about 20", "21")],
)
def test_other_values_and_units_differ(one: str, two: str) -> None:
    assert not equal(quantity(one), quantity(two))


def test_may_is_a_month_beside_a_number_only() -> None:
    assert [q.kind for q in read_facts("he was born on the 10th of may 1848", "en").quantities] == [
        "day",
        "month",
        "year",
    ]
    assert [q.kind for q in read_facts("children under two may bring a pushchair", "en").quantities] == ["number"]


def test_a_share_and_its_per_cent_are_equal() -> None:
    assert equal_fraction(quantity("0.04"), quantity("4 %"))
    assert not equal_fraction(quantity("0.04"), quantity("40 %"))


def test_a_sum_and_a_difference_follow() -> None:
    listed = [Quantity(frozenset({value}), "€", NUMBER, 0, 0) for value in (300.0, 120.0, 80.0)]
    assert follows(quantity("420 euros"), listed)
    assert follows(quantity("500 euros"), listed)
    assert follows(quantity("180 euros"), listed)
    assert not follows(quantity("470 euros"), listed)


def test_a_part_of_a_name_stands_for_it_unless_the_source_gives_another() -> None:
    assert compare("In 2009 Obama was elected president.", "Barack Obama was elected president.", "en") == ([], ())
    assert compare("Barack Obama was elected president.", "In 2009, Barack Smith was elected president.", "en")[1]


def test_initials_stand_for_a_name() -> None:
    source = "The National Institutes of Health publish the guide every year."
    assert compare(source, "The guide is published by the NIH every year.", "en")[1] == ()
    assert compare(source, "The guide is published by the WHO every year.", "en")[1] == ("WHO",)
