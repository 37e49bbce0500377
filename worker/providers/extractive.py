"""Answers offline by quoting the best sentences of the sources: the provider that needs no key, model or network."""

import asyncio
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import orjson

from schemas.completion import Completion, FinishReason, ProviderSnapshot, Usage
from schemas.generation import AnswerProtocol
from schemas.job import GenerationConfig, JobRequest
from schemas.prompt import Prompt, SourcePart
from tasks.ports import Answered, Call, Listener
from worker.providers.excerpts import Excerpt, choose

MODEL = "extractive-3"
"""Version of the rules; changes whenever an answer could."""


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

    def protocol(self, config: GenerationConfig) -> AnswerProtocol:  # noqa: ARG002 - the port's signature
        """Always segments: its quotes are exact."""
        return AnswerProtocol.SEGMENTS

    def model_of(self, config: GenerationConfig) -> str | None:  # noqa: ARG002 - the port's signature
        """The rules that quote."""
        return MODEL

    def plan(self, request: JobRequest, prompt: Prompt) -> Call:
        """Describes the call; the hash covers the question and every word shown."""
        spans = [(part.source_index, part.start, part.end) for part in _source_parts(prompt)]
        body = orjson.dumps(
            {"model": MODEL, "query": request.query, "prompt": prompt.snapshot.sha256, "sources": spans},
            option=orjson.OPT_SORT_KEYS,
        )
        return Call(
            provider=self.name,
            model=MODEL,
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
        answering = asyncio.get_running_loop().run_in_executor(self._executor, answer, call)
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
        model_returned=MODEL,
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
