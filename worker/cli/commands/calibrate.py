"""``nightdesk calibrate``: fit the check's probabilities and threshold to one's own labels."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from schemas.job import JobRequest
from tasks.checkers.recalibration import Recalibrated, recalibrate
from tasks.errors import InputError
from tasks.given import as_check_only
from tasks.submit import parse_request
from worker.cli import options
from worker.cli.exits import OK
from worker.cli.intake import check_files, parsed, read_lines, shown
from worker.cli.messages import tell, warn
from worker.cli.outfile import check_output, writing
from worker.cli.output import write_json
from worker.scorers import scorer_of
from worker.settings import load_settings

SUPPORTED = frozenset({1, "1", "true", "yes", "supported", "entailment"})
UNSUPPORTED = frozenset({0, "0", "false", "no", "unsupported", "not supported", "contradicted", "hallucination"})


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
    """Make a calibration file from labelled answers; name it in NIGHTDESK_CALIBRATION to use it.

    A line holds an answer under 'response', 'answer' or 'claim', its sources under 'sources' or 'context', and a
    'label': 1 (every claim is supported) or 0. Some 50 lines move the threshold, some hundred the probabilities.
    With NIGHTDESK_LOCAL_MODEL set it also fits what that model's word is worth, and shows whether it helps.
    """
    check_files([labels])
    check_output(output, [labels])
    found = recalibrate(list(_labelled(labels)), datetime.now(UTC).date().isoformat(), scorer_of(load_settings()))
    with writing(output) as file:
        file.write(found.calibration.model_dump_json(indent=1).encode() + b"\n")
    if as_json:
        write_json(found.calibration.model_dump(mode="json"))
    elif not quiet:
        _tell(found, output)
    return OK


def _labelled(name: str) -> Iterator[tuple[JobRequest, bool]]:
    bad = 0
    for number, line in read_lines(name):
        try:
            yield _read(line)
        except InputError as error:
            bad += 1
            warn(f"{shown(name)}, line {number} is left out: {error}")
    if bad:
        warn(f"{bad} lines were left out")


def _read(line: bytes | None) -> tuple[JobRequest, bool]:
    raw = parsed(line)
    if not isinstance(raw, dict):
        raise InputError("is not a JSON object")
    label = _label(raw.pop("label", None))
    if "claim" in raw and "response" not in raw and "answer" not in raw:
        raw["response"] = raw.pop("claim")
    request, _ = parse_request(as_check_only(raw))
    return request, label


def _label(value: Any) -> bool:
    told = value.strip().lower() if isinstance(value, str) else value
    if isinstance(told, str | int) and told in SUPPORTED:
        return True
    if isinstance(told, str | int) and told in UNSUPPORTED:
        return False
    raise InputError("must be 1 or 0 (or 'supported', 'unsupported')", field="label")


def _tell(found: Recalibrated, output: str) -> None:
    tell(f"{found.calibration.labels} labelled answers; 'after' is measured on rows left out of each of 5 folds")
    columns = [("before", found.before), ("after", found.after)]
    if found.with_local:
        columns.append(("with local model", found.with_local))
    tell(" " * 18 + "".join(f"{name:>{len(name) + 2}}" for name, _ in columns))
    for name, figure in (("balanced accuracy", "balanced_accuracy"), ("ECE", "ece"), ("Brier score", "brier")):
        tell(f"{name:<18}" + "".join(f"{getattr(one, figure):>{len(title) + 2}.3f}" for title, one in columns))
    tell(f"supported from a probability of {found.calibration.supported_at:.2f}")
    if output != "-":
        tell(f"written to {output}; use it with NIGHTDESK_CALIBRATION={output}")
