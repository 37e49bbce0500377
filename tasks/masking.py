"""Masks the secrets of this process in what is stored, logged or told of an error."""

from collections.abc import Iterable

import orjson

MASK = "[masked]"

_SHORTEST = 4
"""Characters of a text that is hidden: a shorter one is a part of many words, and no secret."""

_HIDDEN: list[str] = []
"""The longest first: one may be a part of another."""


def hide(secrets: Iterable[str]) -> None:
    """Masks these from now on, in this process and in those that it forks."""
    # As JSON, a quotation mark of a password is written otherwise.
    forms = {
        form for secret in secrets if len(secret) >= _SHORTEST for form in (secret, orjson.dumps(secret).decode()[1:-1])
    }
    _HIDDEN[:] = sorted(forms.union(_HIDDEN), key=len, reverse=True)


def masked(text: str) -> str:
    """The text without the secrets that are hidden."""
    for secret in _HIDDEN:
        text = text.replace(secret, MASK)
    return text


def words_of(error: BaseException) -> str:
    """An error that nobody raised on purpose, in words: its type and what it says."""
    return masked(f"{type(error).__name__}: {error}")
