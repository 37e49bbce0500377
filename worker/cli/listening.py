"""Writes a streamed answer to standard output while its job is followed."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from schemas.states import FINAL_STATES
from tasks.errors import BrokerUnavailable
from tasks.ports import JobView
from worker.cli.messages import printable
from worker.token_streams import Kind, Token, TokenReader


@dataclass(slots=True)
class Voice:
    """What was shown of an answer, and whether that is all of it."""

    tell: Callable[[str], None]
    shown: bool = False
    whole: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """The ledger says that the job is final."""

    def hear(self, token: Token) -> None:
        """Show what an entry brings; an attempt that begins anew is told beside the text."""
        if token.kind is Kind.START:
            if self.shown:
                self._write("\n")
                self.tell(f"the answer starts anew (round {token.round}, attempt {token.number})")
            self.shown = self.whole = False
        elif token.kind is Kind.TEXT:
            self.shown = True
            self._write(printable(token.text))
        elif token.kind in {Kind.END, Kind.BROKEN}:
            self.whole = token.kind is Kind.END
            if self.whole:
                self._write("\n")

    def finish(self, view: JobView) -> None:
        """Show the answer of the record where its text did not come, or not whole."""
        if view.state in FINAL_STATES and not self.whole and view.record is not None and view.record.answer:
            self._write(("\n" if self.shown else "") + printable(view.record.answer) + "\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


@asynccontextmanager
async def listening(
    redis_url: str, key_prefix: str, view: JobView, tell: Callable[[str], None]
) -> AsyncIterator[Voice]:
    """Show a job's answer as it comes while the block follows the job; ends soon after ``over`` is set."""
    voice = Voice(tell)
    task = asyncio.create_task(_listen(redis_url, key_prefix, view, voice), name="listen")
    try:
        yield voice
        if voice.over.is_set():
            await task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _listen(redis_url: str, key_prefix: str, view: JobView, voice: Voice) -> None:
    async def over() -> bool:
        return voice.over.is_set()

    try:
        async with TokenReader(redis_url, key_prefix=key_prefix) as reader:
            async for token in reader.follow(view.job_id, view.run, over=over):
                voice.hear(token)
    except BrokerUnavailable as error:
        voice.tell(f"{error}; the answer is shown when it is final")
