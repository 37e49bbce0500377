"""Options that several commands share, and the values that they are read as."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, time, timedelta
from functools import wraps
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from schemas.base import check_stored_tenant, check_tenant
from schemas.generation import CheckerName
from schemas.job import GenerationConfig
from schemas.window import parse_window
from tasks.errors import InputError, NotFound
from worker.cli.help import ANSWER, CHECK, FILES, MONEY, NIGHT, TERMINAL, argument, option
from worker.operations.file_form import FileForm

if TYPE_CHECKING:
    from worker.operations.file_intake import InputOrder


def batch_id(text: str) -> UUID:
    """Reads a batch's id, or finds the one batch of a name in the ledger; raises ``InputError``, ``NotFound``."""
    return _id_of(text, f"{text!r} is neither a batch's id nor the name of one; 'nightdesk status' lists them")


def job_target(text: str, kind: str = "the id of a batch or a job") -> tuple[UUID, str]:
    """Reads an id, or ``BATCH:NAME``, as id and name (empty for an id alone); raises ``InputError`` naming the ``kind``.

    The name of a batch stands for its id.
    """
    first, _, name = text.partition(":")
    return _id_of(first, f"{first!r} is no id and no batch's name; give {kind}, BATCH:CUSTOM_ID or BATCH:lineN"), name


def _id_of(text: str, message: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        return _batch_of_name(text, message)


def _batch_of_name(name: str, message: str) -> UUID:
    # Only a name pays for the look into the ledger.
    from worker.cli.session import on_ledger  # noqa: PLC0415

    try:
        ids = on_ledger(lambda ledger: ledger.browsing.of_name(name)) if name else []
    except NotFound:
        # There is no ledger.
        ids = []
    if not ids:
        raise InputError(message)
    if len(ids) > 1:
        listing = ", ".join(map(str, ids))
        raise InputError(f"several batches have the name {name!r}; give an id, the newest first: {listing}")
    return ids[0]


def batch_option(text: str, metavar: str = "BATCH") -> Any:
    """Describes an option that names a batch."""
    return option(text, metavar=metavar, parser=batch_id)


Json = Annotated[bool, option("Write JSON to standard output, and nothing else.", "--json", panel=TERMINAL)]
Quiet = Annotated[bool, option("No progress and no summary; errors are still shown.", "--quiet", "-q", panel=TERMINAL)]
FILE_HELP = "JSON lines, a JSON array, CSV, TSV or Parquet, also .gz; a job a row; - is standard input."
Files = Annotated[list[str] | None, argument(FILE_HELP, "FILE")]
Output = Annotated[
    str,
    option(
        "Where the results go: JSON lines, .csv or .parquet; - is standard output.", "--output", "-o", metavar="OUT"
    ),
]
Form = Annotated[
    FileForm | None,
    option("Of the output: jsonl, csv or parquet; else by its suffix, else JSON lines.", "--format", panel=FILES),
]
JobTarget = Annotated[str, argument("A job's id, or BATCH:CUSTOM_ID, or BATCH:lineN.", "JOB")]
Target = Annotated[str, argument("A batch's or a job's id, or BATCH:CUSTOM_ID, or BATCH:lineN.", "BATCH|JOB")]
Yes = Annotated[bool, option("Do not ask.", "--yes")]
CountOnly = Annotated[bool, option("Only count.", "--dry-run")]
BatchId = Annotated[
    UUID, argument("The batch's id, or its name, as 'nightdesk status' lists them.", "BATCH", parser=batch_id)
]
MaxCost = Annotated[str | None, option("Ceiling on what the batch may cost.", metavar="USD")]
CallLane = Annotated[
    str | None,
    option(
        "How the provider is called, for jobs that name no lane: standard; provider_batch, at half the price "
        "within 24 h; background, 40 % off within 8 h, or background_2h, 30 % off, both at OpenAI; or auto, the cheapest one "
        "that meets the deadline.",
        metavar="LANE",
        panel=MONEY,
    ),
]
Judge = Annotated[
    str | None,
    option(
        "Decides what words leave open; default: the jobs' own, or NIGHTDESK_JUDGE where they ask for one.",
        metavar="PROVIDER[:MODEL]",
        panel=CHECK,
    ),
]
Workers = Annotated[bool, option("Start workers when none run.", panel=TERMINAL)]


_BY_HAND = (
    "provider", "model", "temperature", "max_tokens", "reasoning_effort", "mode", "output_format", "citation_style", "language",
    "audience", "style", "prompt_name", "prompt_version", "on_ungrounded", "strictness", "judge", "timeout_s", "max_attempts",
)  # fmt: skip
"""Fields of a job's config that a person sets for a whole batch; files name the others."""

_OF_THE_CHECK = frozenset({"on_ungrounded", "strictness", "judge"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """The options of a command that submits files: of their batch, and of how they are read."""

    name: Annotated[str | None, option("A name for the batch, for people.")] = None
    key: Annotated[
        str | None,
        option("Submitting the same files with the same key again finds the same batch.", panel=FILES),
    ] = None
    max_cost_usd: MaxCost = None
    lane: CallLane = None
    not_before: Annotated[
        str | None, option("No call before: a time as for --deadline, such as 22:00.", metavar="TIME", panel=NIGHT)
    ] = None
    window: Annotated[
        str | None,
        option(
            "Calls begin only in these hours, each day: '22:00-06:00 Europe/Berlin', or 'mon-fri 22:00-06:00 Europe/Berlin'.",
            metavar="HOURS",
            panel=NIGHT,
        ),
    ] = None
    callback_url: Annotated[
        str | None,
        option("Told by a signed request when all jobs of the batch are final.", metavar="URL", panel=NIGHT),
    ] = None
    deadline: Annotated[
        str | None,
        option(
            "Jobs that are not final by then expire: 07:00, the next time that it is so late here, '07:00 Europe/Zurich', "
            "or a moment such as 2026-11-24T07:00+01:00. The lane auto chooses by it.",
            metavar="TIME",
            panel=NIGHT,
        ),
    ] = None
    escalate: Annotated[
        list[str] | None,
        option(
            "The model asked next when the check does not support an answer; several: in this order.",
            metavar="PROVIDER[:MODEL]",
            panel=CHECK,
        ),
    ] = None
    priority: Annotated[
        int | None,
        option("Of jobs that set none; higher goes first, 0 is usual.", panel=NIGHT, min=-100, max=100),
    ] = None
    columns: Annotated[
        list[str] | None,
        option(
            "The column that holds a field, such as query=frage, custom_id=nr or sources=text1,text2; for names that are not known.",
            "--map",
            metavar="FIELD=COLUMN",
        ),
    ] = None
    source_delimiter: Annotated[
        str | None, option("What stands between the sources in one cell.", metavar="TEXT", panel=FILES)
    ] = None
    group_by: Annotated[
        str | None,
        option(
            "Rows that follow each other with the same value here are one job, with the sources of all.",
            metavar="COLUMN",
            panel=FILES,
        ),
    ] = None
    encoding: Annotated[
        str | None, option("Of files of text that are not UTF-8, such as cp1252.", metavar="NAME", panel=FILES)
    ] = None
    preflight: Annotated[
        bool,
        option(
            "Ask the provider for key and model, by a call without cost, before anything is submitted.", panel=MONEY
        ),
    ] = True
    strict: Annotated[bool, option("Submit nothing when a line is not valid.", panel=FILES)] = False
    again: Annotated[
        bool,
        option(
            "Pay anew for an input that was submitted before; else its batch goes on, or gives its answers.", "--again"
        ),
    ] = False
    config: dict[str, Any] = field(default_factory=dict)
    """The fields of a job's config that are options, too."""

    @property
    def batch(self) -> dict[str, Any]:
        """The options on the batch, as ``BatchRequest`` takes them."""
        start = datetime.now(UTC)
        if self.not_before is not None:
            start = moment_of(self.not_before, start, "--not-before")
        after = self._first_call(start)
        chosen = {"lane": self.lane, "escalate": self.escalate}
        fields = {
            "name": self.name,
            "key": self.key,
            "max_cost_usd": self.max_cost_usd,
            "window": self.window,
            "callback_url": self.callback_url,
            "not_before": self.not_before and start.isoformat(),
            "deadline": self.deadline and moment_of(self.deadline, after).isoformat(),
            "defaults": {name: value for name, value in chosen.items() if value} | self.config or None,
        }
        return {option: value for option, value in fields.items() if value is not None}

    def _first_call(self, start: datetime) -> datetime:
        """The moment after which a deadline is the next time of day; one with a date is compared with the window by the submission."""
        if self.window is None:
            return start
        try:
            opening = parse_window(self.window).opening(start)
        except ValueError as error:
            raise InputError(f"--window: {error}") from None
        return opening if _TIME_OF_DAY.fullmatch(self.deadline or "") else start

    def order(self, files: list[str] | None, *, check_only: bool = False) -> "InputOrder":
        """The order to submit files."""
        # Only commands with files pay for it.
        from worker.operations.file_intake import InputOrder  # noqa: PLC0415
        from worker.operations.input_columns import ColumnMap  # noqa: PLC0415
        from worker.operations.input_content import SameInput  # noqa: PLC0415

        return InputOrder(
            files or (),
            self.batch,
            strict=self.strict,
            check_only=check_only,
            columns=ColumnMap.parse(self.columns or (), self.source_delimiter, self.encoding, self.group_by),
            same_input=SameInput.PAY_ANEW if self.again else SameInput.TAKE_EARLIER,
            priority=self.priority or 0,
        )


def tenant_of(name: str, *, new: bool = False) -> str:
    """The tenant of an option, that is stored or may be ``new``; raises ``InputError``, also for a variable that is empty."""
    try:
        return (check_tenant if new else check_stored_tenant)(name)
    except ValueError as error:
        raise InputError(str(error), field="--tenant") from None


def with_handover(*names: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Gives a command options of a handover: those named, else all and one for each field that a person sets by hand."""
    hints = get_type_hints(Handover, include_extras=True)
    shared = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
        for each in fields(Handover)
        if each.name in (names or hints) and each.name != "config"
    ]
    by_hand = [] if names else [_config_option(name) for name in _BY_HAND]

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def call(**values: Any) -> int:
            options = {each.name: values.pop(each.name) for each in shared}
            config = {each.name: value for each in by_hand if (value := values.pop(each.name)) is not None}
            config |= judged_by(config.get("judge"))
            try:
                return command(**values, handover=Handover(**options, config=config))
            except InputError as error:
                raise _by_option(error, values | options | config) from None

        signature = inspect.signature(command, eval_str=True)
        own = [
            each.replace(kind=each.KEYWORD_ONLY) for each in signature.parameters.values() if each.name != "handover"
        ]
        call.__signature__ = signature.replace(parameters=own + shared + by_hand)  # type: ignore[attr-defined]
        # Typer reads these for the types of what the signature has; of the others it takes the signature's.
        call.__annotations__ = {}
        del call.__wrapped__
        return call

    return decorate


def _by_option(error: InputError, values: Mapping[str, Any]) -> InputError:
    """The fault of a field that an option set, by the name of that option; any other as it is."""
    name, _, words = str(error).removeprefix("config.").partition(": ")
    return InputError(words, field=f"--{name.replace('_', '-')}") if values.get(name) is not None else error


def judged_by(judge: str | None) -> dict[str, Any]:
    """The fields of a job's config that ask a judge; none without one."""
    return {"judge": judge, "checkers": [*GenerationConfig().checkers, CheckerName.JUDGE]} if judge else {}


def _config_option(name: str) -> inspect.Parameter:
    field = GenerationConfig.model_fields[name]
    annotations = (*get_args(field.annotation), field.annotation)
    kinds = [getattr(each, "__origin__", each) for each in annotations if each is not NoneType]
    # What may be any text is checked with the whole config.
    kind = str if str in kinds else next((each for each in kinds if isinstance(each, type)), str)
    text = f"{str(field.description)[0].upper()}{str(field.description)[1:]}."
    panel = None if name == "model" else CHECK if name in _OF_THE_CHECK else ANSWER
    annotation = Annotated[kind | None, option(text, f"--{name.replace('_', '-')}", panel=panel)]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def moment_of(text: str, after: datetime, option: str = "--deadline") -> datetime:
    """Reads a time of day, here or in a time zone, or a moment with its time zone, after a moment; raises ``InputError``.

    >>> moment_of("2026-11-24T07:00+01:00", datetime.fromisoformat("2026-11-23T22:00+00:00")).isoformat()
    '2026-11-24T07:00:00+01:00'
    >>> moment_of("7:00 Asia/Tokyo", datetime.fromisoformat("2026-11-23T21:30+00:00")).isoformat()
    '2026-11-24T07:00:00+09:00'
    """
    try:
        if match := _TIME_OF_DAY.fullmatch(text):
            zone = _zone_of(match[2], option) if match[2] else None
            today, at = after.astimezone(zone).date(), time.fromisoformat(match[1].zfill(5))
            # Not a day of 24 hours later: the clocks may change tonight.
            days = (datetime.combine(today + timedelta(days=day), at) for day in (0, 1, 2))
            moments = (day.replace(tzinfo=zone) if zone else day.astimezone() for day in days)
            return next(moment for moment in moments if moment > after)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"{option} {text!r} is no time: give 07:00, or a moment such as 2026-11-24T07:00+01:00"
        ) from None
    if moment.tzinfo is None:
        raise InputError(f"{option} {text!r} has no time zone: end it with Z or an offset such as +01:00")
    if moment <= after:
        if moment > datetime.now(UTC):
            raise InputError(
                f"{option} {text!r} is not after {after.isoformat(timespec='minutes')}, the time of --not-before"
            )
        raise InputError(f"{option} {text!r} is past")
    return moment


def _zone_of(name: str, option: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(f"{option}: {name!r} is no time zone; give one such as Europe/Zurich or UTC") from None


_TIME_OF_DAY = re.compile(r"(\d{1,2}:\d\d)(?: +(\S+))?")


def describe_window(batch: Mapping[str, Any]) -> str:
    """The window of a batch in this machine's time, for people; empty without one.

    >>> describe_window({})
    ''
    """
    texts = {"not_before": "no call before {}", "deadline": "jobs that are not final expire on {}"}
    moments = {name: datetime.fromisoformat(batch[name]).astimezone() for name in texts if name in batch}
    parts = [texts[name].format(f"{moment:%Y-%m-%d %H:%M %Z}") for name, moment in moments.items()]
    if "window" in batch:
        window = parse_window(batch["window"])
        opening = window.opening(moments.get("not_before", datetime.now(UTC)))
        parts.append(f"calls begin only in {window.text}, first on {opening.astimezone(window.zone):%Y-%m-%d %H:%M %Z}")
    return "; ".join(parts)


_AGE = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def age(text: str, field: str = "older-than") -> timedelta:
    """Reads an age or another stretch of time, such as ``90d``; raises ``InputError``."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is not an age; say for example 90d, 12w, 36h, 30m or 0s", field=field)
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
