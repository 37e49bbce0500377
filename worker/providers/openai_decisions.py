"""Calls OpenAI's Decisions API: a probability for each question about some messages, and no text."""

from dataclasses import replace
from typing import Any, ClassVar

import openai
import orjson

from schemas.completion import Completion, FinishReason
from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol, GenerationConfig
from schemas.job import JobRequest
from schemas.prompt import Prompt
from tasks.errors import ProviderError
from worker.providers.adapter import Adapter, Draft, Reading, Received, Target, messages_of, sampling_of
from worker.providers.openai import usage_of
from worker.providers.openai_sdk import build_client

MOST_QUESTIONS = 400
"""In one call (openai 3.54, ``decisions.create``)."""

_HAS_NOT = "the Decisions API has no such parameter"


class OpenAIDecisions(Adapter):
    """Asked as a judge alone, one ``predicate`` a question. It writes nothing: there is no output to limit or to pay for."""

    path = "/decisions"
    sdk: ClassVar[Any] = openai
    sdk_error: ClassVar[type[Exception]] = openai.OpenAIError

    def __init__(self, target: Target) -> None:
        self._tier = target.service_tier
        super().__init__(replace(target, service_tier=None), build_client(target), "openai-decisions")

    def protocol(self, config: GenerationConfig) -> AnswerProtocol:  # noqa: ARG002 - the port's signature
        """Always raises: no question of a job can be put to it."""
        raise self._only_judges()

    def _only_judges(self) -> ProviderError:
        problem = (
            "gives probabilities and writes no answers: name it as a judge (NIGHTDESK_JUDGE), and another provider here"
        )
        return self.failures.error(FailureKind.CONFIGURATION, problem)

    def draft(self, request: JobRequest, prompt: Prompt, model: str) -> Draft:
        """A body of ``decisions.create``; questions are named by their number, so that answers find them."""
        questions = prompt.snapshot.questions
        if not questions:
            raise self._only_judges()
        if len(questions) > MOST_QUESTIONS:
            problem = f"takes {MOST_QUESTIONS} questions a call, not {len(questions)}"
            raise self.failures.error(FailureKind.CONFIGURATION, problem)
        predicates = [
            {"type": "predicate", "name": str(number), "instructions": text}
            for number, text in enumerate(questions, start=1)
        ]
        messages = [{"type": "message", **message} for message in messages_of(request, prompt)]
        not_sent: dict[str, Any] = {
            **sampling_of(request.config),
            "reasoning_effort": request.config.reasoning_effort,
            "service_tier": self._tier,
        }
        return Draft(
            content={"input": messages, "questions": predicates},
            parameters={"model": model},
            dropped={name: _HAS_NOT for name, value in not_sent.items() if value is not None},
            notes={"questions": f"{len(questions)}, of the type predicate"},
        )

    def read(self, received: Received) -> Reading:
        """Converts the answers to the form of the port; a call with every question declined is a refusal."""
        value = received.value
        if value.get("error"):
            raise self.failures.in_answer(received.response, value)
        answers = value["answers"]
        if not isinstance(answers, list):
            raise TypeError("answers is no list")
        count = len(received.call.prompt.snapshot.questions)
        entries = [
            read
            for at, answer in enumerate(answers)
            if (number := _number(answer.get("name"), at, whole=len(answers) == count)) is not None
            and (read := _answer(number, answer)) is not None
        ]
        refused = bool(entries) and all("refused" in entry for entry in entries)
        return Reading(
            text=orjson.dumps({"answers": entries}).decode(),
            finish_reason=FinishReason.REFUSAL if refused else FinishReason.STOP,
            model=value.get("model"),
            usage=usage_of(value.get("usage")),
            refusal="declined every question" if refused else None,
        )

    def completion(self, received: Received, reading: Reading) -> Completion:
        """See ``Adapter.completion``; none of the forms of an answer was asked for."""
        completion = super().completion(received, reading)
        return completion.model_copy(update={"snapshot": completion.snapshot.model_copy(update={"protocol": None})})


def _number(name: object, at: int, *, whole: bool) -> int | None:
    """Question number of an answer: by its name, else by its position if every question has an answer."""
    if name is None:
        return at + 1 if whole else None
    return int(name) if isinstance(name, str) and name.isascii() and name.isdigit() else None


def _answer(number: int, answer: dict[str, Any]) -> dict[str, Any] | None:
    """Converts an answer to the form of the port; the reader checks that its figure is a probability."""
    match answer.get("type"):
        case "predicate":
            return {"question": number, "probability": answer.get("probability")}
        case "refusal":
            return {"question": number, "refused": True}
        case _:
            return None
