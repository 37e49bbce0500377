"""Identifies the common front of the prompts of one configuration, so that providers can cache it."""

import hashlib
from dataclasses import dataclass

from schemas.prompt import Prompt, Role, TextPart
from tasks.prompting.sources.token_count import quarter_tokens

LEAST_CACHED = 1_024
"""Tokens; no provider caches a shorter prefix (OpenAI's prompt caching guide, and Anthropic's for its smallest limit;
Anthropic's newer models want 2,048 or 4,096 and ignore the mark below that, without a fee)."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The stable front of a prompt: a key that is equal for equal fronts, and its estimated tokens."""

    key: str
    tokens: int

    @property
    def pays(self) -> bool:
        """True if the prefix is long enough for a provider's cache."""
        return self.tokens >= LEAST_CACHED


def stable_prefix(prompt: Prompt) -> Prefix:
    """The system message, which is identical for all jobs with the same configuration and instructions.

    The key depends on no tenant, question or source; the instructions enter it only as a hash.
    """
    texts = [
        part.text
        for message in prompt.snapshot.messages
        if message.role is Role.SYSTEM
        for part in message.parts
        if isinstance(part, TextPart)
    ]
    text = "".join(texts)
    digest = hashlib.sha256(f"{prompt.template_sha256}\n{text}".encode(errors="surrogatepass"))
    return Prefix(f"nightdesk-{digest.hexdigest()[:32]}", quarter_tokens(text) // 4)
