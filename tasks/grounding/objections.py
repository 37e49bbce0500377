"""Objects to a claim whose facts differ from its sources or stand in none of them, and says how that bears on its verdict."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.claim_error import ClaimError, ErrorKind
from schemas.grounding import Evidence
from tasks.grounding.absent_facts import Sources, absent_facts
from tasks.grounding.alignment import Difference, Window
from tasks.grounding.conflicts import differences, near_windows
from tasks.text.evidence import SourceSearch
from tasks.text.fact_reader import read_facts
from tasks.text.fact_text import FactText

Compared = dict[tuple[object, ...], Difference | None]
"""The surest difference of each claim from the windows near to it: all sources may have no nearer ones than those cited."""

LEAST_RECALL = 0.25
"""Share of a claim's words in the best window below which no place is near enough to differ from."""


@dataclass(frozen=True, slots=True)
class Objection:
    """The wrong fact of a claim, with its place in the sources if it differs there.

    ``contradicts`` is false where the claim only lacks support.
    """

    error: ClaimError
    contradicts: bool = False
    evidence: Evidence | None = None

    @property
    def reason(self) -> str:
        """The error in words."""
        words, source = self.error.claim_words, self.error.source_words
        if self.error.kind is ErrorKind.ABSENT:
            return f"{words} is in no source"
        relation = "the source says" if self.contradicts else "the nearest place in the sources has"
        return f"{relation} {source!r}, not {words!r} ({self.error.kind.value})"


def objection_to(
    text: str,
    content: frozenset[str],
    search: SourceSearch,
    *,
    code: str | None = None,
    compared: Compared | None = None,
) -> Objection | None:
    """The weightiest objection to a claim within the sources of a search; None: all its facts fit.

    Args:
        text: the claim without markers.
        content: its words of content, as stems; the vocabulary of the search holds them.
        search: over the sources to look at.
        code: language of the answer.
        compared: the differences of its claims from windows found before; new ones are added.
    """
    windows = near_windows(search, content, code)
    facts = read_facts(text, code)
    difference = _first_difference((facts, code), windows, search, {} if compared is None else compared)
    if difference is not None and difference.contradicts:
        return _of(difference)
    near = [window.facts for window in windows]
    absent = absent_facts(facts, code, Sources(search, near))
    return absence(absent) or (_of(difference) if difference is not None else None)


def _first_difference(
    claim: tuple[FactText, str | None], windows: Sequence[Window], search: SourceSearch, compared: Compared
) -> Difference | None:
    """The surest difference of a claim, with its language, from the windows near to it."""
    facts, code = claim
    if not windows:
        return None
    key = (facts.text, *((window.source_index, window.start) for window in windows))
    if key not in compared:
        search.look_for(facts.positions.keys())
        compared[key] = next(differences(facts, windows, search.weights, code), None)
    return compared[key]


def absence(words: Sequence[str]) -> Objection | None:
    """The objection that the first of some numbers and names is in no source; None without any."""
    return Objection(ClaimError(kind=ErrorKind.ABSENT, claim_words=words[0])) if words else None


def _of(difference: Difference) -> Objection:
    return Objection(
        ClaimError(kind=difference.kind, claim_words=difference.claim_words, source_words=difference.source_words),
        difference.contradicts,
        Evidence(source_index=difference.source_index, start=difference.start, end=difference.end),
    )
