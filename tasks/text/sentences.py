"""Splits text into sentences, a source into passages, and either into normalised words, with exact offsets."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from sentencex import get_sentence_boundaries

from tasks.text.language import word_set
from tasks.text.numbers import number


class Span(NamedTuple):
    """A half-open range ``[start, end)`` of Unicode code points."""

    start: int
    end: int


Passage = tuple[int, int]
"""The range of a passage as a plain tuple: a job has hundreds, and each `Span` takes a fifth of a microsecond more."""


# ---- sentences -------------------------------------------------------------------------------------------------

_LIST_MARKER = r"(?:[-*+•‣◦·–—]|\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,4})[.)])"
_STARTS_BLOCK = re.compile(rf"{_LIST_MARKER}[ \t]|\||#{{1,6}}[ \t]|```|={{3,}}|-{{3,}}")
_ENDS_BLOCK = re.compile(r"\||#{1,6}[ \t]|```|={3,}|-{3,}")
_CLOSERS = "\"'”’»)]*_"
_TERMINAL = frozenset(".!?…:;|。！？：；؟؛۔।")
FILLED_LINE = 60
"""Least characters of a wrapped line; a shorter line without closing punctuation is a sentence by itself."""

_UNREADABLE = re.compile(r"[\ud800-\udfff]|[^\S\x00-\x7f](?=\.)")
"""Characters that break ``sentencex``: surrogates, and a wide space between a single letter and a full stop."""
_MAY_SPLIT = re.compile(r"[.!?…][\"'“”’»)\]*_]*(?:\s|[\[(【¹²³⁰⁴-⁹A-Z])|[。！？؟।۔]")
_ONLY_MARKER = re.compile(
    rf"(?:(?:[-*+•>]|#{{1,6}})[ \t])?[*_]{{0,2}}(?:{_LIST_MARKER}|\d{{1,3}}(?:\.\d{{1,3}}){{1,3}}\.|(?:\[\d{{1,3}}\])+\.|#{{1,6}})\Z"
)
_LONGEST_MARKER = 16
"""Characters of a list marker, with the marks of a heading before it."""
_LONGEST_ABBREVIATION = 4
"""Characters; a full stop after a word up to this length ends no sentence if a lower-case letter follows."""
_OPENS_MARKER = frozenset("[【¹²³⁰⁴⁵⁶⁷⁸⁹")
_MARKERS = (
    r"(?:\s*+(?:(?:\[\^?(?:sources?|src|quellen?)?\s*#?\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*\]|【\d{1,3}[^】]{0,20}】)(?!\()\s*+)+"
    r"|\s*+[¹²³⁰⁴-⁹]+(?:[,\s]?[¹²³⁰⁴-⁹]+)*)"
)
_LEADING_MARKERS = re.compile(_MARKERS, re.IGNORECASE)
_STOPS = frozenset(".!?…")
_MISSED = re.compile(
    rf"[.!?](?:(?=(?i:{_MARKERS})\s*+[(\"“„«]?[A-ZÀ-ÖØ-Þ\d(])|\s++(?=[(\"“„«]?(?:[A-ZÀ-ÖØ-Þ(][\w)]|[AI]\s[a-z])))"
    r"|[。！？](?=\d)"
)
_CLOSES_MARKER = frozenset("]】¹²³⁰⁴⁵⁶⁷⁸⁹")
_CITED_STOP = re.compile(r"[\]】¹²³⁰⁴-⁹][.!?…]++\s++(?=\S)")
_CITED_TEXT = re.compile(rf"[^\s\]】¹²³⁰⁴-⁹]{_MARKERS}\Z", re.IGNORECASE)
_MARKER_REACHES = (16, 200)
"""Characters among which the citation markers at the end of a sentence are looked for: mostly, and at most."""


_LONGEST_PART = 4_000
"""Characters per call of the library."""
_LONGEST_BRACKET = 1_000
"""Characters; an opening bracket or quotation mark without its partner within this length is a typing error."""


def sentence_spans(text: str, language: str = "en") -> list[Span]:
    """Finds the sentences of a text.

    Each line of a list, a table or a heading is a sentence; wrapped lines are joined. A citation marker directly after
    a full stop belongs to the sentence before it; a list marker belongs to its item.

    Args:
        text: any text.
        language: ISO 639-1 code, for the abbreviations of ``sentencex``; an unsupported code counts as English.

    Returns: spans in order, without overlap, each without surrounding white space and never empty.
    """
    spans: list[Span] = []
    for block in _blocks(text):
        spans.extend(_sentences_of_block(text, block, language))
    return spans


@lru_cache(maxsize=512)
def _short_sentences(text: str, language: str) -> tuple[Span, ...]:
    return tuple(sentence_spans(text, language))


def cached_sentences(text: str, language: str = "en") -> Sequence[Span]:
    """The sentences of a part of an answer, or of a paragraph; cached, because they are cut again where they are located, or cited."""
    return _short_sentences(text, language) if len(text) <= _LONGEST_CACHED else sentence_spans(text, language)


_LONGEST_CACHED = 8_000


def _blocks(text: str) -> Iterator[Span]:
    """Runs of lines that may form running text, trimmed; a line of a list or a table is a run by itself."""
    start = end = position = 0
    previous = ""
    for raw in text.splitlines(keepends=True):
        line = raw.strip()
        if previous and (not line or _stands_apart(previous, line)):
            yield Span(start, end)
            previous = ""
        if line:
            line_start = position + raw.index(line[0])
            start = start if previous else line_start
            end = line_start + len(line)
            previous = line
        position += len(raw)
    if previous:
        yield Span(start, end)


def _stands_apart(line: str, following: str) -> bool:
    """Tells whether the break between two stripped lines ends a sentence."""
    first = following[0]
    if not line[0].isalnum() and _ENDS_BLOCK.match(line):
        return True
    if (len(following) < 2 or following[1] in " \t.)|#-=`" or not first.isalpha()) and _STARTS_BLOCK.match(following):  # noqa: PLR2004 - "a)"
        return True
    if first.islower():
        return False
    return len(line) < FILLED_LINE or line.rstrip(_CLOSERS)[-1:] in _TERMINAL


def _sentences_of_block(text: str, span: Span, language: str) -> list[Span]:
    block = text[span.start : span.end]
    if not _MAY_SPLIT.search(block):
        return [span]
    boundaries = _library_cuts(block, language)
    boundaries += _missed_cuts(block, boundaries)
    boundaries += _cited_ends(block, boundaries)
    spans = []
    position = 0
    for boundary in [*sorted(boundaries), len(block)]:
        end = _behind_markers(block, boundary)
        piece = block[position:end].strip()
        if end <= position or not piece:
            continue
        if end < len(block) and _is_wrong(piece, block[end : end + 12].lstrip()):
            continue
        start = span.start + block.index(piece[0], position)
        spans.append(Span(start, start + len(piece)))
        position = end
    return spans


def _library_cuts(block: str, language: str) -> list[int]:
    """Sentence ends by ``sentencex``, without the end of the block.

    Long text is split into parts: beyond ASCII, the library's time grows with the square of the length.
    """
    cuts: list[int] = []
    start = 0
    while start < len(block):
        end = start + _LONGEST_PART
        if end < len(block):
            ends = [match.end() for match in _MAY_SPLIT.finditer(block, start + _LONGEST_PART // 2, end)]
            end = ends[-1] if ends else end
        part = block[start:end]
        # The end of a part is a sentence end only if a mark is there.
        boundaries = [start + boundary["end_index"] for boundary in get_sentence_boundaries(language, _encodable(part))]
        cuts.extend(boundaries if _MAY_SPLIT.search(part[-2:]) else boundaries[:-1])
        start = end
    return [position for position in cuts if position < len(block)]


def _encodable(text: str) -> str:
    """The text with each character that the library cannot read replaced by one that it can."""
    return text if text.isascii() else _UNREADABLE.sub(lambda match: _REPLACEMENT[match.group().isspace()], text)


_REPLACEMENT = ("\ufffd", " ")


def _missed_cuts(block: str, cuts: Sequence[int]) -> list[int]:
    """Sentence ends that the library misses."""
    boundaries = set(cuts)
    missed: list[int] = []
    position = start = 0
    for match in _MISSED.finditer(block):
        while position < len(cuts) and cuts[position] < match.end():
            start = max(start, cuts[position])
            position += 1
        if match.end() not in boundaries and _may_end(block[start : match.start()]):
            missed.append(match.end())
            start = match.end()
    return missed


def _cited_ends(block: str, cuts: Sequence[int]) -> list[int]:
    """Sentence ends behind citation markers that the library misses: a mark after markers ends a sentence, whatever follows."""
    ends = frozenset(cuts)
    return [
        match.end()
        for match in _CITED_STOP.finditer(block)
        if match.end() not in ends and _is_cited(block, match.start() + 1)
    ]


def _is_cited(text: str, end: int) -> bool:
    """Tells whether citation markers end at a position of a text, behind something that it states."""
    if text[end - 1 : end] not in _CLOSES_MARKER:
        return False
    return any(_CITED_TEXT.search(text, max(0, end - reach), end) for reach in _MARKER_REACHES)


def _may_end(before: str) -> bool:
    """Tells whether a full stop is outside brackets and quotation marks and does not follow an initial."""
    if len(before) > _LONGEST_BRACKET:
        return True
    if not before.strip() or _is_initial(before):
        return False
    return is_outside(before)


_OPENING = {"(": ")", "[": "]", "“": "”", "«": "»", "（": "）", "「": "」"}


def is_outside(before: str) -> bool:
    """Tells whether a place is outside brackets and quotation marks."""
    if before.count('"') % 2:
        return False
    if "„" in before:
        return before.count("„") <= before.count("“") + before.count("”")
    return all(before.count(opening) <= before.count(closing) for opening, closing in _OPENING.items())


def _behind_markers(block: str, position: int) -> int:
    """The end of the citation markers that follow a position, and of the mark behind them; else the position itself.

    ``6 p.m. [1].`` has a mark there: no sentence ends before a full stop.
    """
    end = position
    following = block[position : position + 4].lstrip()
    if following[:1] in _OPENS_MARKER and (markers := _LEADING_MARKERS.match(block, position)):
        end = markers.end()
    while end < len(block) and block[end] in _STOPS:
        end += 1
    return end


def _is_wrong(piece: str, after: str) -> bool:
    """Tells whether a sentence end is wrong: only a list marker precedes it, or the stop closes an abbreviation."""
    if piece[-1] != ".":
        return len(piece) < _LONGEST_MARKER and bool(_ONLY_MARKER.match(piece))
    if _is_cited(piece, len(piece.rstrip(".!?…"))):
        return False
    last = piece.rsplit(None, 1)[-1].strip("([§.").lower()
    if never_ends_sentence(last) or (after[:1].isdigit() and last in word_set("number_abbreviations")):
        return True
    if len(last) <= _LONGEST_ABBREVIATION and after[:1].islower():
        return True
    if last.isdigit() and len(last) <= 2 and month_pattern().match(after):  # noqa: PLR2004 - a day of the month
        return True
    return len(piece) < _LONGEST_MARKER and bool(_ONLY_MARKER.match(piece))


def never_ends_sentence(word: str) -> bool:
    """True for an abbreviation that occurs inside a sentence: ``e.g``, ``Dr``."""
    return word in word_set("inner_abbreviations")


@cache
def month_pattern() -> re.Pattern[str]:
    """A month after the full stop of its day; only German writes one there."""
    return re.compile(rf"(?:{'|'.join(word_set('months'))})[a-zäé]*\b")


# ---- words -----------------------------------------------------------------------------------------------------

BREAK = "\x01"
"""Separator of spans in ``words_of_spans``; a control character that is no white space for ``str.split``."""
_ASCII_WORD = re.compile(r"[a-z]+|\x01|\d+(?:[.,']\d+)*")
_WORD = re.compile(r"[^\W\d_]+|\x01|\d+(?:[.,'’]\d+)*")
_JOINING = frozenset(map(chr, range(0x300, 0x370))) | {"\u00ad", "\u200b", "\u200c", "\u200d"}
"""Combining marks and invisible characters inside words."""
_DIGIT = re.compile(r"\d")
_ARABIC = re.compile("[\u0600-\u06ff]")
_PLAIN_ARABIC = str.maketrans(
    {
        **dict.fromkeys([*range(0x610, 0x61B), *range(0x64B, 0x660), 0x640, 0x670, *range(0x6D6, 0x6EE)]),
        **dict.fromkeys(map(ord, "\u0622\u0623\u0625\u0671"), "\u0627"),
        0x649: "\u064a",
        **{0x660 + digit: str(digit) for digit in range(10)},
        **{0x6F0 + digit: str(digit) for digit in range(10)},
        0x66A: "%",
        0x66B: ".",
        0x66C: ",",
    }
)
"""Removes vowel marks and the stretching stroke, unifies the alefs and the two forms of final yeh, and turns digits
into ASCII."""
_ARABIC_ARTICLE = re.compile(
    "[\u0648\u0641]?(?:[\u0628\u0643]\u0627\u0644|\u0644\u0644)(?=...)|[\u0648\u0641]\u0627\u0644(?=...)|\u0627\u0644(?=..)"
)
"""The article, alone or joined with a conjunction or preposition (al-, wal-, bil-, kal-, lil-)."""
_SPACED_THOUSANDS = re.compile(r"(?<=\d)[\u00a0\u202f\u2009](?=\d{3}(?!\d))")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]+"
)
"""Scripts written without spaces: Thai, Lao, Burmese, Khmer, kana, Han."""


def words(text: str) -> list[str]:
    """The words of a text in order: case-folded, compatibility-normalised, numbers in one spelling.

    Scripts without spaces give character bigrams; Arabic loses its vowel marks and its article. ``1,200.50``,
    ``1'200.5`` and ``1.200,50`` are all ``1200.5``; ``1.200`` is ambiguous and stays a decimal.
    """
    tokens = _tokens(text.replace(BREAK, " "))
    if not _DIGIT.search(text):
        return tokens
    return [number(word) if "0" <= word[0] <= "9" else word for word in tokens]


def plain_arabic(text: str) -> str:
    """Arabic without vowel marks, with one form of each variable letter and with ASCII digits."""
    return text if text.isascii() else text.translate(_PLAIN_ARABIC)


def words_of_spans(text: str, spans: Sequence[Passage]) -> list[str]:
    """The words of the spans of a text in one pass, with the numbers as they are written and ``BREAK`` between spans."""
    return _tokens(_join(text, spans))


def latin_of_spans(text: str, spans: Sequence[Passage]) -> bytes | None:
    """The spans of a text in Latin-1, folded, with ``BREAK`` between them; None if a letter or digit does not fit."""
    return _as_latin(_join(text, spans))


def _join(text: str, spans: Sequence[Passage]) -> str:
    if BREAK in text:
        text = text.replace(BREAK, " ")
    return _SPACED_BREAK.join([text[start:end] for start, end in spans])


def letters_of(latin: bytes) -> bytes:
    """The words of ``latin_of_spans``: all else but ``BREAK`` is a space."""
    return latin.translate(_ONLY_LETTERS)


def number_tokens(latin: bytes) -> list[bytes]:
    """The runs of digits and marks within numbers of ``latin_of_spans``, and each ``BREAK``."""
    # Cutting the text at all other characters is faster than a search for numbers.
    return latin.translate(_ONLY_NUMBERS).split()


def numbers_of_token(token: str) -> tuple[str, ...]:
    """The numbers in a token of digits and marks: mostly one, none in a lone mark."""
    return (BREAK,) if token == BREAK else tuple(_RAW_NUMBER.findall(token))


def _as_latin(text: str) -> bytes | None:
    """The text in Latin-1, folded like in ``_tokens``; None if a letter or digit does not fit into Latin-1."""
    if text.isascii():
        return text.encode("ascii")
    text = _with_plain_marks(text)
    if not is_plain_latin(text) and _is_foreign(text):
        text = in_one_form(text).casefold()
        if any(character > "\xff" and character.isalnum() for character in _not_ascii(text)):
            return None
    return text.encode("latin-1", "replace")


def is_plain_latin(text: str) -> bool:
    """Tells whether a text has only such characters that Unicode's forms leave its letters as they are."""
    return text.isascii() or _not_ascii(text) <= _PLAIN_LATIN


_PLAIN_LATIN = frozenset("–—“”„‘«»…•€£§°\u00a0") | {
    letter for letter in map(chr, range(0xC0, 0x100)) if letter.isalpha() and letter != "ß"
}
"""Letters of Latin-1 that ``_ONLY_LETTERS`` folds as Unicode does, and frequent signs: such a text needs no normal form."""
_SPACED_BREAK = f" {BREAK} "
_ONLY_LETTERS = bytes(
    ord(chr(code).lower()) if chr(code).isalpha() else code if code == ord(BREAK) else ord(" ") for code in range(256)
)
"""For ``bytes.translate`` of Latin-1: lower-case letters and the break stay, all else becomes a space."""
_MARKS_IN_NUMBERS = ".,'"
_ONLY_NUMBERS = bytes(code if chr(code) in f"0123456789{_MARKS_IN_NUMBERS}{BREAK}" else ord(" ") for code in range(256))
"""For ``bytes.translate`` of Latin-1: digits, the marks within numbers and the break stay, all else becomes a space."""
_RAW_NUMBER = re.compile(r"\d+(?:[.,']\d+)*")


def ascii_form(text: str) -> str | None:
    """The text with ``?`` for each mark beyond ASCII; None for one with letters or digits beyond it.

    Most texts are ASCII but for typographic marks, and ASCII matches twice as fast.
    """
    if text.isascii():
        return text
    text = _with_plain_marks(text)
    return None if _is_foreign(text) else text.encode("ascii", "replace").decode()


def in_one_form(text: str) -> str:
    """The text in Unicode's form NFKC, whose time grows with the square of a run of combining marks: longer ones are cut."""
    if any(map(unicodedata.combining, set(text))):
        text = _long_mark_runs().sub(r"\1", text)
    return unicodedata.normalize("NFKC", text)


@cache
def _long_mark_runs() -> re.Pattern[str]:
    marks = "".join(filter(unicodedata.combining, map(chr, range(_LAST_MARK + 1))))
    return re.compile(f"([{marks}]{{{_MOST_MARKS}}})[{marks}]+")


_MOST_MARKS = 30
"""Combining marks in a row, as in the stream-safe format of Unicode (UAX 15); no word of any language has more."""
_LAST_MARK = 0x1EFFF
"""No combining mark is beyond."""


HIDDEN = re.compile("[\u00ad\u200b\u2060\ufeff]")
"""Characters that nobody sees: where a word may be cut, and the like; texts out of PDF files have them inside words."""


def _with_plain_marks(text: str) -> str:
    text = HIDDEN.sub("", text.replace("’", "'"))
    if "\u00a0" in text or "\u202f" in text or "\u2009" in text:
        text = _SPACED_THOUSANDS.sub("", text)
    return text


def _tokens(text: str) -> list[str]:
    if (plain := ascii_form(text)) is not None:
        return _ASCII_WORD.findall(plain.lower())
    text = _with_plain_marks(text)
    text = in_one_form(text).casefold()
    if _ARABIC.search(text):
        # A vowel mark splits a word in two, and the article makes one word look like another.
        tokens = [_without_article(word) for word in _WORD.findall(plain_arabic(text))]
    else:
        tokens = _WORD.findall(text)
    if _UNSPACED.search(text):
        return [piece for word in tokens for piece in _pieces(word)]
    return tokens


def _is_foreign(text: str) -> bool:
    """Tells whether a text has letters, digits or parts of words beyond ASCII."""
    return any(character.isalnum() or character in _JOINING for character in _not_ascii(text))


def _not_ascii(text: str) -> set[str]:
    """The characters of a text beyond ASCII; a byte of UTF-8 below 128 is always a whole character."""
    return set(text.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "surrogatepass"))


_ASCII = bytes(range(128))


def _without_article(word: str) -> str:
    article = _ARABIC_ARTICLE.match(word)
    return word[article.end() :] if article else word


def _pieces(word: str) -> Iterator[str]:
    position = 0
    for run in _UNSPACED.finditer(word):
        if run.start() > position:
            yield word[position : run.start()]
        characters = run.group()
        if len(characters) == 1:
            yield characters
        for index in range(len(characters) - 1):
            yield characters[index : index + 2]
        position = run.end()
    if position < len(word):
        yield word[position:]


# ---- passages -------------------------------------------------------------------------------------------------

LONGEST = 500
"""Most characters of a passage; a source without punctuation is split there, so that a window stays short."""
_FIRST_CUT = 400

_CERTAIN_LETTERS = 4
"""Small letters before a full stop from which few words are abbreviations."""


@cache
def _passage_end(*, wide: bool) -> re.Pattern[str]:
    """The end of a passage; its group is there where it is certain: no abbreviation, a full stop, no small letter."""
    certain = _certain_pattern()
    closed = r"[\"')\]”’»]*\s+"
    if wide:
        return re.compile(rf"[.!?\n。！？।۔؟](?:(?<=[\n。！？।۔؟])\s*|{certain}|{closed})")
    return re.compile(rf"[.!?\n](?:(?<=\n)\s*|{certain}|{closed})")


def _certain_pattern() -> str:
    long = {word[-_CERTAIN_LETTERS:] for word in word_set("inner_abbreviations") if len(word) >= _CERTAIN_LETTERS}
    abbreviations = "|".join(rf"{re.escape(ending)}\." for ending in sorted(long))
    no_abbreviation = rf"(?:(?<=[a-z]{{{_CERTAIN_LETTERS}}}\.)(?<!{abbreviations})|(?<=[0-9%)]\.))"
    return rf"{no_abbreviation}()\s+(?=[!-`{{-~]|\Z)"


@cache
def _certain_end() -> re.Pattern[str]:
    """An end of a passage that holds wherever its passage begins."""
    return re.compile(rf"\.{_certain_pattern()}")


_WIDE = re.compile("[。！？।۔؟]")
_ENDS_PASSAGE = frozenset(".!?:;|。！？।۔؟")
_OPENS_LINE = frozenset("-*+•‣◦|#")


def passage_spans(text: str) -> tuple[Passage, ...]:
    """The passages of a text in order: trimmed, not empty, without overlap, and together all of it but white space."""
    wide = not text.isascii() and _WIDE.search(text) is not None
    return tuple(_passages_from(text, len(text) - len(text.lstrip()), len(text), _passage_end(wide=wide)))


def passages_around(text: str, start: int, end: int) -> Sequence[Passage] | None:
    """The passages of a text from a certain end of one before ``start`` up to that of ``end``, the same as in the whole text.

    None where no end is certain nearby.
    """
    # Both patterns tell the same where there is no wide mark, and a search for one would read all of the text.
    end_of = _passage_end(wide=not text.isascii())
    stop = start
    for _ in range(_MOST_STOPS):
        stop = text.rfind(".", 0, stop)
        if stop < 0:
            return _passages_from(text, len(text) - len(text.lstrip()), end, end_of)
        if (certain := _certain_end().match(text, stop)) is not None and certain.end() <= start:
            return _passages_from(text, certain.end(), end, end_of)
    return None


_MOST_STOPS = 16
"""Full stops before a place among which a certain end of a passage is looked for."""


_LONGEST_INNER = 24
"""Characters before a full stop among which an abbreviation is looked for: more than any has."""
_OPENERS = "([{§\"'“„«‘‚"


def _passages_from(text: str, start: int, until: int, end_of: re.Pattern[str]) -> list[Passage]:
    """The passages from the beginning of one up to that in which ``until`` stands."""
    passages: list[Passage] = []
    add = passages.append
    for match in end_of.finditer(text, start):
        mark, end = match.span()
        stop = mark + 1
        if match.lastindex is not None:
            is_trimmed = True
        elif text[mark] == "\n":
            if _is_wrapped(text, start, mark, end):
                continue
            stop = mark
            is_trimmed = stop > start and not text[stop - 1].isspace()
        elif _is_inside(text, start, mark, end):
            continue
        else:
            is_trimmed = end == stop + 1
        if is_trimmed and stop - start <= LONGEST:
            add((start, stop))
        else:
            _add(passages, text, start, end)
        start = end
        if start > until and passages and passages[-1][1] >= until:
            return passages
    _add(passages, text, start, len(text))
    return passages


def _is_initial(before: str) -> bool:
    """Tells whether a full stop closes the letter of a name; that of a unit, as in 8 °C, ends a sentence."""
    return before[-1:].isupper() and not (before[-2:-1].isalnum() or before[-2:-1] == "°")


def _is_inside(text: str, start: int, mark: int, end: int) -> bool:
    """Tells whether a mark of a sentence's end stands within a sentence; the next one begins at ``end``."""
    if text[mark] != ".":
        return False
    if text[end : end + 1].islower():
        return "\n\n" not in text[mark:end]
    before = text[max(start, mark - _LONGEST_INNER) : mark]
    if _is_initial(before):
        return True
    if len(before) < 2 or before[-1].isspace():  # noqa: PLR2004 - one letter is no word
        return False
    return before.split()[-1].lstrip(_OPENERS).lower() in word_set("inner_abbreviations")


def _is_wrapped(text: str, start: int, mark: int, end: int) -> bool:
    """Tells whether a line break stands within a sentence: the next line is in lower case, or this one is long."""
    # A heading or an item of a list is short.
    following = text[end : end + 1]
    if following.islower():
        return True
    return mark - start >= FILLED_LINE and following not in _OPENS_LINE and text[mark - 1] not in _ENDS_PASSAGE


def _add(passages: list[Passage], text: str, start: int, end: int) -> None:
    """Adds the passage from ``start`` to ``end`` without trailing white space, split at ``LONGEST``."""
    while end > start and text[end - 1].isspace():
        end -= 1
    while end - start > LONGEST:
        space = text.rfind(" ", start + _FIRST_CUT, start + LONGEST)
        boundary = space if space > 0 else start + LONGEST
        piece = text[start:boundary].rstrip()
        if piece:
            passages.append((start, start + len(piece)))
        start = boundary + len(text[boundary:end]) - len(text[boundary:end].lstrip())
    if end > start:
        passages.append((start, end))
