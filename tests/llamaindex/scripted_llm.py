"""An LLM of LlamaIndex with a script: it answers, fails or is slow."""

import threading
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.llms.mock import MockLLM


class ScriptedLLM(MockLLM):
    """Answers ``answer`` with ``raw`` beside it after ``slow_s`` seconds, or raises ``error``."""

    answer: str = ""
    raw: Any = None
    error: Any = None
    slow_s: float = 0.0

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        for name, value in fields.items():
            setattr(self, name, value)

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        if self.error is not None:
            raise self.error
        if self.slow_s:
            threading.Event().wait(self.slow_s)
        return ChatResponse(message=ChatMessage(role="assistant", content=self.answer), raw=self.raw)
