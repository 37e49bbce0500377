"""Read the labelled sets as rows of measured claims, and group rows that share a response or a source."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.answers.rendered import strip_markers
from tasks.grounding.checkers import CheckedClaim, CheckInput, Lexical, checkable_claims
from tasks.grounding.model import Features
from tasks.text.evidence import begin_search
from tasks.text.sentences import Span, words
from tasks.text.wording import content_words


@dataclass
class Row:
    """One labelled answer with the lexical features of each of its checkable claims."""

    id: str
    dataset: str
    supported: bool
    request: JobRequest
    answer: str = ""
    """The whole answer that the response is a claim of, where the set tells."""
    claims: list[str] = field(default_factory=list)
    features: list[Features] = field(default_factory=list)
    window_shares: list[float] = field(default_factory=list)
    """The weighted share of each claim's words in the best window of three passages."""
    word_share: float = 0.0
    group: int = -1


def files(directory: Path) -> list[Path]:
    """The labelled sets there, by name."""
    return sorted(directory.glob("*.jsonl"))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read(paths: Sequence[Path]) -> list[Row]:
    rows = [row for path in paths for row in _rows(path)]
    _group(rows)
    return rows


def _rows(path: Path) -> Iterator[Row]:
    for line in path.read_text().splitlines():
        raw = json.loads(line)
        row = Row(raw["id"], path.stem, bool(raw["label"]), _request(raw), raw.get("full_answer") or "")
        _measure(row)
        yield row


def _request(raw: dict[str, Any]) -> JobRequest:
    # The door refuses U+0000 and names the row; here it must not cost a row of the measurement.
    sources = [source.replace("\0", " ") for source in raw["sources"] if source.strip("\0 \n\t")]
    return JobRequest(query=raw.get("query") or "", response=raw["response"], context=sources)


def _measure(row: Row) -> None:
    processed = postprocess(row.request, None, None)
    bare = strip_markers(processed.response, processed.markers)
    row.claims = [claim.text for claim in checkable_claims(row.request, processed)[0]]
    # A row's citations say nothing: its sources are all those that the person read.
    uncited = tuple(CheckedClaim(text, Span(0, len(text))) for text in row.claims)
    row.features = Lexical().features(CheckInput(row.request, uncited))
    row.window_shares = window_shares(row.request, row.claims)
    vocabulary = {word for source in row.request.context for word in words(source.content)}
    tokens = words(bare)
    row.word_share = sum(word in vocabulary for word in tokens) / len(tokens) if tokens else 0.0


def window_shares(request: JobRequest, claims: Sequence[str]) -> list[float]:
    """The weighted share of each claim's words in the best window of three passages."""
    content = [content_words(words(claim)) for claim in claims]
    search = begin_search(request.context, frozenset[str]().union(*content))
    matches = [[search.best(stems, source) for source in search.sources] for stems in content]
    return [max((match.score for match in of_claim if match is not None), default=0.0) for of_claim in matches]


def _group(rows: Sequence[Row]) -> None:
    """Rows that share a response or any source, directly or over others, get the same group."""
    parent: dict[str, str] = {}

    def root(key: str) -> str:
        while parent.setdefault(key, key) != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    def name(kind: str, text: str) -> str:
        return f"{kind} {hashlib.sha256(text.encode(errors='replace')).hexdigest()[:24]}"

    for row in rows:
        response = name("response", row.request.response or row.id)
        for source in row.request.context:
            parent[root(response)] = root(name("source", source.content))
    for row in rows:
        row.group = int(root(name("response", row.request.response or row.id)).split()[1], 16)
