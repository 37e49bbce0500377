"""Builds contrast pairs from labelled sets and the examples, and counts by kind of change what the check flags.

An original is a row of one claim that a person labelled as supported and that version 3 of the check, fitted on labels
alone, calls supported. Its twin differs in one fact. Choices are fixed by the row's id.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.eval.changes import KINDS, Facts, changed
from bench.eval.data import Row, window_shares
from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground
from tasks.grounding.checkers import checkable_claims
from tasks.grounding.model import Features, measure, probability, read_claim
from tasks.text.evidence import begin_search
from tasks.text.sentences import sentence_spans

EXAMPLES = Path(__file__).parents[2] / "examples"
MOST = 300
"""Twins of a kind and set at most."""
UNCHANGED = "unchanged"
_LEAST_WORDS = 6
_LONGEST = 300


@dataclass(frozen=True)
class Twin:
    """A claim beside its sources: changed by a kind, or unchanged; ``row`` is the original's place in the table, if any."""

    kind: str
    dataset: str
    id: str
    request: JobRequest
    original: str
    row: int | None = None


# ---- version 3, frozen ------------------------------------------------------------------------------------------


class _Version3:
    """The check that was fitted on natural labels alone, to say what it would have called supported."""

    def __init__(self) -> None:
        document = json.loads((Path(__file__).parent / "lexical-3.json").read_text())
        self._slopes = [weight / spread for weight, spread in zip(document["weights"], document["spread"], strict=True)]
        self._constant = document["intercept"] - sum(
            slope * centre for slope, centre in zip(self._slopes, document["centre"], strict=True)
        )
        self._knots = tuple(map(tuple, document["knots"]))
        self._supported_at = document["supported_at"]
        self._names = document["features"]

    def supports(self, features: Features, window_share: float) -> bool:
        """Tells whether version 3 calls a claim with these features and share of words in a window supported."""
        if features.verbatim:
            return True
        values = [window_share if name == "recall" else getattr(features, name) for name in self._names]
        score = self._constant + sum(slope * value for slope, value in zip(self._slopes, values, strict=True))
        return probability(self._knots, score) >= self._supported_at


@cache
def _version_3() -> _Version3:
    return _Version3()


def supported_before(request: JobRequest) -> bool:
    """Tells whether version 3 calls every claim of an answer supported."""
    claims, _ = checkable_claims(request, postprocess(request, None, None))
    texts = [read_claim(claim.text) for claim in claims]
    search = begin_search(request.context, frozenset[str]().union(*(text.content for text in texts)))
    shares = window_shares(request, [claim.text for claim in claims])
    return bool(texts) and all(
        _version_3().supports(measure(search, text).features, share) for text, share in zip(texts, shares, strict=True)
    )


# ---- building ---------------------------------------------------------------------------------------------------


def twins_of_rows(rows: Sequence[Row]) -> list[Twin]:
    """Originals and twins of labelled rows, at most ``MOST`` of a kind and set."""
    twins: list[Twin] = []
    counts: Counter[tuple[str, str]] = Counter()
    for index, row in sorted(enumerate(rows), key=lambda item: _shuffled(item[1].id)):
        if (
            not row.supported
            or len(row.claims) != 1
            or not _version_3().supports(row.features[0], row.window_shares[0])
        ):
            continue
        for twin in _twins(row.dataset, row.id, row.request, index):
            if counts[twin.dataset, twin.kind] < MOST:
                counts[twin.dataset, twin.kind] += 1
                twins.append(twin)
    return twins


def twins_of_examples(folder: Path = EXAMPLES) -> list[Twin]:
    """Originals and twins of sentences in the sources of the examples."""
    twins: list[Twin] = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            raw = json.loads(line)
            contents = [source if isinstance(source, str) else source["content"] for source in raw["context"]]
            for number, sentence in enumerate(sentences_of(contents)):
                request = JobRequest(query=raw["query"], response=sentence, context=contents)
                if supported_before(request):
                    twins.extend(_twins(f"examples/{path.stem}", f"{raw['custom_id']}-{number}", request, None))
    return twins


def sentences_of(contents: Sequence[str]) -> Iterator[str]:
    """The sentences of sources that may be claims, without line breaks."""
    for content in contents:
        for start, end in sentence_spans(content):
            sentence = " ".join(content[start:end].split())
            if (
                len(sentence.split()) >= _LEAST_WORDS
                and len(sentence) <= _LONGEST
                and sentence[-1:] == "."
                and "|" not in sentence
            ):
                yield sentence


def _twins(dataset: str, name: str, request: JobRequest, row: int | None) -> Iterator[Twin]:
    claim = request.response or ""
    facts = Facts([source.content for source in request.context])
    yield Twin(UNCHANGED, dataset, name, request, claim, row)
    for kind in KINDS:
        text = changed(kind, claim, facts, name)
        if text is not None:
            yield Twin(kind, dataset, name, request.model_copy(update={"response": text}), claim, row)


def _shuffled(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


# ---- measuring --------------------------------------------------------------------------------------------------


def supported_now(request: JobRequest) -> bool:
    """Tells whether the present check calls every claim of an answer supported."""
    grounding = ground(request, postprocess(request, None, None))
    verdicts = [claim.verdict for claim in grounding.claims if claim.verdict is not Verdict.NOT_CHECKABLE]
    return bool(verdicts) and all(verdict is Verdict.SUPPORTED for verdict in verdicts)


@dataclass(frozen=True)
class Share:
    """Twins of a kind: their number, and the supported ones before and now."""

    twins: int
    before: int
    now: int

    @property
    def flagged_before(self) -> float:
        """Share that version 3 does not call supported."""
        return 1 - self.before / self.twins

    @property
    def flagged(self) -> float:
        """Share that the present check does not call supported."""
        return 1 - self.now / self.twins


def shares_of(twins: Sequence[Twin]) -> dict[tuple[str, str], Share]:
    """The shares of twins by (set, kind)."""
    counted: dict[tuple[str, str], Share] = {}
    for twin in twins:
        before, now = supported_before(twin.request), supported_now(twin.request)
        place = "examples" if twin.row is None else "labelled"
        for name in (twin.dataset, place, "all"):
            share = counted.get((name, twin.kind), Share(0, 0, 0))
            counted[name, twin.kind] = Share(share.twins + 1, share.before + before, share.now + now)
    return counted


def markdown(counted: dict[tuple[str, str], Share]) -> list[str]:
    """A table of the shares flagged, before and now, as lines of a report."""
    totals = ["all", "labelled", "examples"]
    names = [*totals, *sorted({name for name, _ in counted if name not in totals})]
    lines = [
        "## Contrast: true claims with one fact changed",
        "",
        "Share flagged (no longer supported) in percent, version 3 -> now; in brackets the number of twins.",
        "",
        "| | " + " | ".join(names) + " |",
        "| --- |" + " --- |" * len(names),
    ]
    for kind in (*KINDS, UNCHANGED):
        cells = [
            f"{100 * share.flagged_before:.0f} -> {100 * share.flagged:.1f} ({share.twins})"
            if (share := counted.get((name, kind)))
            else ""
            for name in names
        ]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return [*lines, ""]
