"""Checks the sentences of a ready-made object, each a claim like those of the answer."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from schemas.generation import CheckerName
from schemas.grounding import Value, Verdict
from schemas.job import JobRequest
from schemas.structured import requested_schema, unchecked_fields
from tasks.answers.leaves import Leaf, leaves
from tasks.grounding.checkers import CheckedClaim, CheckInput, ClaimFinding, Lexical
from tasks.grounding.denials import false_denials
from tasks.text.sentences import Span
from tasks.text.statements import read_statement
from tasks.text.time_limit import OutOfTime, ensure_time

_OPEN_POINTS = "$.limitations["
"""The beginning of the paths of what the sources leave open, which they need not say."""


def check_sentences(request: JobRequest, name: str, data: Mapping[str, Any]) -> tuple[Value, ...]:
    """The verdicts on the sentences of an object that state something.

    Denials, and what the object lists as open, are flagged only where a source says it after all.

    Args:
        request: the job's request; its ``free_values`` are left out.
        name: of the ready-made object.
        data: the object.
    """
    free = (*request.config.free_values, *unchecked_fields(name))
    lexical = Lexical()

    def find(leaf: Leaf) -> ClaimFinding | None:
        text = str(leaf.value)
        reading = read_statement(text)
        if reading.reason is not None:
            return false_denials(request, (reading,), {CheckerName.LEXICAL: lexical}).get(0)
        finding = lexical.check(CheckInput(request, (CheckedClaim(text, Span(0, len(text))),)))[0]
        is_open = leaf.path.startswith(_OPEN_POINTS)
        return None if is_open and finding.verdict in {Verdict.SUPPORTED, Verdict.UNDECIDED} else finding

    return tuple(check_leaves(leaves(data, requested_schema(name), free), find))


def check_leaves(listed: Iterable[Leaf], find: Callable[[Leaf], ClaimFinding | None]) -> Iterator[Value]:
    """The verdicts on leaves by a function that finds them in the sources; none on a leaf without a finding."""
    for leaf in listed:
        try:
            ensure_time()
            finding = find(leaf)
        except OutOfTime as error:
            finding = ClaimFinding(reason=str(error))
        if finding is not None:
            verdict = finding.verdict or Verdict.UNCHECKED
            yield Value(
                path=leaf.path, value=leaf.value, verdict=verdict, evidence=finding.evidence, reason=finding.reason
            )
