"""``nightdesk calibrate``: fit the check's probabilities and threshold, and what judges are worth, to one's own labels."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from tasks.checkers.figures import Figures
from tasks.checkers.model import Calibration
from tasks.checkers.recalibration import Recalibrated, recalibrate, refit_judges
from worker.cli import options
from worker.cli.exits import OK
from worker.cli.intake import check_files
from worker.cli.labels import read_labels
from worker.cli.messages import tell, warn
from worker.cli.outfile import check_output, writing
from worker.cli.output import write_json
from worker.scorers import scorer_of
from worker.settings import load_settings


def command(
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
    With NIGHTDESK_LOCAL_MODEL set it also fits what that model's word is worth, and shows whether it helps. With 'judge'
    and 'judge_verdict' or 'judge_probability' in the lines it fits what that judge's word is worth.

    Or a line is one of 'nightdesk results --judged' with a 'label' added: then the judges alone are fitted, and all else
    stays as it is in NIGHTDESK_CALIBRATION.
    """
    check_files([labels])
    check_output(output, [labels])
    settings = load_settings()
    base = Calibration.load(settings.calibration) if settings.calibration else None
    given = read_labels(labels, base, warn)
    if given.bad:
        warn(f"{given.bad} lines were left out")
    today = datetime.now(UTC).date().isoformat()
    if given.claims:
        found = refit_judges(given.claims, today, base)
    else:
        found = recalibrate(given.answers, today, scorer_of(settings))
        gone = {one.judge for one in (base.judges if base else ())} - {one.judge for one in found.calibration.judges}
        if gone:
            told = "their weights are for the words' probabilities as they were, and are not taken over"
            warn(
                f"{settings.calibration} has judges that these lines don't fit anew ({', '.join(sorted(gone))}): {told}"
            )
    for judge, why in found.left_out.items():
        warn(f"the judge {judge} is not fitted: {why}")
    with writing(output) as file:
        file.write(found.calibration.model_dump_json(indent=1).encode() + b"\n")
    if as_json:
        write_json(found.calibration.model_dump(mode="json"))
    elif not quiet:
        _tell(found, output)
    return OK


def _tell(found: Recalibrated, output: str) -> None:
    if found.before and found.after:
        tell(f"{found.calibration.labels} labelled answers; 'after' is measured on rows left out of each of 5 folds")
        _table([("before", found.before), ("after", found.after), ("with local model", found.with_local)])
        tell(f"supported from a probability of {found.calibration.supported_at:.2f}")
    for one in found.judges:
        weights = one.weights
        tell(
            f"judge {weights.judge}: {weights.claims} labelled claims left open by the words; 'after' is measured in folds"
        )
        _table([("words alone", one.words), ("before", one.before), ("after", one.after)])
        told = f"supported from a probability of {weights.supported_at:.2f}"
        tell(f"{told}; its scores stay between {weights.floor:.2f} and {weights.ceiling:.2f}")
    if output != "-":
        tell(f"written to {output}; use it with NIGHTDESK_CALIBRATION={output}")


def _table(columns: Sequence[tuple[str, Figures | None]]) -> None:
    known = [(title, figures) for title, figures in columns if figures is not None]
    tell(" " * 18 + "".join(f"{title:>{len(title) + 2}}" for title, _ in known))
    for name, figure in (("balanced accuracy", "balanced_accuracy"), ("ECE", "ece"), ("Brier score", "brier")):
        tell(f"{name:<18}" + "".join(f"{getattr(one, figure):>{len(title) + 2}.3f}" for title, one in known))
