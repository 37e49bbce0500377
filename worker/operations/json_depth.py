"""Measures how deep the lists and objects of a JSON text are nested, piece by piece as it is read."""

import re

MOST_DEEP = 100
"""Of lists and objects in each other."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|("[^"\\]*+(?:\\.[^"\\]*+)*+\\?\Z)', re.DOTALL)
"""A string; its group one that does not end in this piece."""

_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class TooDeep(Exception):
    """The nesting is deeper than is taken."""


class DepthMeter:
    """The depth at the end of what was read so far."""

    def __init__(self) -> None:
        self._depth = 0
        self._open = b""
        """The beginning of a string that the last piece did not end, as far as it matters."""

    def add(self, piece: bytes) -> None:
        """Reads the next piece; raises ``TooDeep``."""
        if not piece:
            return
        plain, quote, rest = _STRING.sub(rb"\1", self._open + piece).partition(b'"')
        escape = (len(rest) - len(rest.rstrip(b"\\"))) % 2
        self._open = quote + b"\\" * escape
        brackets = plain.translate(None, _ALL_BUT_BRACKETS)
        opened = brackets.count(b"[") + brackets.count(b"{")
        if self._depth + opened <= MOST_DEEP:
            self._depth += 2 * opened - len(brackets)
            return
        for bracket in brackets:
            self._depth += 1 if bracket in b"[{" else -1
            if self._depth > MOST_DEEP:
                raise TooDeep
