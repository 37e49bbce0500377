"""The prompt: rendered messages that refer to the request's sources, with a hash as proof."""

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from schemas.base import Contract
from schemas.generation import AnswerProtocol


class Role(StrEnum):
    """The speaker of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class TextPart(Contract):
    """Literal text of a message."""

    type: Literal["text"] = "text"
    text: str


class SourcePart(Contract):
    """A reference to a span ``[start, end)`` of one of the request's sources, in code points."""

    type: Literal["source"] = "source"
    source_index: Annotated[int, Field(ge=0)]
    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=0)]


class Message(Contract):
    """One message as a sequence of parts."""

    role: Role
    parts: tuple[Annotated[TextPart | SourcePart, Field(discriminator="type")], ...]

    def text(self, contents: Sequence[str]) -> str:
        """The exact text, with the text of each source span.

        Args:
            contents: the contents of the request's sources, by ``source_index``.
        """
        return "".join(
            part.text if isinstance(part, TextPart) else contents[part.source_index][part.start : part.end]
            for part in self.parts
        )


class LeftOutReason(StrEnum):
    """The reason that the prompt omits a source."""

    DUPLICATE = "duplicate"
    """It has the same words as another source."""
    NEAR_DUPLICATE = "near_duplicate"
    """It adds nothing to another source."""
    BUDGET = "budget"
    """``max_context_tokens`` was reached."""


class LeftOut(Contract):
    """A source that the prompt omits; ``of`` is the ``source_index`` of the source that it repeats."""

    source_index: Annotated[int, Field(ge=0)]
    reason: LeftOutReason
    of: Annotated[int, Field(ge=0)] | None = None


class Flag(StrEnum):
    """A kind of text that imitates the prompt or steers the model."""

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
    """A finding in a source of the prompt."""

    source_index: Annotated[int, Field(ge=0)]
    kind: Flag


class MessagesSnapshot(Contract):
    """The exact messages of a call, without repeating the sources; ``sha256`` proves them.

    ``shown`` maps the source number in the prompt (position + 1) to the ``source_index`` of the request. The tokens are
    those of the whole prompt and of its sources; ``counted_by`` names the tokenizer or ``estimate``. ``questions`` go
    beside the messages to a provider that returns a probability for each; the hash covers them.
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
        """Tells whether the messages with these sources are the messages of the call."""
        return hash_messages(self.texts(contents), self.questions) == self.sha256


def hash_messages(texts: Sequence[tuple[Role, str]], questions: Sequence[str] = ()) -> str:
    """SHA-256 (hex) over roles and texts, each after its length in bytes so that no two lists collide.

    Questions follow the messages like messages with the role ``question``.
    """
    digest = hashlib.sha256()
    entries = [(role.value, text) for role, text in texts] + [("question", text) for text in questions]
    for role, text in entries:
        for field in (role.encode(), text.encode()):
            digest.update(len(field).to_bytes(8, "big"))
            digest.update(field)
    return digest.hexdigest()


class Correction(Contract):
    """The reason for a second round, stored with the job for the next prompt and for the record.

    If the second round brings no improvement, the job returns to the first round; ``given_up`` is the reason.
    """

    purpose: Literal["reask", "correct"] = Field(description="the form was not met, or claims were not supported")
    problems: tuple[str, ...] = Field(default=(), description="problems of the first answer, each in a sentence")
    previous: str = Field(default="", description="raw text of the first answer")
    parsed: bool = Field(default=True, description="the first answer followed its protocol and was complete")
    violations: Annotated[int, Field(ge=0)] = Field(
        default=0, description="number of violations of the schema by its object"
    )
    supported: Annotated[int, Field(ge=0)] = Field(default=0, description="its claims with support")
    ungrounded: Annotated[int, Field(ge=0)] = Field(default=0, description="its claims without support")
    age_ms: Annotated[float, Field(ge=0)] = Field(
        default=0.0, description="the job's age at the start of the second round"
    )
    given_up: str | None = None


class Prompt(Contract):
    """A rendered prompt: the name and version of its template, and its messages."""

    name: str
    version: str
    template_sha256: str
    snapshot: MessagesSnapshot
    reply_schema: dict[str, Any] | None = Field(
        default=None,
        exclude=True,
        repr=False,
        description="schema of a JSON reply; only during the call, never stored",
    )
    pairs: tuple[str, ...] = Field(
        default=(), description="of a judge request: the SHA-256 of each claim with its evidence, in order"
    )
