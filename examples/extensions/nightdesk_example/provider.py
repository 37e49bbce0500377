"""A provider that needs no network: it quotes the first sentence of the first source."""

import re

from schemas.failure import FailureKind
from tasks.errors import ProviderError
from worker.providers.plugin import ModelCall, Reply

_FIRST = re.compile(r"<source 1[^>]*>\s*(.+?[.!?])(?=\s)")


class FirstSentence:
    """Quotes the first sentence of the first source, and cites it.

    Args:
        opening: words before the quotation, from ``options`` of the settings.
        api_key: of the variable that ``api_key_env`` of the settings names; this one needs none.
    """

    def __init__(self, opening: str = "", api_key: str | None = None) -> None:
        self.opening = opening
        self.api_key = api_key

    async def complete(self, call: ModelCall) -> Reply:
        """Makes the call once: a real provider would await its server here."""
        text = call.messages[-1]["content"]
        sentence = _FIRST.search(text)
        if sentence is None:
            # The kind tells what follows: OVERLOADED waits and tries again, INVALID_REQUEST goes to a fallback, or fails.
            raise ProviderError(FailureKind.INVALID_REQUEST, "found no sentence in the first source")
        return Reply(
            f"{self.opening}{sentence[1]} [1]", input_tokens=len(text) // 4, output_tokens=len(sentence[1]) // 4
        )
