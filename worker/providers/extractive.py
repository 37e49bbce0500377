"""Answers offline by quoting the excerpts of the sources that fit best: the provider that needs no key, model or network."""

import asyncio
import hashlib
import math
import re
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import NamedTuple

import orjson

from schemas.generation import AnswerProtocol
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import Completion, FinishReason, Prompt, ProviderSnapshot, SourcePart, Usage
from tasks.ports import Answered, Call, Listener
from tasks.questions.subject import Masks, Question, SubjectScore, mask_source, read_question
from tasks.text.language import SUPPORTED, language_tables
from tasks.text.source_index import SourceIndex, index_source
from worker.providers.quotable import Piece, Reader, steps_around
from worker.providers.vendor_models import OFFLINE_MODEL

# ---- choosing the excerpts -------------------------------------------------------------------------------------------


MOST_EXCERPTS = 3
"""Excerpts of an answer; the steps of one list count as one."""
WITHIN_BEST = 1.3
"""Log-odds below the best excerpt at which a further one is still quoted."""
_MOST_READ = 10
"""Sentences that are read as quotes, best first."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A chosen excerpt.

    Attributes:
        number: that of its source in the prompt.
        piece: the piece of the source.
        is_listed: True for a step of a list that is quoted whole.
    """

    number: int
    piece: Piece
    is_listed: bool = False


class _Candidate(NamedTuple):
    """A sentence of a source with its score; they sort best first."""

    loss: float
    number: int
    position: int


class _Source(NamedTuple):
    """A source with the words of the question in it."""

    content: str
    passages: SourceIndex
    reader: Reader
    masks: Masks


def choose(request: JobRequest, parts: Sequence[SourcePart]) -> list[Excerpt]:
    """Chooses the excerpts to quote, in the order for a reader; empty when no source is about the question's subject.

    Args:
        request: the job.
        parts: the part of each source in the prompt, by number.
    """
    question = read_question(request)
    if question is None:
        return []
    scorer = SubjectScore(question)
    sources = [_read(request, part, question) for part in parts]
    candidates = sorted(
        candidate
        for number, (part, source) in enumerate(zip(parts, sources, strict=True), start=1)
        for candidate in _candidates(number, part, source, scorer)
    )
    chosen = _best(candidates, sources)
    if any(excerpt.piece.step for excerpt in chosen) and _asks_for_steps().search(request.query):
        chosen = [step for excerpt in chosen for step in _whole_list(excerpt, sources[excerpt.number - 1].content)]
    return _in_reading_order(chosen)


def _read(request: JobRequest, part: SourcePart, question: Question) -> _Source:
    source = request.context[part.source_index]
    index = index_source(source.content)
    reader = Reader(source.content, index.spans)
    return _Source(source.content, index, reader, mask_source(question, index, source.metadata))


def _candidates(number: int, part: SourcePart, source: _Source, scorer: SubjectScore) -> Iterator[_Candidate]:
    """The sentences of a source in the prompt that have a word of the question, or are next to one."""
    masks, headers = source.masks, source.reader.headers
    around = [0, *masks.passages, 0]
    for position, (start, end) in enumerate(source.passages.spans):
        inside, beside = masks.passages[position], around[position] | around[position + 2]
        if headers and (header := headers.get(position)) is not None:
            # The names of its columns are part of a row; the rows around it are about other things.
            inside, beside = inside | masks.passages[header], 0
        if (inside or beside) and part.start <= start and end <= part.end:
            yield _Candidate(-scorer.score(inside, beside, masks), number, position)


def _best(candidates: Sequence[_Candidate], sources: Sequence[_Source]) -> list[Excerpt]:
    """The best excerpt, and further ones that are nearly as good; none where even the best is about another subject."""
    chosen: list[Excerpt] = []
    least = 0.0
    for loss, number, position in candidates[:_MOST_READ]:
        if -loss < least or len(chosen) == MOST_EXCERPTS:
            break
        piece = sources[number - 1].reader.read(position)
        if piece is None or not _adds(excerpt := Excerpt(number, piece), chosen):
            continue
        if not chosen:
            least = -loss - WITHIN_BEST
        chosen.append(excerpt)
    return chosen


def _adds(excerpt: Excerpt, chosen: Sequence[Excerpt]) -> bool:
    """Tells whether an excerpt is new, and no row of a table whose better row is quoted."""
    return all(
        excerpt.piece.text != other.piece.text
        and (not excerpt.piece.is_row or excerpt.number != other.number or not other.piece.is_row)
        for other in chosen
    )


@cache
def _asks_for_steps() -> re.Pattern[str]:
    patterns = [
        pattern
        for code in SUPPORTED
        for kind in ("named", "implied")
        for pattern in language_tables()[code]["formats"][kind]["steps"]
    ]
    return re.compile("|".join(patterns), re.IGNORECASE)


def _whole_list(excerpt: Excerpt, content: str) -> list[Excerpt]:
    """All steps of the list that an excerpt is a step of, or the excerpt itself."""
    if not excerpt.piece.step:
        return [excerpt]
    steps = steps_around(content, excerpt.piece)
    return [Excerpt(excerpt.number, step, is_listed=len(steps) > 1) for step in steps]


def _in_reading_order(excerpts: Sequence[Excerpt]) -> list[Excerpt]:
    """The source of the best excerpt first; within a source the order of its text, each piece once."""
    first: dict[int, int] = {}
    for place, excerpt in enumerate(excerpts):
        first.setdefault(excerpt.number, place)
    pieces = {(excerpt.number, excerpt.piece.span): excerpt for excerpt in excerpts}
    return sorted(pieces.values(), key=lambda excerpt: (first[excerpt.number], excerpt.piece.span.start))


# ---- the provider ----------------------------------------------------------------------------------------------------


class Extractive:
    """Quotes one to three source sentences that best fit the question, or says that none does. Deterministic, free.

    Args:
        latency_s: seconds to wait before each answer, to rehearse a slow provider.
        name: in settings and jobs.
    """

    def __init__(self, latency_s: float = 0.0, name: str = "extractive") -> None:
        self.name = name
        self._latency_s = latency_s
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="extractive")
        self._urgent: deque[tuple[Call, Future[Answered]]] = deque()
        self._calls: deque[tuple[Call, Future[Answered]]] = deque()

    def protocol(self, config: GenerationConfig) -> AnswerProtocol:  # noqa: ARG002 - the port's signature
        """Always segments: its quotes are exact."""
        return AnswerProtocol.SEGMENTS

    def model_of(self, config: GenerationConfig) -> str | None:  # noqa: ARG002 - the port's signature
        """The rules that quote."""
        return OFFLINE_MODEL

    def plan(self, request: JobRequest, prompt: Prompt) -> Call:
        """Describes the call; the hash covers the question and every word shown."""
        spans = [(part.source_index, part.start, part.end) for part in _source_parts(prompt)]
        body = orjson.dumps(
            {"model": OFFLINE_MODEL, "query": request.query, "prompt": prompt.snapshot.sha256, "sources": spans},
            option=orjson.OPT_SORT_KEYS,
        )
        return Call(
            provider=self.name,
            model=OFFLINE_MODEL,
            lane="standard",
            protocol=AnswerProtocol.SEGMENTS,
            body=body,
            request_hash=hashlib.sha256(body).digest(),
            timeout_s=request.config.timeout_s,
            reserve_usd=Decimal(0),
            prompt=prompt,
            request=request,
            parameters_sent={"stream": True} if request.config.stream else {},
            parameters_dropped=_dropped(request.config),
            stream=request.config.stream,
        )

    def expected_usd(self, call: Call) -> Decimal:  # noqa: ARG002 - the port's signature
        """Always nothing."""
        return Decimal(0)

    async def call(self, call: Call, listener: Listener | None = None) -> Answered:
        """Chooses the sentences, off the event loop. A listener gets them word by word, over the time of the latency."""
        answering = asyncio.wrap_future(self._submit(call))
        if listener is None or not call.stream:
            if self._latency_s > 0:
                await asyncio.sleep(self._latency_s)
            return await answering
        answered = await answering
        pieces = _STREAM_PIECE.findall(_stream_text(answered))
        for word in pieces:
            await asyncio.sleep(self._latency_s / len(pieces))
            listener.on_text(word)
        return answered

    def _submit(self, call: Call) -> "Future[Answered]":
        """Has a call answered on the thread, an urgent one before all others."""
        done: Future[Answered] = Future()
        (self._urgent if call.request.priority > 0 else self._calls).append((call, done))
        self._executor.submit(self._answer_next)
        return done

    def _answer_next(self) -> None:
        call, done = (self._urgent or self._calls).popleft()
        if not done.set_running_or_notify_cancel():
            return
        try:
            answered = answer(call)
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            done.set_exception(error)
        else:
            done.set_result(answered)

    async def close(self) -> None:
        """Stops the thread; what was handed to it is finished."""
        self._executor.shutdown(wait=False)


def answer(call: Call) -> Answered:
    """Answers a call. Pure."""
    request, parts = call.request, _source_parts(call.prompt)
    chosen = choose(request, parts)
    language = request.config.language or ""
    segments = [
        {"text": text, "citations": [{"source": excerpt.number, "quote": _quote(request, parts, excerpt)}]}
        for excerpt, text in zip(chosen, _texts(chosen), strict=True)
    ] or [{"text": _not_answered(language), "citations": []}]
    raw = orjson.dumps({"sufficient": bool(chosen), "segments": segments})
    text = raw.decode()
    context_words = sum(
        len(request.context[part.source_index].content[part.start : part.end].split()) for part in parts
    )
    usage = Usage(
        input_tokens=_tokens(context_words + len(request.query.split())),
        output_tokens=_tokens(sum(len(str(segment["text"]).split()) for segment in segments)),
    )
    snapshot = ProviderSnapshot(
        provider=call.provider,
        model_asked=request.config.model,
        model_returned=OFFLINE_MODEL,
        lane=call.lane,
        protocol=call.protocol,
        endpoint="local",
        request_id=f"extractive-{call.request_hash.hex()[:16]}",
        parameters_sent=call.parameters_sent,
        parameters_dropped=call.parameters_dropped,
    )
    completion = Completion(
        text=text,
        finish_reason=FinishReason.STOP,
        protocol=AnswerProtocol.SEGMENTS,
        usage=usage,
        cost_usd=Decimal(0),
        snapshot=snapshot,
    )
    return Answered(raw=raw, completion=completion)


def _texts(excerpts: Sequence[Excerpt]) -> Iterator[str]:
    """The text of each excerpt; the steps of a list keep their numbers, and each has a line of its own."""
    after_list = False
    for excerpt in excerpts:
        piece = excerpt.piece
        if excerpt.is_listed:
            yield f"\n{piece.step}. {piece.text}"
        else:
            yield f"\n\n{piece.text}" if after_list else piece.text
        after_list = excerpt.is_listed


def _quote(request: JobRequest, parts: Sequence[SourcePart], excerpt: Excerpt) -> str:
    """The words of the source."""
    start, end = excerpt.piece.span
    return request.context[parts[excerpt.number - 1].source_index].content[start:end]


_STREAM_PIECE = re.compile(r"\s*\S+")


def _stream_text(answered: Answered) -> str:
    """Text for a listener: the sentences with the numbers of their sources, not the JSON of the raw answer."""
    segments = orjson.loads(answered.raw)["segments"]
    return " ".join(
        " ".join([segment["text"], *(f"[{citation['source']}]" for citation in segment["citations"])])
        for segment in segments
    )


def _tokens(count: int) -> int:
    """Tokens for a number of words: 1.3 a word, as English text has with current tokenizers."""
    return math.ceil(count * 1.3)


def _not_answered(language: str) -> str:
    if language.lower().startswith(("de", "german")):
        return "Die Quellen beantworten diese Frage nicht."
    return "The sources do not answer this question."


def _dropped(config: GenerationConfig) -> dict[str, str]:
    """Model parameters that it leaves out, with the reason."""
    reason = "the extractive provider has no such parameter"
    parameters = {"temperature": config.temperature, "reasoning_effort": config.reasoning_effort, "model": config.model}
    if config.sampling is not None:
        parameters |= config.sampling.model_dump()
    dropped = {key: reason for key, value in parameters.items() if value is not None}
    if config.output_schema is not None:
        dropped["output_schema"] = "it quotes sentences and fills no schema"
    if config.answer_protocol not in {None, AnswerProtocol.SEGMENTS}:
        dropped["answer_protocol"] = "it always quotes in segments"
    return dropped


def _source_parts(prompt: Prompt) -> list[SourcePart]:
    """Sources of the prompt, by number."""
    spans: dict[int, SourcePart] = {}
    for message in prompt.snapshot.messages:
        for part in message.parts:
            if isinstance(part, SourcePart):
                # A source that holds a chat template's tokens is shown in several parts.
                before = spans.get(part.source_index, part)
                spans[part.source_index] = part.model_copy(update={"start": before.start})
    return [spans[index] for index in prompt.snapshot.shown if index in spans]
