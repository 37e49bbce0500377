"""The output of 'nightdesk watch' for a streamed answer: its text as it arrives, or the text of the record."""

import asyncio
from uuid import uuid4

import pytest

from schemas.states import Step
from tasks.ports import JobView
from tests.builders import ANSWER, make_batch, make_final, make_jobs, make_request
from tests.contract.situations import LEASE
from tests.lent_ledger import LentLedger
from worker.cli.commands.live_view import AnswerPrinter
from worker.token_streams import Kind, Token


async def final_view() -> JobView:
    ledger = LentLedger()
    await ledger.submission.submit(make_batch(), [make_jobs(make_request(config={"stream": True}))])
    (job,) = await ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
    await ledger.queue.finish([make_final(job)])
    (view,) = await ledger.reading.views([job.job_id])
    return view


def text(words: str) -> Token:
    return Token("1-0", Kind.TEXT, words)


def start(number: int) -> Token:
    return Token("1-0", Kind.START, attempt=uuid4(), run=1, round=0, number=number)


END, BROKEN = Token("1-0", Kind.END), Token("1-0", Kind.BROKEN)


@pytest.mark.parametrize(
    ("tokens", "output", "notices"),
    [
        ([start(1), text("The copy "), text("is ready."), END], "The copy is ready.\n", []),
        ([], f"{ANSWER}\n", []),
        ([start(1), text("The co"), BROKEN], f"The co\n{ANSWER}\n", []),
        (
            [start(1), text("The co"), BROKEN, start(2), text("It is."), END],
            "The co\nIt is.\n",
            ["the answer starts again (round 0, attempt 2)"],
        ),
        ([start(1), BROKEN, start(2), text("It is."), END], "It is.\n", []),
        ([start(1), text("\x1b[2Jred\x07"), END], "\ufffd[2Jred\ufffd\n", []),
    ],
)
def test_watch_writes_the_text_of_a_stream(
    tokens: list[Token], output: str, notices: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    messages: list[str] = []
    printer = AnswerPrinter(messages.append)
    for token in tokens:
        printer.add(token)
    printer.finish(asyncio.run(final_view()))
    assert capsys.readouterr().out == output
    assert messages == notices
