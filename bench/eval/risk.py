"""Risk and coverage of words alone, by set and kind: python -m bench.eval.risk FILE...

A line has an answer under 'response' or 'claim' with a 'label', or a 'true' and a 'false' one, its 'sources' or 'source', and maybe a
'kind'. What words leave open is no error: they decide a share of the rows, and are wrong in a share of these.
"""

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground
from tasks.grounding.weights import RightShares

ALL = "all"


class Judged(NamedTuple):
    """A labelled answer with the verdict of words on all of it, and the score of its weakest claim."""

    supported: bool
    verdict: Verdict
    score: float


@dataclass(frozen=True)
class Risk:
    """Decisions of words on some rows; shares in [0, 1], NaN where there is nothing to share."""

    rows: int
    decided: float
    false_supported: float
    true_contradicted: float
    auroc: float


def read(path: Path) -> Iterator[tuple[str, Judged]]:
    """The answers of a set with their kinds; one without a checkable claim is left out."""
    for line in path.read_text().splitlines():
        raw: dict[str, Any] = json.loads(line)
        sources = raw["sources"] if "sources" in raw else [raw["source"]]
        answers = [(raw[name], name == "true") for name in ("true", "false") if name in raw]
        for response, label in answers or [(raw.get("response") or raw["claim"], bool(raw["label"]))]:
            if (judged := _judged(response, sources, label=label)) is not None:
                yield raw.get("kind", ""), judged


def _judged(response: str, sources: list[Any], *, label: bool) -> Judged | None:
    context = [source.replace("\0", " ") if isinstance(source, str) else source for source in sources]
    context = [source for source in context if not isinstance(source, str) or source.strip()]
    request = JobRequest(query="", response=response, context=context)
    claims = [claim for claim in ground(request, postprocess(request, None, None)).claims if claim.score is not None]
    verdicts = {claim.verdict for claim in claims}
    if not claims:
        return None
    whole = Verdict.SUPPORTED if verdicts == {Verdict.SUPPORTED} else Verdict.UNDECIDED
    whole = Verdict.CONTRADICTED if Verdict.CONTRADICTED in verdicts else whole
    return Judged(label, whole, min(claim.score or 0.0 for claim in claims))


def risk_of(rows: Iterable[Judged]) -> Risk:
    """Measures some rows."""
    rows = list(rows)
    supported = [row.supported for row in rows if row.verdict is Verdict.SUPPORTED]
    contradicted = [row.supported for row in rows if row.verdict is Verdict.CONTRADICTED]
    return Risk(
        rows=len(rows),
        decided=(len(supported) + len(contradicted)) / len(rows),
        false_supported=supported.count(False) / len(supported) if supported else math.nan,
        true_contradicted=contradicted.count(True) / len(contradicted) if contradicted else math.nan,
        auroc=_auroc([row.score for row in rows if row.supported], [row.score for row in rows if not row.supported]),
    )


def right_shares(paths: Iterable[Path]) -> RightShares:
    """Shares of right verdicts of words over all rows, each the same, with one imagined exception either way."""
    rows = [row for path in paths for _, row in read(path)]

    def share(verdict: Verdict, *, supported: bool) -> float:
        decided = [row.supported is supported for row in rows if row.verdict is verdict]
        return round((sum(decided) + 1) / (len(decided) + 2), 4)

    return RightShares(
        supported=share(Verdict.SUPPORTED, supported=True), contradicted=share(Verdict.CONTRADICTED, supported=False)
    )


def _auroc(right: list[float], wrong: list[float]) -> float:
    """Share of pairs of a right and a wrong answer in which the right one has the better score; a tie is half."""
    wins = sum((better > worse) + (better == worse) / 2 for better in right for worse in wrong)
    return wins / (len(right) * len(wrong)) if right and wrong else math.nan


def markdown(paths: Iterable[Path]) -> str:
    """The table of all sets, each with its kinds."""
    lines = [
        "## Risk and coverage",
        "",
        "Words alone, in percent: decided, false among supported, true among contradicted, AUROC of the score.",
        "",
        "| set | kind | rows | decided | false supported | true contradicted | AUROC |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for path in paths:
        kinds: dict[str, list[Judged]] = defaultdict(list)
        for kind, row in read(path):
            kinds[ALL].append(row)
            if kind:
                kinds[kind].append(row)
        for kind, rows in kinds.items():
            risk = risk_of(rows)
            shares = (risk.decided, risk.false_supported, risk.true_contradicted, risk.auroc)
            cells = ("-" if math.isnan(share) else f"{100 * share:.1f}" for share in shares)
            lines.append(f"| {path.stem} | {kind} | {risk.rows} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Reads the files, checks each answer by its words, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", type=Path, nargs="+", help="labelled sets (*.jsonl)")
    print(markdown(parser.parse_args().files))


if __name__ == "__main__":
    main()
