"""``nightdesk calibrate``: fit the check's probabilities, threshold and judge weights to an operator's own labels.

A line has an answer with its sources, or a claim as ``nightdesk results --judged`` writes it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import typer

from schemas.grounding import Verdict
from tasks.errors import InputError
from tasks.grounding.calibration import Metrics
from tasks.grounding.fitting import JudgedClaim, LabelledVerdict
from tasks.grounding.judge.reply import EVEN
from tasks.grounding.model import Calibration, shipped
from tasks.grounding.recalibration import AnswerVerdict, LabelledAnswer, Recalibrated, recalibrate, refit_judges
from tasks.raw_jobs import as_check_only
from tasks.submit import parse_request
from worker.cli import options
from worker.cli.exits import OK
from worker.cli.outfile import check_output, writing
from worker.cli.terminal import tell, warn, write_json
from worker.operations.counts import count_of
from worker.operations.json_lines import check_files, display_name, parse_line, read_lines
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
        warn(f"{count_of(lines.bad, 'line was', 'lines were')} left out")
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
                f"{settings.calibration} has judges that these lines do not fit again ({', '.join(sorted(dropped))}): {consequence}"
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
        tell(
            f"{count_of(result.calibration.labels, 'labelled answer')}; 'after' is measured on rows left out of each of 5 folds"
        )
        _table([("before", result.before), ("after", result.after), ("with local model", result.with_local)])
        tell(f"supported from a probability of {result.calibration.supported_at:.2f}")
        if result.after.brier >= result.before.brier:
            warn(
                "on rows left out its probabilities are no better than before (Brier score): label more answers before you "
                "use it, at best a random sample of them"
            )
    for judge in result.judges:
        weights = judge.weights
        tell(
            f"judge {weights.source}: {weights.labels} labelled claims left open by the lexical check; 'after' is measured in folds"
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


SUPPORTED = frozenset({1, "1", "true", "yes", "supported", "entailment"})
UNSUPPORTED = frozenset({0, "0", "false", "no", "unsupported", "not supported", "contradicted", "hallucination"})

_VERDICTS = {
    "supported": Verdict.SUPPORTED,
    "contradicted": Verdict.CONTRADICTED,
    "unsupported": Verdict.UNSUPPORTED,
    "partial": Verdict.UNSUPPORTED,
}


@dataclass(slots=True)
class Labels:
    """The good lines of a file, of one kind: both can't be fitted together."""

    answers: list[LabelledAnswer] = field(default_factory=list)
    claims: list[JudgedClaim] = field(default_factory=list)
    local: str | None = None
    """Of judged claims: the local model, by name and version, that they were weighed against; None: there was none."""
    bad: int = 0

    def add(self, line: "LabelledAnswer | _Exported") -> None:
        """Adds a good line; raises ``InputError`` for a claim that was weighed against another local model."""
        if isinstance(line, LabelledAnswer):
            self.answers.append(line)
            return
        if self.claims and line.local != self.local:
            reason = f"was weighed against the local model {line.local or 'none'}, those before against {self.local or 'none'}"
            raise InputError(reason)
        self.local = line.local
        self.claims.append(line.claim)


class _Exported(NamedTuple):
    """A judged claim as it was exported, with the version of the local model in it."""

    claim: JudgedClaim
    local: str | None


def read_labels(name: str, base: Calibration | None, bad_line: Callable[[str], None]) -> Labels:
    """Reads all lines; a bad one is reported and skipped.

    Args:
        name: the file, or ``-``.
        base: the calibration in force, which judged claims must come from.
        bad_line: receives a message about each bad line.

    Raises: InputError when lines of both kinds are among them.
    """
    labels = Labels()
    for number, line in read_lines(name):
        try:
            labels.add(_read(line, base))
        except InputError as error:
            labels.bad += 1
            bad_line(f"{display_name(name)}, line {number} is left out: {error}")
            continue
        if labels.answers and labels.claims:
            raise InputError(
                f"line {number} is of another kind than those before: answers with their sources and judged claims with"
                " their evidence can't be fitted together, as the former move the probabilities that the latter came from"
            )
    return labels


def _read(line: bytes | None, base: Calibration | None) -> LabelledAnswer | _Exported:
    raw = parse_line(line)
    if not isinstance(raw, dict):
        raise InputError("is not a JSON object")
    label = _label(raw.pop("label", None))
    verdict = _verdict(raw)
    if "evidence" in raw and not raw.keys() & {"sources", "context", "response", "answer"}:
        return _exported(raw, verdict, base, supported=label)
    if "claim" in raw and "response" not in raw and "answer" not in raw:
        raw["response"] = raw.pop("claim")
    request, _ = parse_request(as_check_only(raw))
    return LabelledAnswer(request, label, verdict)


def _label(value: Any) -> bool:
    label = value.strip().lower() if isinstance(value, str) else value
    if isinstance(label, str | int) and label in SUPPORTED:
        return True
    if isinstance(label, str | int) and label in UNSUPPORTED:
        return False
    raise InputError("must be 1 or 0 (or 'supported', 'unsupported')", field="label")


def _verdict(raw: dict[str, Any]) -> AnswerVerdict | None:
    """Takes the judge's verdict out of a line; None where there is none."""
    judge, verdict, probability = (raw.pop(name, None) for name in ("judge", "judge_verdict", "judge_probability"))
    if verdict is None and probability is None:
        return None
    # As records name it: "provider:model by template@version".
    name = judge.partition(" by ")[0] if isinstance(judge, str) else ""
    if not all(name.partition(":")[::2]):
        raise InputError("must be 'provider:model', as records name it", field="judge")
    if probability is not None and not _is_probability(probability):
        raise InputError("must be a number from 0 to 1", field="judge_probability")
    if verdict is None:
        read = Verdict.SUPPORTED if probability >= EVEN else Verdict.UNSUPPORTED
        return AnswerVerdict(name, read, float(probability))
    word = verdict.strip().lower() if isinstance(verdict, str) else ""
    if word not in _VERDICTS:
        raise InputError(f"must be one of {', '.join(_VERDICTS)}", field="judge_verdict")
    return AnswerVerdict(name, _VERDICTS[word], None if probability is None else float(probability))


def _is_probability(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _exported(
    raw: dict[str, Any], verdict: AnswerVerdict | None, base: Calibration | None, *, supported: bool
) -> _Exported:
    if verdict is None:
        raise InputError(
            "holds no verdict of the judge itself: check the batch again, and export its judged claims again"
        )
    model = shipped().calibrated(base) if base else shipped()
    lexical, before = raw.get("lexical"), raw.get("before")
    if lexical is not None and lexical != model.version:
        raise InputError(
            f"was weighed against the words of version {lexical}, not of {model.version}: name the calibration that was in"
            " force then in NIGHTDESK_CALIBRATION, or check again"
        )
    if before is not None and not _is_probability(before):
        raise InputError("must be a number from 0 to 1, or null", field="before")
    group = raw.get("job_id") or raw.get("claim")
    if not isinstance(group, str):
        raise InputError("is missing", field="claim")
    labelled = LabelledVerdict(before, verdict.verdict, supported, verdict.probability)
    lexical_verdict = None if before is None else before >= model.supported_at
    return _Exported(JudgedClaim(verdict.judge, labelled, group, before, lexical_verdict), raw.get("local"))
