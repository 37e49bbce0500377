"""Answers offline by quoting the best sentences of the sources: the provider that needs no key, model or network."""

import asyncio
import hashlib
import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

import orjson

from schemas.completion import Completion, FinishReason, ProviderSnapshot, Usage
from schemas.generation import AnswerProtocol, GenerationConfig
from schemas.job import JobRequest
from schemas.prompt import Prompt, SourcePart
from tasks.ports import Answered, Call, Listener
from tasks.text.evidence import index_sentences, metadata_words
from tasks.text.language import language_tables
from tasks.text.sentences import Span, words
from tasks.text.wording import content_words

MODEL = "extractive-2"
"""Version of the rules; changes whenever an answer could."""

LEAST_COVERAGE = 0.35
"""Share of the question's words, by weight, that a sentence with its neighbours must hold; below it the provider abstains."""
WITHIN_BEST = 0.6
"""A further sentence is quoted when it scores at least this share of the best one."""
MOST_SENTENCES = 3
LEAST_WORDS = 4
"""Words; a shorter sentence is a heading or a fragment."""
LONGEST_QUOTE = 1_000
"""Characters; a longer sentence is cut there (a source without punctuation is one sentence)."""

_NEIGHBOUR = 0.5
_TITLE = 0.7
"""Credit for a word of the question that is only in a neighbouring sentence, or only in the source's metadata."""
_EXPECTED = 0.15
"""Bonus, as a share, for a sentence with the expected kind of thing (a number, a name)."""

_SATURATION = 1.2
_LENGTH_SHARE = 0.3
"""BM25's k1, and its b, kept low: sentences differ in length for other reasons than documents do."""

_NAME = re.compile(r"(?<=[\w,;)] )[A-Z][\w-]+")


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
        {"text": " ".join(pick.text.split()), "citations": [{"source": pick.number, "quote": pick.text}]}
        for pick in chosen
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


# ---- choosing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pick:
    """A chosen sentence: the number of its source, its span in the content, its words, its score and coverage."""

    number: int
    span: Span
    text: str
    score: float
    coverage: float


@dataclass(frozen=True, slots=True)
class _Sentence:
    number: int
    span: Span
    words: set[str]
    beside: set[str]
    title: frozenset[str]


def choose(request: JobRequest, parts: Sequence[SourcePart]) -> list[Pick]:
    """Chooses the sentences to quote, best first; empty when none fits the question."""
    tokens = words(request.query)
    query = content_words(word for word in tokens if word not in _question_words("shape")) or content_words(tokens)
    sentences = _sentences(request, parts, query)
    if not query or not sentences:
        return []
    weights = _weights(query, sentences)
    total = sum(weights.values())
    average = sum(sentence.span.end - sentence.span.start for sentence in sentences) / len(sentences)
    expected = _expected(request.query)
    picks = []
    for sentence in sentences:
        start, end = sentence.span
        text = request.context[parts[sentence.number - 1].source_index].content[start:end]
        if not _is_quotable(sentence, text, is_only=len(sentences) == 1):
            continue
        coverage = _credit(sentence, weights) / total
        length = (end - start) / average
        score = coverage * (_SATURATION + 1) / (1 + _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * length))
        if expected is not None and expected.search(text):
            score *= 1 + _EXPECTED
        picks.append(Pick(sentence.number, sentence.span, text[:LONGEST_QUOTE].rstrip(), score, coverage))
    return _best(picks)


def _expected(query: str) -> re.Pattern[str] | None:
    """Pattern of the thing that an answer to this form of question usually holds."""
    if _asks("quantity").search(query):
        return _number()
    return _NAME if _asks("person").search(query) else None


@cache
def _question_words(kind: str) -> frozenset[str]:
    """Words of questions in all languages.

    ``quantity`` and ``person`` are patterns of what a question asks for, ``counts`` number words of an answer; the words
    of ``shape`` form a question and rarely stand in its answer.
    """
    listed = [table["questions"][kind] for table in language_tables().values() if "questions" in table]
    return frozenset(word for words in listed for word in (words.split() if isinstance(words, str) else words))


@cache
def _asks(kind: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(_question_words(kind))})\b", re.IGNORECASE)


@cache
def _number() -> re.Pattern[str]:
    return re.compile(rf"\d|\b(?:{'|'.join(_question_words('counts'))})\b")


def _is_quotable(sentence: _Sentence, text: str, *, is_only: bool) -> bool:
    """True if a sentence touches the question and states something: no heading, no question."""
    if not sentence.words and (not sentence.beside or text.startswith("|")):
        return False
    if len(text.split()) < LEAST_WORDS and text.isascii() and not is_only:
        return False
    return not text.rstrip(" \"')”").endswith("?")


def _sentences(request: JobRequest, parts: Sequence[SourcePart], query: frozenset[str]) -> list[_Sentence]:
    """All sentences of the prompt, with the query's words in them, beside them, and in their source's metadata."""
    sentences: list[_Sentence] = []
    for number, part in enumerate(parts, start=1):
        source = request.context[part.source_index]
        index = index_sentences(source.content)
        title = content_words(metadata_words(source.metadata)) & query if source.metadata else frozenset[str]()
        matches: list[set[str]] = [set() for _ in index.spans]
        for word, positions in index.postings(query).items():
            for position in positions:
                matches[position].add(word)
        for position, span in enumerate(index.spans):
            if part.start <= span.start and span.end <= part.end:
                beside = matches[max(0, position - 1)] | matches[min(len(matches) - 1, position + 1)]
                sentences.append(_Sentence(number, span, matches[position], beside, title))
    return sentences


def _weights(query: frozenset[str], sentences: Sequence[_Sentence]) -> dict[str, float]:
    """BM25's inverse frequency of each word of the query; an absent word weighs as much as the mean of the others.

    With its full weight, one word that the sources paraphrase would silence the answer.
    """
    weights = {}
    for word in query:
        frequency = sum(word in sentence.words for sentence in sentences)
        if frequency:
            weights[word] = 1 + math.log(1 + (len(sentences) - frequency + 0.5) / (frequency + 0.5))
    mean = sum(weights.values()) / len(weights) if weights else 1.0
    return {word: weights.get(word, mean) for word in query}


def _credit(sentence: _Sentence, weights: dict[str, float]) -> float:
    credit = 0.0
    for word, weight in weights.items():
        if word in sentence.words:
            credit += weight
        elif word in sentence.title:
            credit += weight * _TITLE
        elif word in sentence.beside:
            credit += weight * _NEIGHBOUR
    return credit


def _best(picks: list[Pick]) -> list[Pick]:
    ranked = sorted(picks, key=lambda pick: (-pick.score, pick.number, pick.span.start))
    fitting = [pick for pick in ranked if pick.coverage >= LEAST_COVERAGE]
    if not fitting:
        return []
    best: list[Pick] = []
    for pick in fitting:
        if pick.score < fitting[0].score * WITHIN_BEST or len(best) == MOST_SENTENCES:
            break
        if all(pick.text != other.text for other in best):
            best.append(pick)
    return best
