"""Checks the form of citations: they exist, their quotes are real, and every claim has one."""

from schemas.grounding import Verdict
from tasks.grounding.findings import CheckedClaim, CheckInput, ClaimFinding


class Structure:
    """Finds claims unsupported whose citations are all broken; never supported, as it reads no meaning."""

    name = "structure"
    version = "1"

    def check(self, answer: CheckInput) -> list[ClaimFinding]:
        """Checks all claims: one finding each, in order."""
        config = answer.request.config
        total = sum(len(claim.citations) for claim in answer.claims)
        wants_more = config.include_citations and total < config.min_citations
        return [
            _finding(
                claim,
                wants_citation=config.include_citations and config.min_citations > 0,
                missing=config.min_citations - total if wants_more else 0,
            )
            for claim in answer.claims
        ]


def _finding(claim: CheckedClaim, *, wants_citation: bool, missing: int) -> ClaimFinding:
    remarks = []
    if claim.unknown:
        remarks.append(f"cites source(s) that do not exist: {', '.join(map(str, claim.unknown))}")
    unlocated = sum(not citation.verified for citation in claim.citations)
    if unlocated:
        remarks.append(f"{unlocated} of its citations could not be located in the source cited")
    if wants_citation and not claim.citations and not claim.unknown:
        remarks.append("carries no citation")
        if missing:
            remarks.append(f"the answer has {missing} citation(s) too few")
    broken = (claim.citations or claim.unknown) and unlocated == len(claim.citations)
    return ClaimFinding(verdict=Verdict.UNSUPPORTED if broken else None, reason="; ".join(remarks))
