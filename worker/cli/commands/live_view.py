"""``nightdesk watch``: follows a batch or a job until it is final."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from schemas.states import FINAL_STATES, JobState
from tasks.errors import BrokerUnavailable, NotFound
from tasks.ports import JobView
from worker.cli import options
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.progress import counts_of, reporting
from worker.cli.session import session
from worker.cli.summary import money, notice_lines
from worker.cli.terminal import printable, tell, write_json
from worker.cli.waiting import BatchRun, Watch
from worker.operations.audit import job_of
from worker.operations.counts import count_of
from worker.operations.overview import Overview, batch_overview, status_document
from worker.token_streams import Kind, Token, TokenReader

LOOK_EVERY_S = 0.2


def watch(
    target: options.Target,
    *,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Follow a batch's progress, or each change of a job's state, until all is final or held.

    The answer of a job with 'stream' is written to standard output as it comes, from its start, whenever you look.
    It only looks on: it may be interrupted and started again at any time, from anywhere that reaches the ledger. The
    exit codes are those of 'run'.
    """
    first_id, name = options.job_target(target)
    with session(writes=False) as opened, reporting(quiet=quiet) as reporter:
        if not opened.supervisor.running() and not quiet:
            tell("no worker of this home runs; watching the other workers of this ledger")
        try:
            end = opened.on_ledger(
                lambda ledger: _watch(Watch(opened, ledger, reporter), first_id, name, quiet=quiet, text=not as_json)
            )
        except KeyboardInterrupt:
            tell(f"Interrupted; the work goes on. Look again with: nightdesk watch {target}")
            raise
    if isinstance(end, JobView):
        if as_json:
            write_json({
                "job_id": end.job_id, "batch_id": end.batch_id, "state": end.state, "outcome": end.outcome,
                "held_reason": end.held_reason, "run": end.run, "round": end.round, "cost_usd": end.cost_usd,
            })  # fmt: skip
        return OK if end.state is JobState.COMPLETED else INCOMPLETE
    (status,) = end.batches
    if as_json:
        write_json(status_document(status, end.lanes))
    if not quiet:
        tell(f"{count_of(status.jobs, 'job')}: {counts_of(status)}; cost {money(status)}")
        for line in notice_lines(end):
            tell(line)
        if status.refused_lines:
            tell(f"{count_of(status.refused_lines, 'line of the input was', 'lines of the input were')} not valid")
    return OK if status.jobs == status.states.get(JobState.COMPLETED, 0) and not status.refused_lines else INCOMPLETE


async def _watch(look_on: Watch, first: UUID, name: str, *, quiet: bool, text: bool) -> Overview | JobView:
    ledger, opened = look_on.ledger, look_on.session
    job_id = await job_of(ledger, first, name)
    if job_id is None:
        await BatchRun(look_on, first).wait()
        return await look_on.patiently(lambda: batch_overview(ledger, first))
    report: Callable[[str], None] = (lambda _: None) if quiet else tell
    (view,) = await ledger.reading.views([job_id])
    if not (text and view.request.config.stream):
        return await follow(job_id, look_on, report)
    async with _printing(opened.where.redis_url, opened.settings.key_prefix, view, report) as printer:
        view = await follow(job_id, look_on, report)
        if view.state in FINAL_STATES:
            printer.over.set()
    printer.finish(view)
    return view


def describe_state(view: JobView) -> str:
    """The state of a job in a line: state, step while it has one to go, and why it is held or how it ended."""
    record = view.record
    failure = record.failure if record is not None and view.state is JobState.FAILED else None
    parts = (
        view.state.value,
        "" if view.state in FINAL_STATES else view.step.value,
        f"held: {view.held_reason}" if view.held_reason else "",
        view.outcome.value if view.outcome else "",
        f"{failure.kind.value}: {failure.message}" if failure else "",
    )
    again = f" (run {view.run}, round {view.round})" if (view.run, view.round) > (1, 0) else ""
    return ", ".join(filter(None, parts)) + again


async def follow(job_id: UUID, watch: Watch, report: Callable[[str], None]) -> JobView:
    """Returns the job once it is final, or held in two looks; changes between two looks are reported as one.

    Args:
        job_id: the job.
        watch: with the ledger, and embedded servers to keep alive.
        report: receives each change, as a line.
    """
    before = None
    on_hold_before = False
    while True:
        await watch.keep_workers()
        views = await watch.patiently(lambda: watch.ledger.reading.views([job_id]))
        if not views:
            raise NotFound(f"there is no job {job_id}")
        view = views[0]
        state = describe_state(view)
        if state != before:
            report(f"job {job_id}: {state}")
            before = state
        on_hold = view.held_reason is not None
        if view.state in FINAL_STATES or (on_hold and on_hold_before):
            return view
        on_hold_before = on_hold
        await asyncio.sleep(LOOK_EVERY_S)


@dataclass(slots=True)
class AnswerPrinter:
    """Writes a streamed answer to standard output as it comes."""

    tell: Callable[[str], None]
    begins: bool = False
    """Some text is written."""
    whole: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """The ledger reports that the job is final."""

    def add(self, token: Token) -> None:
        """Writes the text of an entry; reports an attempt that begins again on standard error."""
        if token.kind is Kind.START:
            if self.begins:
                self._write("\n")
                self.tell(f"the answer starts again (round {token.round}, attempt {token.number})")
            self.begins = self.whole = False
        elif token.kind is Kind.TEXT:
            self.begins = True
            self._write(printable(token.text))
        elif token.kind in {Kind.END, Kind.BROKEN}:
            self.whole = token.kind is Kind.END
            if self.whole:
                self._write("\n")

    def finish(self, view: JobView) -> None:
        """Shows the answer of the record where its text did not come, or not whole."""
        if view.state in FINAL_STATES and not self.whole and view.record is not None and view.record.answer:
            self._write(("\n" if self.begins else "") + printable(view.record.answer) + "\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


@asynccontextmanager
async def _printing(
    redis_url: str, key_prefix: str, view: JobView, tell: Callable[[str], None]
) -> AsyncIterator[AnswerPrinter]:
    """Shows a job's answer as it comes while the block follows the job; ends soon after ``over`` is set."""
    printer = AnswerPrinter(tell)
    task = asyncio.create_task(_print(redis_url, key_prefix, view, printer), name="print")
    try:
        yield printer
        if printer.over.is_set():
            await task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _print(redis_url: str, key_prefix: str, view: JobView, printer: AnswerPrinter) -> None:
    async def over() -> bool:
        return printer.over.is_set()

    try:
        async with TokenReader(redis_url, key_prefix=key_prefix) as reader:
            async for token in reader.follow(view.job_id, view.run, over=over):
                printer.add(token)
    except BrokerUnavailable as error:
        printer.tell(f"{error}; the answer is shown when it is final")
