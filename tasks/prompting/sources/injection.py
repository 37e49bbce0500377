"""Keeps text from outside from acting as a prompt: by slots in templates, by defused chat tokens, and by flags.

Every value from outside (the question, a source, a role) is a numbered slot while a template renders and replaces its slot
afterwards. A text can therefore neither run as template code nor forge a slot, a message or a source. Text in sources that
imitates the prompt or commands the model is found: a source may quote it for good reasons, so no text is removed and no
source is refused, but the record and a warning name each finding.
"""
# ruff: noqa: RUF001 - full-width and invisible characters are meant

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

import orjson

from schemas.base import share_field_names
from schemas.model_call import Flag, Message, Role, SourceFlag, SourcePart, TextPart
from tasks.errors import InputError
from tasks.prompting.templates import PromptTemplate, place_of
from tasks.text.sentences import in_one_form
from tasks.text.word_search import WordSearch

_INVISIBLE = "\u00ad\u180e\u200b\u2060\u2061\u2062\u2063\u2064\ufeff"
_BIDI = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_HIDING = "\u202d\u202e\u2066"
"""Characters that reorder text, without the direction marks that scripts need."""
_SPLITTING = "\u200b\u2060"
"""Places for line breaks, which web pages and PDFs are full of; suspect where they split what is suspect itself, or carry a text."""
_CARRIED = re.compile("[\u200b-\u200d\u2060-\u2064\ufeff]{8}")
"""As many in a row as a letter takes that is written in them."""
_ALL_INVISIBLE = _INVISIBLE + _BIDI + "\u200c\u200d"
_HIDES = WordSearch(*_HIDING)
_SPLITS = WordSearch(*_SPLITTING)
_BREAKS = WordSearch(*_ALL_INVISIBLE)
_WIDENS = WordSearch(*"ａｅｉｏＡＥＩＯ")
"""Every Latin word of a command or a chat role contains one of these if it is written in full width."""
_MAY_BE_LESS = WordSearch("&lt", "&#")
_SOURCE_TAG = re.compile(r"<[\s/]*sources?\d*\b")
_TURN = re.compile(
    r"(?:^|\n)[ \t#*\[({<|/_-]{0,8}(?:system(?: (?:prompt|message|note|override))?|assistant)\s{0,2}[\])}>|*_]{0,3}:"
    r"|[<\[{(]{1,2}/?\|?(?:system|assistant)\|?[>\]})]{1,2}"
)
_COMMAND = re.compile(
    r"\b(?:ignore|disregard|forget|overrid\w+)\b[^.!?\n]{0,30}\b(?:previous|above|prior|earlier|preceding|all|any|your"
    r"|system|these|those|other|foregoing)\b[^.!?\n]{0,30}\b(?:instructions?|prompts?|rules?|directions?|guidelines?"
    r"|sources?|messages?|context)\b"
    r"|\b(?:new|updated|real) (?:system )?instructions:"
    r"|\byou are now\b"
    r"|\b(?:ignorier\w*|vergiss)\b[^.!?\n]{0,40}\b(?:anweisung\w*|instruktion\w*|vorgaben|regeln"
    r"|quellen)\b"
    r"|\b(?:ignor[ae]\w*|olvid[ae]\w*)\b[^.!?\n]{0,40}\b(?:instruccion\w*|órdenes|reglas|indicaciones|fuentes)\b"
    r"|(?:忽略|无视|無視|忽視|忘记|忘記|不要理会)[^。！？\n]{0,15}(?:指令|指示|提示|规则|規則|来源|來源|说明|說明)"
    r"|(?:تجاهل|انس|أهمل|اهمل|تجاوز)[^.!؟\n]{0,40}(?:التعليمات|تعليمات|الأوامر|القواعد|المصادر|التوجيهات)",
)
_COMMAND_WORDS = (
    "ignor", "disregard", "forget ", "overrid", "vergiss", "olvid", "you are now", "instructions:",
)  # fmt: skip
_FOREIGN_COMMAND_WORDS = (
    "忽略", "无视", "無視", "忽視", "忘记", "忘記", "不要理会", "تجاهل", "انس", "همل", "تجاوز",
)  # fmt: skip
"""Every command contains one of them. Searching for words is ten times faster than for the pattern."""
_TURN_WORDS = ("system", "assistant")
_BEFORE, _AFTER = 20, 120
"""Characters around such a word in which the pattern must match."""
_LONGEST_ATTRIBUTE = 200
"""Characters."""
_CHAT_TOKEN = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|\[/?INST\]|<</?SYS>>|</?s>|<(?:start|end)_of_turn>|<(?:bos|eos|unk|pad)>|<｜[^｜<>\n]{1,40}｜>",
    re.IGNORECASE,
)
_ANSWER = re.compile(r"\"segments\"\s*:")
_MARKER = re.compile(r"\[\^?(?:source |quelle )?\d{1,3}\]|【\d{1,3}")


_Look = Callable[[str, str], bool]
_Check = tuple[Flag, _Look, Callable[[str], bool]]


def flags(contents: Mapping[int, str], search_texts: Mapping[int, str]) -> tuple[SourceFlag, ...]:
    """Flags for text that imitates the prompt, by source in the order of the prompt.

    Args:
        contents: contents by source index.
        search_texts: the same in lower case, with ``?`` for each character beyond ASCII.
    """
    # Nearly all jobs have no such text, so one search over all texts together comes first.
    foreign = "\n".join([text for text in contents.values() if not text.isascii()])
    plain = "\n".join([search_texts[index] for index in contents])
    hidden = foreign != "" and (_is_hidden(foreign) or _SPLITS(foreign))
    disguised = foreign != "" and (_BREAKS(foreign) or _WIDENS(foreign))
    if disguised:
        # Invisible characters may split words, or the letters may be in full width.
        foreign = _plain_form(foreign)
        plain += foreign
    suspects: list[_Check] = [check for check in _CHECKS if check[1](plain, foreign)]
    if disguised:
        # Every source gets the exact check.
        suspects = [(kind, _always, check) for kind, _, check in suspects]
    result: list[SourceFlag] = []
    for index, text in contents.items() if suspects or hidden else ():
        kinds = list(_kinds(text, search_texts[index], suspects))
        # Brackets with numbers are in many honest texts.
        if hidden and (_is_hidden(text) or ({*kinds} - {Flag.MARKER} and _SPLITS(text))):
            kinds.append(Flag.HIDDEN)
        result += [SourceFlag(source_index=index, kind=kind) for kind in kinds]
    return tuple(result)


def _kinds(text: str, plain: str, suspects: Iterable[_Check]) -> Iterator[Flag]:
    """The kinds of suspect text in one source; ``plain`` is its search text."""
    foreign = "" if text.isascii() else text
    read = ""
    for kind, looks, check in suspects:
        if looks(plain, foreign):
            read = read or (_plain_form(foreign) if foreign else plain)
            if check(read):
                yield kind


def _always(_plain: str, _foreign: str) -> bool:
    return True


def may_hold_tag(text: str) -> bool:
    """A cheap test that is true for every text with a tag, disguised or not, and for some texts without."""
    return "<" in text or ("&" in text and _MAY_BE_LESS(text)) or (not text.isascii() and "＜" in text)


def _holds_tag(text: str) -> bool:
    return may_hold_tag(text) and _SOURCE_TAG.search(undisguise(text)) is not None


def undisguise(text: str) -> str:
    """A text in lower case without disguise: entities resolved, full-width forms plain, invisible characters removed."""
    if "&" in text:
        text = html.unescape(text)
    if not text.isascii():
        text = in_one_form(_visible(text))
    return text.lower()


def unused_tag(name: str, texts: Iterable[str]) -> str:
    """A tag name that no text contains, disguised or not, so that no text can forge a tag: the name, or numbered."""
    everything = "\n".join(texts)
    if not may_hold_tag(everything):
        return name
    everything = undisguise(everything)
    numbers = set(re.findall(rf"<[\s/]*{name}([0-9]*)", everything))
    if not numbers:
        return name
    # A tag also stands at the beginning of a longer number.
    prefixes = {number[:length] for number in numbers for length in range(1, min(len(number), _MOST_DIGITS) + 1)}
    return next(f"{name}{attempt}" for attempt in count(2) if str(attempt) not in prefixes)


_MOST_DIGITS = 9
"""Digits of the number of a tag; no text holds so many tags that one more is needed."""


def attribute(text: str) -> str:
    """A text as an attribute's value: on one line, truncated, without characters that can end the value or the tag."""
    return " ".join(text.split())[:_LONGEST_ATTRIBUTE].translate(_ATTRIBUTE)


_ATTRIBUTE = str.maketrans({'"': "'", "<": "(", ">": ")"})


def _visible(text: str) -> str:
    """The text without invisible characters."""
    if text.isascii():
        return text
    # One ``str.translate`` takes ten times as long.
    for mark in _ALL_INVISIBLE:
        if mark in text:
            text = text.replace(mark, "")
    return text


def _plain_form(text: str) -> str:
    """A text in lower case without invisible characters, followed by its plain form if it has full-width letters."""
    text = _visible(text)
    return (f"{text}\n{in_one_form(text)}" if _WIDENS(text) else text).lower()


def _is_hidden(text: str) -> bool:
    if _HIDES(text) or (_SPLITS(text) and _CARRIED.search(text)):
        return True
    # The invisible letters of the block Tags share the first bytes of their UTF-8; a search for one byte is faster.
    encoded = text.encode(errors="surrogatepass")
    return b"\xf3" in encoded and b"\xf3\xa0" in encoded


def _near(words: Sequence[str], pattern: re.Pattern[str], text: str) -> bool:
    """Tells whether a pattern matches around one of the words."""
    for word in words:
        start = text.find(word)
        while start >= 0:
            # Words close together have one search: a text of nothing else would be read a dozen times.
            last, following = start, text.find(word, start + 1)
            while last < following < last + _AFTER:
                last, following = following, text.find(word, following + 1)
            if pattern.search(text, max(0, start - _BEFORE), last + _AFTER):
                return True
            start = following
    return False


def _commands(text: str) -> bool:
    words = _COMMAND_WORDS if text.isascii() else _COMMAND_WORDS + _FOREIGN_COMMAND_WORDS
    return _near(words, _COMMAND, text)


def _takes_turn(text: str) -> bool:
    return _near(_TURN_WORDS, _TURN, text)


_LOOKS_COMMANDING = WordSearch(*_COMMAND_WORDS)
_LOOKS_COMMANDING_ABROAD = WordSearch(*_FOREIGN_COMMAND_WORDS)
_LOOKS_LIKE_TURN = WordSearch(
    patterns=(
        r"(?:system|assistant)(?: prompt| message| note| override)?[\s\x1c-\x1f?]{0,2}[\])}>|*_]{0,3}:",
        r"[<\[{(]{1,2}/?\|?(?:system|assistant)\|?[>\]})]{1,2}",
    )
)
"""The part of ``_TURN`` from its word on, with ``?`` for white space beyond ASCII."""
_LOOKS_LIKE_ANSWER = WordSearch('"segments"')

_CHECKS: tuple[_Check, ...] = (
    (Flag.SOURCE_TAG, lambda plain, foreign: may_hold_tag(plain) or "＜" in foreign, _holds_tag),
    (Flag.TURN, lambda plain, _: _LOOKS_LIKE_TURN(plain), _takes_turn),
    (
        Flag.COMMAND,
        lambda plain, foreign: _LOOKS_COMMANDING(plain) or _LOOKS_COMMANDING_ABROAD(foreign),
        _commands,
    ),
    (
        Flag.CHAT_TOKEN,
        lambda plain, _: "<" in plain or ("[" in plain and "inst]" in plain),
        lambda text: _CHAT_TOKEN.search(text) is not None,
    ),
    (Flag.ANSWER, lambda plain, _: _LOOKS_LIKE_ANSWER(plain), lambda text: _ANSWER.search(text) is not None),
    (
        Flag.MARKER,
        lambda plain, foreign: "[" in plain or "【" in foreign,
        lambda text: _MARKER.search(text) is not None,
    ),
)
"""Kind; a cheap test on the ASCII form and on the texts beyond ASCII, true if the check may be true; the check."""


# ---- defusing --------------------------------------------------------------------------------------------------

WORD_JOINER = "\u2060"
"""An invisible character that splits a chat token, so that no server's tokenizer treats it as the end of a turn."""


def chat_tokens(text: str) -> list[int]:
    """The positions, one inside each chat token of a text, at which a ``WORD_JOINER`` disables it."""
    if "<" not in text and "[" not in text:
        return []
    return [match.start() + 1 for match in _CHAT_TOKEN.finditer(text)]


def defuse(text: str) -> str:
    """A text with its chat tokens disabled."""
    for place in reversed(chat_tokens(text)):
        text = text[:place] + WORD_JOINER + text[place:]
    return text


# ---- slots -----------------------------------------------------------------------------------------------------

_MARK = re.compile("\x00(\\w+)\x00")
_ROLES = tuple(role.value for role in Role)


class Slots:
    """The values that replace the numbered slots after rendering.

    Args:
        filtered: a function for each text value, such as defusing; None: no change.
    """

    def __init__(self, filtered: Callable[[str], str] | None = None) -> None:
        self.values: list[Any] = []
        self._filtered = filtered

    def add(self, value: Any) -> str:
        """Adds a value and returns the mark of its slot; an empty or missing value gives an empty string."""
        if value is None or value == "":
            return ""
        if self._filtered is not None and isinstance(value, str):
            value = self._filtered(value)
        self.values.append(value)
        return f"\x00{len(self.values) - 1}\x00"


def fill(template: PromptTemplate, slots: Slots, variables: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """Renders a template into messages as (role, pieces); a piece is literal text or a slot's value.

    The template opens a message with ``message("system")`` or ``message("user")``; white space around it is dropped.
    """
    laid_out = _lay_out(template, orjson.dumps(variables))
    return [
        (role, _strip([slots.values[piece] if isinstance(piece, int) else piece for piece in pieces]))
        for role, pieces in laid_out
    ]


def as_message(role: str, pieces: Iterable[str | SourcePart]) -> Message:
    """A message of texts and sources, with adjacent texts as one part."""
    parts: list[TextPart | SourcePart] = []
    texts: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            texts.append(piece)
            continue
        if texts:
            parts.append(_text_part("".join(texts)))
            texts = []
        parts.append(piece)
    if texts:
        parts.append(_text_part("".join(texts)))
    return share_field_names(Message(role=Role(role), parts=tuple(parts)))


MOST_SHARED = 2_000
"""Characters of a part that prompts share."""


def _text_part(text: str) -> TextPart:
    """A part of literal text, one object for the prompts that have the same: most texts are those of the template."""
    return _shared_text_part(text) if len(text) <= MOST_SHARED else TextPart(text=text)


@lru_cache(maxsize=512)
def _shared_text_part(text: str) -> TextPart:
    return share_field_names(TextPart(text=text))


@lru_cache(maxsize=512)
def _lay_out(template: PromptTemplate, variables: bytes) -> tuple[tuple[str, tuple[str | int, ...]], ...]:
    """The messages as (role, pieces); a piece is literal text or the number of a slot.

    The result contains no value from outside, only marks, so that the jobs of one configuration share it: the engine
    takes some 70 us of the 100 that a prompt's messages take.
    """
    try:
        text = template.compiled.render(orjson.loads(variables), message=_open_role if template.own else _open)
    except Exception as error:
        # A template is an operator's own: an expression of it may raise anything.
        raise InputError(f"{place_of(error)}: {error}") from error
    messages: list[tuple[str, list[str | int]]] = []
    for position, piece in enumerate(_MARK.split(text)):
        if position % 2 == 0:
            if messages and piece:
                messages[-1][1].append(piece)
        elif piece.isdigit():
            if not messages:
                raise InputError(
                    f'{template.path} opens no message before a value: begin it with {{{{ message("system") }}}}'
                )
            messages[-1][1].append(int(piece))
        else:
            messages.append((piece, []))
    return tuple((role, tuple(pieces)) for role, pieces in messages)


def _open(role: str) -> str:
    return f"\x00{role}\x00"


def _open_role(role: str) -> str:
    """Opens a message of a template that is not ours, and so may name a role that there is not."""
    if role not in _ROLES:
        raise ValueError(f"message() takes one of {', '.join(_ROLES)}, not {role!r}")
    return _open(role)


def _strip(pieces: list[Any]) -> list[Any]:
    if pieces and isinstance(pieces[0], str):
        pieces[0] = pieces[0].lstrip()
    if pieces and isinstance(pieces[-1], str):
        pieces[-1] = pieces[-1].rstrip()
    return [piece for piece in pieces if piece != ""]
