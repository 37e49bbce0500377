"""Savings and losses of the triage before a judge: python bench/judge.py [--data DIR] [--rows N].

On labelled answers, with the shipped lexical model and a stand-in for a judge that is right as often as is published for
GPT-4-class judges (76 of 100 supported claims, 75 of 100 unsupported ones). Saved are the claims that no judge is asked
about; lost is the difference in balanced accuracy and AUROC to a judge that is asked about all. A row counts by its
weakest claim. The model was fitted on these sets, so the words look a little better here than they are.
"""

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import check_claims, local
from tasks.grounding.weights import weigh

DATA = Path(__file__).parents[2] / "shared" / "data" / "labelled"
RIGHT_ON_SUPPORTED, RIGHT_ON_UNSUPPORTED = 0.76, 0.75
WORD_FOR_WORD = 0.8
"""Between the most that words give a claim that is no copy (0.72) and a copy word for word (0.86)."""
BANDS = (
    (0.0, 1.0),
    (0.10, 0.718),
    (local.SURELY_UNSUPPORTED, local.SURELY_SUPPORTED),
    (local.SURELY_UNSUPPORTED, WORD_FOR_WORD),
    (0.15, 0.70),
    (0.2, 0.65),
    (0.3, 0.6),
)


def rows(directory: Path, most: int) -> Iterator[tuple[float, bool]]:
    """(lexical probability of the weakest claim, label), of up to so many rows of each set."""
    for path in sorted(directory.glob("*.jsonl")):
        lines = path.read_text().splitlines()
        for line in random.Random(1).sample(lines, min(most, len(lines))):
            record = json.loads(line)
            sources = [source.replace("\0", " ") for source in record["sources"] if source.strip("\0 \n\t")]
            request = JobRequest(query=record.get("query") or "", response=record["response"], context=sources)
            layers = check_claims(request, postprocess(request, None, None))
            scores = [
                finding.score
                for of_layer in layers.findings.values()
                for finding in of_layer
                if finding.score is not None
            ]
            if scores:
                yield min(scores), bool(record["label"])


def auroc(scored: Sequence[tuple[float, bool]]) -> float:
    """The chance that a supported row scores above one that is not; ties count half (Mann and Whitney's statistic)."""
    ranks: dict[float, list[int]] = {}
    for rank, (score, _) in enumerate(sorted(scored), start=1):
        ranks.setdefault(score, []).append(rank)
    mean = {score: sum(positions) / len(positions) for score, positions in ranks.items()}
    positive = sum(label for _, label in scored)
    summed = sum(mean[score] for score, label in scored if label)
    return (summed - positive * (positive + 1) / 2) / (positive * (len(scored) - positive))


def balanced(scored: Sequence[tuple[float, bool]]) -> float:
    right = {True: [0, 0], False: [0, 0]}
    for score, label in scored:
        right[label][0] += (score >= 0.5) == label
        right[label][1] += 1
    return sum(hits / count for hits, count in right.values()) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--rows", type=int, default=400, help="of each set")
    options = parser.parse_args()
    labelled_rows = list(rows(options.data, options.rows))
    draws = random.Random(7)
    judged = []
    for _, label in labelled_rows:
        is_right = draws.random() < (RIGHT_ON_SUPPORTED if label else RIGHT_ON_UNSUPPORTED)
        judged.append(Verdict.SUPPORTED if label == is_right else Verdict.UNSUPPORTED)
    print(f"{len(labelled_rows)} rows; words alone: {_figures(labelled_rows)}")
    alone = [(weigh(None, word) or 0.0, label) for (_, label), word in zip(labelled_rows, judged, strict=True)]
    print(f"judge alone, asked about all: {_figures(alone)}")
    for low, high in BANDS:
        fused = [
            (score if score <= low or score >= high else weigh(score, word) or 0.0, label)
            for (score, label), word in zip(labelled_rows, judged, strict=True)
        ]
        saved = sum(score <= low or score >= high for score, _ in labelled_rows) / len(labelled_rows)
        print(f"asked between {low:.2f} and {high:.2f}: {saved:.0%} saved, {_figures(fused)}")


def _figures(scored: Sequence[tuple[float, bool]]) -> str:
    return f"balanced accuracy {balanced(scored):.3f}, AUROC {auroc(scored):.3f}"


if __name__ == "__main__":
    main()
