"""Measures the lexical layer on labelled sets: python -m bench.eval [--data DIR] [--out DIR] [--fit].

Everything printed is held out: weights, calibration and threshold are fitted on other groups of rows (folds), or on other
sets (one left out at a time, with those that share answers with it). ``--fit`` fits on all rows and writes the model that is shipped; its figures stay those
of the folds. With NIGHTDESK_LOCAL_MODEL set, that model is measured beside the words.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from bench.eval import contrast, data, fitting, local, report, risk, shipping, timing
from worker.scorers import scorer_of
from worker.settings import load_settings

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY.parent / "shared" / "data" / "labelled"
CLAIMS = REPOSITORY / "bench" / "claims" / "dev"
UNSEEN_CLAIMS = REPOSITORY / "bench" / "claims" / "held"
OUT = REPOSITORY / "out" / "eval"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.eval", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="directory with labelled sets (*.jsonl)")
    parser.add_argument("--out", type=Path, default=OUT, help="where report.md and reliability.png go")
    parser.add_argument("--fit", action="store_true", help="fit on all rows and write the model that is shipped")
    options = parser.parse_args()
    paths = data.files(options.data)
    if not paths:
        print(f"No labelled sets in {options.data}: nothing was measured. Name their directory with --data.")
        return 2
    print(f"reading {len(paths)} sets from {options.data}", flush=True)
    rows = data.read(paths)
    table = fitting.Table(rows)
    evaluation = report.Evaluation(
        table=table,
        judged={
            "word share": report.word_share(table),
            "single feature": report.single_feature(table),
            "full model, folds": fitting.held_out(table, table.folds()),
            "full model, set left out": fitting.held_out(table, table.sets_together()),
        },
        contrast=contrast.shares_of([*contrast.twins_of_rows(rows), *contrast.twins_of_examples()]),
    )
    if options.fit:
        fitted = fitting.fit(table, np.ones(len(table.rows), dtype=bool))
        right = risk.right_shares([*paths, *data.files(UNSEEN_CLAIMS)])
        print(f"wrote {shipping.write(fitted, right, paths, report.metrics(evaluation))}")
    # After the fit: the figures in the model's file are those of the model that is shipped.
    if (scorer := scorer_of(load_settings())) is not None:
        print(f"reading {len(table.rows)} answers with the local model {scorer.name}", flush=True)
        logits = local.weakest_logits(table, scorer)
        evaluation.judged["with local model, folds"] = local.held_out(table, table.folds(), scorer, logits)
        evaluation.judged["with local model, set left out"] = local.held_out(
            table, table.sets_together(), scorer, logits
        )
    drift = shipping.drift(table, paths)
    timed = timing.measure()
    text = report.markdown(evaluation, timed, drift)
    text += risk.markdown([*paths, *data.files(CLAIMS), *data.files(UNSEEN_CLAIMS)])
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "report.md").write_text(text + report.errors(evaluation))
    report.reliability(evaluation, options.out / "reliability.png")
    print(f"written: {options.out / 'report.md'} (with the worst errors), {options.out / 'reliability.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
