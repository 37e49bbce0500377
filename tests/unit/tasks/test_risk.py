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


def test_the_metadata_of_a_source_names_what_its_facts_belong_to() -> None:
    basic = {"content": "The windscreen excess is $100.", "product_name": "Car Basic"}
    plus = {"content": "The windscreen excess is $250.", "product_name": "Car Plus"}
    assert verdict("With Car Plus the windscreen excess is $250 [2].", basic, plus) is Verdict.SUPPORTED
    assert verdict("With Car Basic the windscreen excess is $250 [2].", basic, plus) is Verdict.CONTRADICTED
