"""Name a claim with its evidence by what a judge reads of both, so that the same pair need not be asked about again."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from schemas.job import JobRequest
from schemas.prompt import Prompt, SourcePart
from tasks.checkers.answer import CheckedClaim
from tasks.checkers.judge.asking import text_before, text_of
from tasks.checkers.judge.wording import title_of


@dataclass(frozen=True, slots=True)
class Pair:
    """An open claim with what a judge is shown of the sources for it.

    Attributes:
        sha256: in hex, over the claim's words, those of the claim before where it needs them, and the title and words of
            each part of ``shown``, in order. Where they stand does not count: other offsets are no other evidence.
        places: where the sources speak of it, best first.
        shown: the same with their neighbours, for a judge that quotes; all that is shown, for one that does not: its
            word may rest on any of it.
    """

    sha256: str
    places: tuple[SourcePart, ...]
    shown: tuple[SourcePart, ...]


def pair_of(
    request: JobRequest,
    claims: Sequence[CheckedClaim],
    position: int,
    places: Sequence[SourcePart],
    shown: Sequence[SourcePart],
) -> Pair:
    """The pair of the claim at a position and its evidence."""
    words = [text_of(claims[position]), text_before(claims, position)]
    for part in shown:
        words += [
            title_of(request, part.source_index),
            request.context[part.source_index].content[part.start : part.end],
        ]
    return Pair(_digest(words).hex(), tuple(places), tuple(shown))


def key_of(pair: str, judge: str, prompt: Prompt, recheck: UUID | None) -> bytes:
    """The key (32 bytes) that a batch remembers a verdict by.

    Args:
        pair: ``Pair.sha256``.
        judge: ``provider:model``.
        prompt: of the question: another template, or another version, asks something else.
        recheck: the command in which the answer is checked again; None for a first check.
    """
    return _digest([pair, judge, prompt.name, prompt.version, prompt.template_sha256, str(recheck or "")])


def _digest(words: Sequence[str]) -> bytes:
    digest = hashlib.sha256()
    for word in words:
        encoded = word.encode(errors="surrogatepass")
        # Each by its length, so that no two lists give the same bytes.
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.digest()
