"""``nightdesk calibrate``: fit the check's probabilities to an operator's own labels, or make a promise."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated

from tasks.calibration.curves import Metrics
from tasks.calibration.guarantee import CONFIDENCE, Guarantee, guarantee
from tasks.calibration.recalibration import LabelledAnswer, Recalibrated, recalibrate
from tasks.errors import InputError
from tasks.grounding.model import Calibration
from tasks.raw_jobs import as_check_only
from tasks.submit import parse_request
from worker.cli import options
from worker.cli.exits import OK
from worker.cli.help import argument, option
from worker.cli.outfile import check_output, writing
from worker.cli.terminal import tell, warn, write_json
from worker.ledger.labels import LabelVerdict
from worker.operations.counts import count_of
from worker.operations.json_lines import check_files, display_name, parse_line, read_lines
from worker.operations.label_changes import read_verdict
from worker.scorers import scorer_of
from worker.settings import load_settings


def calibrate(
    labels: Annotated[
        str,
        argument("JSON lines: response (or claim), sources, label; - is standard input.", "LABELS"),
    ],
    output: Annotated[
        str, option("Where the calibration goes; - is standard output.", "--output", "-o", metavar="FILE")
    ] = "calibration.json",
    alpha: Annotated[
        float | None,
        option(
            "Only test a promise: at most this share of the claims called supported is false.",
            metavar="SHARE",
            min=0.001,
            max=0.5,
        ),
    ] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> int:
    """Make a calibration file from labelled answers; name it in NIGHTDESK_CALIBRATION to use it.

    A line holds an answer under 'response', 'answer' or 'claim', its sources under 'sources' or 'context', and a
    'label': 1 (every claim is supported) or 0. Some 50 lines move the probabilities and the confidence.
    With NIGHTDESK_LOCAL_MODEL set it also fits the weights of that model, and shows whether it helps.

    With --alpha 0.05 the probabilities stay, and a file is written if, with 95 % confidence, at most 5 % of what words
    call supported is false. Label a random sample of claims for it, one a line; some 200 do.
    """
    check_files([labels])
    check_output(output, [labels])
    settings = load_settings()
    answers, bad = read_labels(labels, warn)
    if bad:
        warn(f"{count_of(bad, 'line was', 'lines were')} left out")
    today = datetime.now(UTC).date().isoformat()
    result: Recalibrated | Guarantee
    if alpha is None:
        result = recalibrate(answers, today, scorer_of(settings))
    else:
        base = Calibration.load(settings.calibration) if settings.calibration else None
        result = guarantee(answers, alpha, today, base)
    with writing(output) as file:
        file.write(result.calibration.model_dump_json(indent=1).encode() + b"\n")
    if as_json:
        write_json(result.calibration.model_dump(mode="json"))
    elif not quiet:
        if isinstance(result, Recalibrated):
            _report_fit(result)
        else:
            _report_promise(result)
        if output != "-":
            tell(f"written to {output}; use it with NIGHTDESK_CALIBRATION={output}")
    return OK


def _report_promise(result: Guarantee) -> None:
    tell(f"with {CONFIDENCE:.0%} confidence at most {result.alpha:.1%} of what words call supported is false")
    tell(
        f"{result.supported} of {count_of(result.calibration.labels, 'labelled line')} ({result.coverage:.0%}) stay "
        f"supported, {result.wrong} of them by the labels wrongly"
    )


def _report_fit(result: Recalibrated) -> None:
    tell(
        f"{count_of(result.calibration.labels, 'labelled answer')}; 'after' is measured on rows left out of each of 5 folds"
    )
    _table([("before", result.before), ("after", result.after), ("with local model", result.with_local)])
    decided = result.decided
    tell(
        f"words support {decided.supported} answers, {decided.rightly_supported} of them rightly, and contradict"
        f" {decided.contradicted}, {decided.rightly_contradicted} rightly; they leave"
        f" {result.calibration.labels - decided.supported - decided.contradicted} open"
    )
    if result.after.brier >= result.before.brier:
        warn(
            "on rows left out its probabilities are no better than before (Brier score): label more answers before you "
            "use it, at best a random sample of them"
        )


def _table(columns: Sequence[tuple[str, Metrics | None]]) -> None:
    present = [(title, metrics) for title, metrics in columns if metrics is not None]
    tell(" " * 18 + "".join(f"{title:>{len(title) + 2}}" for title, _ in present))
    tell(f"{'ECE':<18}" + "".join(f"{metrics.ece:>{len(title) + 2}.3f}" for title, metrics in present))
    tell(f"{'Brier score':<18}" + "".join(f"{metrics.brier:>{len(title) + 2}.3f}" for title, metrics in present))


def read_labels(name: str, bad_line: Callable[[str], None]) -> tuple[list[LabelledAnswer], int]:
    """Reads all lines, and counts the bad ones, which are reported and skipped.

    Args:
        name: the file, or ``-``.
        bad_line: receives a message about each bad line.
    """
    answers: list[LabelledAnswer] = []
    bad = 0
    for number, line in read_lines(name):
        try:
            answers.append(_read(line))
        except InputError as error:
            bad += 1
            bad_line(f"{display_name(name)}, line {number} is left out: {error}")
    return answers, bad


def _read(line: bytes | None) -> LabelledAnswer:
    raw = parse_line(line)
    if not isinstance(raw, dict):
        raise InputError("is not a JSON object")
    verdict = read_verdict(raw.pop("label", None), "label")
    if verdict is LabelVerdict.NOT_CHECKABLE:
        raise InputError("not_checkable is nothing to learn from", field="label")
    if "claim" in raw and "response" not in raw and "answer" not in raw:
        raw["response"] = raw.pop("claim")
    request, _ = parse_request(as_check_only(raw))
    return LabelledAnswer(request, verdict is LabelVerdict.SUPPORTED)
