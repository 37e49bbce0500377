"""Answer quality and sufficiency: their formulas, their invariants and their wording."""
# ruff: noqa: RUF001 - other scripts are meant

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.grounding import Claim, Evidence, Grounding, Verdict
from schemas.job import GenerationConfig, JobRequest
from schemas.quality import QualityConstants
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground
from tasks.policy.scores import DEFAULTS, Assessment, Signals, assess, measure, reasoning, score, word_count
from tasks.text.language import SUPPORTED, language_tables

RENT = "The rent may rise once a year, by 4% at most. The landlord shall give notice of a rise 60 days before."
PETS = "Small pets are allowed without consent. Dogs need the written consent of the landlord."
GOOD = "The rent may rise once a year, by 4% at most [1]. Dogs need the written consent of the landlord [2]."


def sources(first: float | None = None, second: float | None = None) -> list[dict[str, Any]]:
    return [{"content": RENT, "relevance_score": first}, {"content": PETS, "relevance_score": second}]


def assessed(text: str, query: str = "May the rent rise?", context: Any = None, **config: Any) -> Assessment:
    """The assessment of a supplied answer, checked by the real checkers."""
    context = sources(0.9, 0.7) if context is None else context
    request = JobRequest(query=query, context=context, response=text, config=GenerationConfig(**config))
    processed = postprocess(request, None, None)
    return assess(request, processed, None if processed.abstained else ground(request, processed))


def quality(text: str, **changes: Any) -> float:
    value = assessed(text, **changes).answer_quality
    assert value is not None
    return value


# ---- the formula ---------------------------------------------------------------------------------------------------

FULL = Signals(relevance=0.9, coverage=1.0, sources_used=3, agreement=1.0, length=20)


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        (FULL, (0.5 * 0.9 + 0.5 + 0.3 + 0.2) / 1.5),
        (replace(FULL, relevance=None), 1.0),
        (replace(FULL, sources_used=1), (0.45 + 0.5 + 0.1 + 0.2) / 1.5),
        (replace(FULL, sources_used=0, agreement=None), (0.45 + 0.5) / 1.3),
        (replace(FULL, moderate=("possibly",), figures=5), 0.8 * 1.45 / 1.5),
        (replace(FULL, strong=("unclear",), moderate=("possibly",)), 0.6 * 1.45 / 1.5),
        (replace(FULL, figures=1), 1.02 * 1.45 / 1.5),
        (replace(FULL, figures=50), 1.0),
        (replace(FULL, length=4), 0.7 * 1.45 / 1.5),
        (replace(FULL, length=15), 1.45 / 1.5),
        (Signals(), 0.0),
    ],
)
def test_the_formula(signals: Signals, expected: float) -> None:
    assert score(signals) == pytest.approx(expected, abs=1e-4)


SHARES = st.none() | st.floats(0, 1)
SIGNALS = st.builds(
    Signals,
    relevance=SHARES,
    coverage=SHARES,
    sources_used=st.integers(0, 9),
    agreement=SHARES,
    strong=st.sampled_from([(), ("unclear",)]),
    moderate=st.sampled_from([(), ("possibly",)]),
    figures=st.integers(0, 30),
    length=st.integers(0, 40),
)


@given(SIGNALS, st.floats(0, 1), st.floats(0, 1))
def test_it_stays_within_its_range_and_rises_with_what_speaks_for_the_answer(
    signals: Signals, first: float, other: float
) -> None:
    less, more = sorted((first, other))
    assert 0 <= score(signals) <= 1
    for part in ("relevance", "coverage", "agreement"):
        assert score(replace(signals, **{part: less})) <= score(replace(signals, **{part: more})), part
    for part in ("sources_used", "figures", "length"):
        assert score(signals) <= score(replace(signals, **{part: getattr(signals, part) + 1})), part
    assert score(replace(signals, strong=("unclear",))) <= score(replace(signals, moderate=("possibly",), strong=()))
    assert score(replace(signals, moderate=("possibly",))) <= score(replace(signals, moderate=()))


STRONG = [phrase for code in SUPPORTED for phrase in language_tables()[code]["wording"]["strong"]]
ANSWERS = st.lists(
    st.sampled_from(
        [
            "The rent may rise once a year, by 4% at most [1].",
            "Dogs need consent [2].",
            "Elephants are blue.",
            "Hello!",
            "It is 5 days [9].",
            "The sources do not say when.",
            "押金不退还[1]。",
        ]
    ),
    min_size=1,
    max_size=4,
).map(" ".join)


@given(ANSWERS, st.sampled_from(STRONG), SHARES, SHARES)
def test_a_strongly_uncertain_phrase_never_raises_the_quality_and_never_suffices(
    text: str, phrase: str, first: float | None, second: float | None
) -> None:
    context = sources(first, second)
    before, after = (
        assessed(text, context=context),
        assessed(f"{text} {phrase[0].upper()}{phrase[1:]}.", context=context),
    )
    assert (after.answer_quality or 0) <= (before.answer_quality or 0) or before.answer_quality is None
    assert not after.sufficient


# ---- what is measured ----------------------------------------------------------------------------------------------


def measured(text: str, context: Any, **config: Any) -> Signals:
    request = JobRequest(query="q", context=context, response=text, config=GenerationConfig(**config))
    processed = postprocess(request, None, None)
    return measure(request, processed, ground(request, processed), processed.response, DEFAULTS)


def test_relevance_is_of_the_used_sources_else_of_all_sources_else_unknown() -> None:
    pets = "Dogs need the written consent of the landlord [2]."
    assert measured(pets, sources(0.2, 0.8)).relevance == 0.8
    assert measured(pets, sources(0.2, None)).relevance == 0.2
    assert measured("Elephants are blue.", sources(0.2, 0.8)).relevance == pytest.approx(0.5)
    assert measured(pets, sources()).relevance is None
    for first, second in ((0.1, 7.5), (-2.3, 0.5), (0.0, 0.0)):
        assert measured(pets, sources(first, second)).relevance is None, "not on a scale from 0 to 1"


def test_a_citation_without_a_location_covers_nothing() -> None:
    assert measured(f"{GOOD} Elephants are blue [1].", sources()).coverage == pytest.approx(2 / 3)
    assert measured(f"{GOOD} Hello!", sources()).coverage == 1.0
    assert measured("Hello!", sources()).coverage is None


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ([(Verdict.SUPPORTED, (0,))], 0.8),
        ([(Verdict.SUPPORTED, (0, 1))], 1.0),
        ([(Verdict.CONTRADICTED, (0, 1))], 0.0),
        ([(Verdict.SUPPORTED, (0,)), (Verdict.CONTRADICTED, (1,))], 0.4),
        ([(Verdict.UNSUPPORTED, ())], None),
    ],
)
def test_agreement(claims: list[tuple[Verdict, tuple[int, ...]]], expected: float | None) -> None:
    request = JobRequest(
        query="q", context=sources(), response="Dogs bark. Cats purr."[: 11 if len(claims) == 1 else 99]
    )
    processed = postprocess(request, None, None)
    checked_claims = tuple(
        Claim(
            text="x",
            start_pos=0,
            end_pos=1,
            verdict=verdict,
            evidence=tuple(Evidence(source_index=index, start=0, end=1) for index in sources_of_claim),
        )
        for verdict, sources_of_claim in claims
    )
    grounding = Grounding(grounding_score=None, claims=checked_claims)
    agreement = measure(request, processed, grounding, processed.response, DEFAULTS).agreement
    assert agreement == (expected if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Yes.", 1),
        ("one two – three", 3),
        ("", 0),
        ("租金为五百元", 3),
        ("租金为 500 元", 3),
        ("يُسمح بالكلاب", 2),
        ("犬です", 2),
    ],
)
def test_words_are_counted_in_every_script(text: str, count: int) -> None:
    assert word_count(text) == count


# ---- sufficiency ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "changes", "why"),
    [
        (GOOD, {}, None),
        (f"{GOOD} The exact date is unclear.", {}, "strongly uncertain wording ('unclear')"),
        (f"{GOOD} The sources do not say more.", {}, "'not in the sources'"),
        (GOOD, {"context": sources(0.2, 0.28)}, "0.24, below 0.30 for a question of 4 words"),
        (GOOD, {"context": sources(0.24, 0.28), "query": "Rent?"}, None),
        ("4% [1].", {"query": "Is a rise allowed?"}, "1 word; an answer to such a question needs at least 5"),
        (
            "Small pets [2].",
            {"query": "List all that is allowed"},
            "2 words; an answer to such a question needs at least 5",
        ),
        ("小动物可以[2]。", {"query": "什么动物可以养？", "context": ["小动物可以养，狗需要同意。"]}, None),
        ("Elephants wear blue hats in winter.", {}, "does not address the question"),
        ("The rent of elephants tends to rise in winter.", {}, None),
        (GOOD, {"query": ""}, None),
    ],
)
def test_sufficiency(text: str, changes: dict[str, Any], why: str | None) -> None:
    assessment = assessed(text, **changes)
    assert assessment.sufficient is (why is None), assessment.remarks
    assert assessment.remarks[-1] == "the sources suffice" if why is None else why in assessment.remarks[-1]


# ---- constants -----------------------------------------------------------------------------------------------------


def test_a_request_changes_the_constants_it_names_and_no_others() -> None:
    hedged = "Dogs possibly need the written consent of the landlord, as the house rules of this building say [2]."
    usual = quality(hedged)
    assert quality(hedged, quality={"moderate_uncertainty": 0.6, "strong_uncertainty": 0.3}) == pytest.approx(
        usual * 0.75, abs=1e-3
    )
    assert assessed(GOOD, query="Allowed?").sufficient
    assert not assessed(GOOD, query="Allowed?", quality={"default_min_words": 50}).sufficient
    assert GenerationConfig(quality={"short": 0.9}).quality == QualityConstants(short=0.9)


def test_every_constant_says_what_it_is_and_where_its_figure_comes_from() -> None:
    for name, field in QualityConstants.model_fields.items():
        extra = field.json_schema_extra
        assert field.description, name
        assert isinstance(extra, dict)
        assert str(extra["origin"]).startswith(("kept", "replaced (", "chosen: ", "new: ")), name


# ---- in words ------------------------------------------------------------------------------------------------------


def paragraph(text: str, reasons: tuple[str, ...] = (), **changes: Any) -> str:
    request = JobRequest(query="May the rent rise?", context=sources(0.9, 0.7), response=text, **changes)
    processed = postprocess(request, None, None)
    grounding = None if processed.abstained else ground(request, processed)
    return reasoning(reasons, grounding, assess(request, processed, grounding))


def test_the_reasoning_is_a_paragraph_a_person_can_read() -> None:
    assert paragraph(GOOD) == (
        "Every checkable claim is supported by a source. Relevance 0.80; 2 of 2 sentences rest on a source; 2 sources used;"
        " agreement 0.80; 1 exact figure; 19 words. Quality 0.86; the sources suffice."
    )
    assert paragraph(f"{GOOD} Elephants possibly wear hats.", ("1 of 3 claims are not supported",)) == (
        "1 of 3 claims are not supported. Relevance 0.80; 2 of 3 sentences rest on a source; 2 sources used;"
        " agreement 0.80; uncertain wording ('possibly'); 22 words. Quality 0.58; the sources suffice."
    )
    assert paragraph("The sources do not say.", ("the model says that the sources do not answer",)) == (
        "The model says that the sources do not answer."
    )
    assert paragraph("").startswith("There is no claim to check")


# ---- the subject ---------------------------------------------------------------------------------------------------

TITLED = [{"content": RENT, "title": "Tenancy Act"}, {"content": PETS, "title": "Tenancy Act"}]


@pytest.mark.parametrize(
    ("query", "answer", "is_about"),
    [
        ("How often may the rent rise?", "The rent may rise once a year, by 4% at most [1].", True),
        ("What is the greatest rise of the rent in a year?", "It is 4% at most, once a year [1].", True),
        (
            "Do I need the consent of the landlord for a dog?",
            "Dogs need the written consent of the landlord [2].",
            True,
        ),
        ("Which parking spaces does the tenant get?", "Small pets are allowed without consent [2].", False),
        ("When was the river Danube bridge built?", "The rent may rise once a year, by 4% at most [1].", False),
        ("Wie oft darf die Miete steigen?", "The rent may rise once a year, by 4% at most [1].", True),
        ("Why?", "The rent may rise once a year, by 4% at most [1].", True),
    ],
)
def test_evidence_about_another_subject_does_not_suffice(query: str, answer: str, *, is_about: bool) -> None:
    assessment = assessed(answer, query=query, context=TITLED)
    assert assessment.sufficient is is_about, assessment.remarks
    assert ("the evidence is about another subject than the question" in assessment.remarks[-1]) is not is_about
