"""Risk and coverage of what words decide, on pairs whose writers had not seen the rule: ``bench/claims/dev``."""

import json
from collections import Counter
from pathlib import Path

import pytest

from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground

CLAIMS = Path(__file__).parents[3] / "bench" / "claims" / "dev"


def verdict(claim: str, *sources: object) -> Verdict:
    """The worst verdict on the claims of a text."""
    request = JobRequest(response=claim, context=sources)
    verdicts = {claim.verdict for claim in ground(request, postprocess(request, None, None)).claims}
    order = (Verdict.CONTRADICTED, Verdict.UNDECIDED, Verdict.SUPPORTED, Verdict.NOT_CHECKABLE)
    return next(verdict for verdict in order if verdict in verdicts)


def test_what_words_decide_is_rarely_wrong() -> None:
    counts: Counter[tuple[Verdict, bool]] = Counter()
    for path in sorted(CLAIMS.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            pair = json.loads(line)
            for label in (True, False):
                counts[verdict(pair["true" if label else "false"], *pair["sources"]), label] += 1
    supported = counts[Verdict.SUPPORTED, True] + counts[Verdict.SUPPORTED, False]
    contradicted = counts[Verdict.CONTRADICTED, True] + counts[Verdict.CONTRADICTED, False]
    assert counts[Verdict.SUPPORTED, False] <= 0.05 * supported
    assert counts[Verdict.CONTRADICTED, True] <= 0.05 * contradicted
    assert supported + contradicted >= 0.15 * sum(counts.values())


@pytest.mark.parametrize(
    ("source", "claim", "expected"),
    [
        ("The tablet contains 400 mg of ibuprofen.", "The tablet contains 400 g of ibuprofen.", Verdict.CONTRADICTED),
        ("The daily dose is 1,200 mg.", "The daily dose is 1.2 g.", Verdict.SUPPORTED),
        ("The warranty lasts two years.", "The warranty lasts 24 months.", Verdict.SUPPORTED),
        ("The cable is 3 m long.", "The cable is 3 mm long.", Verdict.CONTRADICTED),
        ("公司收入为3亿元。", "公司收入为3万元。", Verdict.CONTRADICTED),
        ("Growth was 3 % in May.", "Growth was -3 % in May.", Verdict.CONTRADICTED),
        ("The fee is $25.", "The fee is €25.", Verdict.CONTRADICTED),
        ("Theft is included, vandalism is not.", "Vandalism is included.", Verdict.CONTRADICTED),
        ("Theft is included, vandalism is not.", "Vandalism is not included.", Verdict.SUPPORTED),
        ("Children under 12 must not take this.", "Children under 12 may take this.", Verdict.CONTRADICTED),
        ("Bicycles are covered only while locked.", "Bicycles are covered.", Verdict.UNDECIDED),
        ("Customers under 25 pay no fee.", "A customer aged 22 pays no fee.", Verdict.UNDECIDED),
        ("De huurder mag een hond houden.", "De huurder mag geen hond houden.", Verdict.CONTRADICTED),
        ("Najemca może trzymać psa.", "Najemca nie może trzymać psa.", Verdict.UNDECIDED),
        ('The clerk wrote "no refunds".', 'The clerk wrote "refunds on request".', Verdict.CONTRADICTED),
        ("The desk opens at nine.", "Desk", Verdict.UNDECIDED),
    ],
)
def test_a_fact_of_each_kind(source: str, claim: str, expected: Verdict) -> None:
    assert verdict(claim, source) is expected


@pytest.mark.parametrize(
    ("source", "claim"),
    [
        ("The annual interest rate is 3.5 %.", "The annual interest rate is 3."),
        ("The total due for each tenant is 1.250.", "The total due for each tenant is 1."),
        ("The desk in the hall opens daily at 9:30.", "The desk in the hall opens daily at 9."),
        ("Refunds: 0.5 % of the premium is refunded yearly.", "5 % of the premium is refunded yearly."),
        ("Rounds are free: 2:15 hours of parking cost nothing.", "15 hours of parking cost nothing."),
        ("-3 % growth was measured last May.", "3 % growth was measured last May."),
        ("Allowed: >5 mg of lead per litre of water.", "5 mg of lead per litre of water."),
        ("< 5 mg of lead per litre of water is allowed.", "5 mg of lead per litre of water is allowed."),
        ("Note: $250 is the annual fee for members.", "250 is the annual fee for members."),
    ],
)
def test_a_piece_of_a_number_or_one_without_its_sign_is_no_copy(source: str, claim: str) -> None:
    assert verdict(claim, source) is not Verdict.SUPPORTED


@pytest.mark.parametrize(
    ("before", "sentence", "behind"),
    [
        (
            "(1) ",
            "The landlord shall return the deposit under Art. 15, para. 2 within 45 days.",
            " (2) It bears interest.",
        ),
        ("Notice. a) ", "3 months notice is required by tenants of the house.", ""),
        ("The tenant pays the rent.\n", "3 months notice is required by\nboth parties to it.", "\n"),
        ('He said: "', "3 months notice is required by both parties.", '"'),
        ("Use the key. 2. ", "Turn the valve of the pump to the left!", " 3. Wait."),
    ],
)
def test_a_copied_sentence_is_supported_wherever_it_stands(before: str, sentence: str, behind: str) -> None:
    assert verdict(" ".join(sentence.split()), f"{before}{sentence}{behind}") is Verdict.SUPPORTED


def test_the_metadata_of_a_source_names_what_its_facts_belong_to() -> None:
    basic = {"content": "The windscreen excess is $100.", "product_name": "Car Basic"}
    plus = {"content": "The windscreen excess is $250.", "product_name": "Car Plus"}
    assert verdict("With Car Plus the windscreen excess is $250 [2].", basic, plus) is Verdict.SUPPORTED
    assert verdict("With Car Basic the windscreen excess is $250 [2].", basic, plus) is Verdict.CONTRADICTED
