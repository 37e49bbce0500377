"""What a model is shown: rendered messages that refer to the request's sources, and their proof by hash."""

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from schemas.base import Contract
from schemas.generation import AnswerProtocol


class Role(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class TextPart(Contract):
    """Literal text of a message."""

    type: Literal["text"] = "text"
    text: str


class SourcePart(Contract):
    """A span of one of the request's sources, referred to instead of repeated. ``[start, end)`` in code points."""

    type: Literal["source"] = "source"
    source_index: Annotated[int, Field(ge=0)]
    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=0)]


class Message(Contract):
    """One message in order of its parts."""

    role: Role
    parts: tuple[Annotated[TextPart | SourcePart, Field(discriminator="type")], ...]

    def text(self, contents: Sequence[str]) -> str:
        """The exact text, with the sources' spans put in.

        Args:
            contents: the contents of the request's sources, by ``source_index``.
        """
        return "".join(
            part.text if isinstance(part, TextPart) else contents[part.source_index][part.start : part.end]
            for part in self.parts
        )


class LeftOutReason(StrEnum):
    """Why a source was not shown."""

    DUPLICATE = "duplicate"
    """It says the same words as another."""
    NEAR_DUPLICATE = "near_duplicate"
    """It says nothing that another does not."""
    BUDGET = "budget"
    """``max_context_tokens`` was reached."""


class LeftOut(Contract):
    """A source that was given and not shown; ``of`` is the ``source_index`` of the shown one that it repeats."""

    source_index: Annotated[int, Field(ge=0)]
    reason: LeftOutReason
    of: Annotated[int, Field(ge=0)] | None = None


class Flag(StrEnum):
    """What a source holds that imitates the prompt or steers the model."""

    SOURCE_TAG = "source_tag"
    """A tag that opens or closes a source, also disguised."""
    TURN = "turn"
    """A line that speaks as the system or the assistant."""
    COMMAND = "command"
    """An order to disregard the instructions."""
    CHAT_TOKEN = "chat_token"  # noqa: S105 - no password
    """A special token of a chat template."""
    ANSWER = "answer"
    """JSON like that of an answer."""
    HIDDEN = "hidden"
    """Characters that hide or reorder text."""
    MARKER = "marker"
    """Numbers in brackets like those of citations; common in honest texts."""


class SourceFlag(Contract):
    """What was found in a shown source."""

    source_index: Annotated[int, Field(ge=0)]
    kind: Flag


class MessagesSnapshot(Contract):
    """The exact messages sent, storable without repeating the sources, proven by ``sha256``.

    ``shown`` maps the source number the model sees (position + 1) to the ``source_index`` of the request. Tokens are
    those of the whole prompt and of the sources in it, counted by the tokenizer named or by an ``estimate``.
    ``questions`` are sent beside the messages to a provider that gives a probability for each; the hash covers them.
    """

    messages: tuple[Message, ...]
    shown: tuple[int, ...]
    protocol: AnswerProtocol
    sha256: str
    questions: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    flags: tuple[SourceFlag, ...] = ()
    prompt_tokens: Annotated[int, Field(ge=0)] | None = None
    source_tokens: Annotated[int, Field(ge=0)] | None = None
    counted_by: str | None = None

    def texts(self, contents: Sequence[str]) -> list[tuple[Role, str]]:
        """Role and exact text of each message, in order."""
        return [(message.role, message.text(contents)) for message in self.messages]

    def proves(self, contents: Sequence[str]) -> bool:
        """Whether the messages put together from these sources are the ones that were sent."""
        return hash_messages(self.texts(contents), self.questions) == self.sha256


def hash_messages(texts: Sequence[tuple[Role, str]], questions: Sequence[str] = ()) -> str:
    """SHA-256 (hex) over roles and texts, each preceded by its length in bytes so that no two lists collide.

    Questions follow the messages, as if a role of that name had asked them.
    """
    digest = hashlib.sha256()
    spoken = [(role.value, text) for role, text in texts] + [("question", text) for text in questions]
    for role, text in spoken:
        for field in (role.encode(), text.encode()):
            digest.update(len(field).to_bytes(8, "big"))
            digest.update(field)
    return digest.hexdigest()


class Correction(Contract):
    """Why a job is asked again, kept with the job so that the next round can say so to the model and to the record.

    After a round that made nothing better the job goes back to the round before, with ``given_up`` saying why.
    """

    purpose: Literal["reask", "correct"] = Field(description="the form was not met, or claims were not supported")
    problems: tuple[str, ...] = Field(
        default=(), description="what is wrong with the answer before, each in a sentence"
    )
    previous: str = Field(default="", description="that answer as the model gave it")
    parsed: bool = Field(default=True, description="it was of its protocol, and whole")
    violations: Annotated[int, Field(ge=0)] = Field(default=0, description="where its object breaks its schema")
    supported: Annotated[int, Field(ge=0)] = Field(default=0, description="its claims with support")
    ungrounded: Annotated[int, Field(ge=0)] = Field(default=0, description="its claims without support")
    age_ms: Annotated[float, Field(ge=0)] = Field(default=0.0, description="the job's age when it was asked again")
    given_up: str | None = None


class Prompt(Contract):
    """A rendered prompt: which template in which version, and its messages."""

    name: str
    version: str
    template_sha256: str
    snapshot: MessagesSnapshot
    reply_schema: dict[str, Any] | None = Field(
        default=None,
        exclude=True,
        repr=False,
        description="of a reply in JSON; only while it is asked for, never stored",
    )
    pairs: tuple[str, ...] = Field(
        default=(), description="of a judge's question: the SHA-256 of each claim with its evidence, in their order"
    )
