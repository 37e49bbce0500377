"""Cache keys of judge verdicts: digests of a claim with its evidence, as a judge reads both."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from schemas.job import JobRequest
from schemas.prompt import Prompt, SourcePart
from tasks.grounding.findings import CheckedClaim
from tasks.grounding.judge.judge_prompt import title_of
from tasks.grounding.judge.plan import text_before, text_of


@dataclass(frozen=True, slots=True)
class ClaimPair:
    """An open claim with its evidence in a judge's prompt.

    Attributes:
        sha256: in hex, over the claim's words, those of the claim before where it needs them, and the title and words of
            each part of ``parts``, in order. Offsets do not count: moved evidence is the same evidence.
        places: windows of the sources about the claim, best first.
        parts: the same with their neighbours, for a judge that quotes; all passages, for one that does not: its
            verdict may rest on any of them.
    """

    sha256: str
    places: tuple[SourcePart, ...]
    parts: tuple[SourcePart, ...]


def pair_of(
    request: JobRequest,
    claims: Sequence[CheckedClaim],
    position: int,
    places: Sequence[SourcePart],
    parts: Sequence[SourcePart],
) -> ClaimPair:
    """Pairs the claim at a position with its evidence."""
    words = [text_of(claims[position]), text_before(claims, position)]
    for part in parts:
        words += [
            title_of(request, part.source_index),
            request.context[part.source_index].content[part.start : part.end],
        ]
    return ClaimPair(_digest(words).hex(), tuple(places), tuple(parts))


def key_of(pair: str, judge: str, prompt: Prompt, recheck: UUID | None) -> bytes:
    """Cache key (32 bytes) of a verdict within a batch.

    Args:
        pair: ``ClaimPair.sha256``.
        judge: ``provider:model``.
        prompt: of the request: another template or version asks something else.
        recheck: the command that checks the answer again; None for a first check.
    """
    return _digest([pair, judge, prompt.name, prompt.version, prompt.template_sha256, str(recheck or "")])


def _digest(words: Sequence[str]) -> bytes:
    digest = hashlib.sha256()
    for word in words:
        encoded = word.encode(errors="surrogatepass")
        # The length before each word keeps two different lists from giving the same bytes.
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.digest()
