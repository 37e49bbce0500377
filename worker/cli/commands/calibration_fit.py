"""``nightdesk calibrate``: fit the check's probabilities, threshold and judge weights to an operator's own labels."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from tasks.grounding.calibration import Metrics
from tasks.grounding.model import Calibration
from tasks.grounding.recalibration import Recalibrated, recalibrate, refit_judges
from worker.cli import options
from worker.cli.exits import OK
from worker.cli.labels import read_labels
from worker.cli.outfile import check_output, writing
from worker.cli.terminal import tell, warn, write_json
from worker.operations.json_lines import check_files
from worker.scorers import scorer_of
from worker.settings import load_settings


def calibrate(
    labels: Annotated[
        str,
        typer.Argument(metavar="LABELS", help="JSON lines: response (or claim), sources, label; - is standard input."),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the calibration goes; - is standard output.")
    ] = "calibration.json",
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> int:
    """Make a calibration file from labelled answers or judged claims; name it in NIGHTDESK_CALIBRATION to use it.

    A line holds an answer under 'response', 'answer' or 'claim', its sources under 'sources' or 'context', and a
    'label': 1 (every claim is supported) or 0. Some 50 lines move the threshold, some hundred the probabilities.
    With NIGHTDESK_LOCAL_MODEL set it also fits the weights of that model, and shows whether it helps. With 'judge'
    and 'judge_verdict' or 'judge_probability' in the lines it fits the weights of that judge.

    Or a line is one of 'nightdesk results --judged' with a 'label' added: then the judges alone are fitted, and all else
    stays as it is in NIGHTDESK_CALIBRATION.
    """
    check_files([labels])
    check_output(output, [labels])
    settings = load_settings()
    base = Calibration.load(settings.calibration) if settings.calibration else None
    lines = read_labels(labels, base, warn)
    if lines.bad:
        warn(f"{lines.bad} lines were left out")
    today = datetime.now(UTC).date().isoformat()
    if lines.claims:
        result = refit_judges(lines.claims, today, base)
    else:
        result = recalibrate(lines.answers, today, scorer_of(settings))
        dropped = {judge.source for judge in (base.judges if base else ())} - {
            judge.source for judge in result.calibration.judges
        }
        if dropped:
            consequence = "their weights belong to the former lexical probabilities and are dropped"
            warn(
                f"{settings.calibration} has judges that these lines don't fit anew ({', '.join(sorted(dropped))}): {consequence}"
            )
    for judge, reason in result.problems.items():
        warn(f"the judge {judge} is not fitted: {reason}")
    with writing(output) as file:
        file.write(result.calibration.model_dump_json(indent=1).encode() + b"\n")
    if as_json:
        write_json(result.calibration.model_dump(mode="json"))
    elif not quiet:
        _report(result, output)
    return OK


def _report(result: Recalibrated, output: str) -> None:
    if result.before and result.after:
        tell(f"{result.calibration.labels} labelled answers; 'after' is measured on rows left out of each of 5 folds")
        _table([("before", result.before), ("after", result.after), ("with local model", result.with_local)])
        tell(f"supported from a probability of {result.calibration.supported_at:.2f}")
    for judge in result.judges:
        weights = judge.weights
        tell(
            f"judge {weights.source}: {weights.labels} labelled claims left open by the words; 'after' is measured in folds"
        )
        _table([("words alone", judge.without_judge), ("before", judge.before), ("after", judge.after)])
        threshold = f"supported from a probability of {weights.supported_at:.2f}"
        tell(f"{threshold}; its scores stay between {weights.floor:.2f} and {weights.ceiling:.2f}")
    if output != "-":
        tell(f"written to {output}; use it with NIGHTDESK_CALIBRATION={output}")


def _table(columns: Sequence[tuple[str, Metrics | None]]) -> None:
    present = [(title, metrics) for title, metrics in columns if metrics is not None]
    tell(" " * 18 + "".join(f"{title:>{len(title) + 2}}" for title, _ in present))
    for name, metric in (("balanced accuracy", "balanced_accuracy"), ("ECE", "ece"), ("Brier score", "brier")):
        tell(f"{name:<18}" + "".join(f"{getattr(metrics, metric):>{len(title) + 2}.3f}" for title, metrics in present))
