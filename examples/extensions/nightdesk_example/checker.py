"""Checks that words in quotation marks are in a source, word for word."""

import re

from schemas.grounding import Verdict
from tasks.grounding.checkers import CheckInput, ClaimFinding

_QUOTATION = re.compile('["“]([^"“”]+)["”]')


class Quoted:
    """Finds claims unsupported whose quotations are in no source; gives no other verdict."""

    version = "1"

    def check(self, answer: CheckInput) -> list[ClaimFinding]:
        """Checks all claims: one finding each, in order."""
        sources = [source.content for source in answer.request.context]
        return [_finding(claim.text, sources) for claim in answer.claims]


def _finding(text: str, sources: list[str]) -> ClaimFinding:
    missing = [
        quotation for quotation in _QUOTATION.findall(text) if not any(quotation in source for source in sources)
    ]
    if not missing:
        return ClaimFinding()
    return ClaimFinding(verdict=Verdict.UNSUPPORTED, reason=f"the quotation {missing[0]!r} is in no source")
