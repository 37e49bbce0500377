"""Cut text into sentences with exact offsets, and into the words that lexical work compares."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from sentencex import get_sentence_boundaries


class Span(NamedTuple):
    """A half-open range ``[start, end)`` of Unicode code points."""

    start: int
    end: int


# ---- sentences -------------------------------------------------------------------------------------------------

_LIST_MARKER = r"(?:[-*+•‣◦·–—]|\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,4})[.)])"
_STARTS_BLOCK = re.compile(rf"{_LIST_MARKER}[ \t]|\||#{{1,6}}[ \t]|```|={{3,}}|-{{3,}}")
_ENDS_BLOCK = re.compile(r"\||#{1,6}[ \t]|```|={3,}|-{3,}")
_CLOSERS = "\"'”’»)]*_"
_TERMINAL = frozenset(".!?…:;|。！？：；؟؛۔।")
FILLED_LINE = 60
"""Characters from which a line that does not close its sentence counts as wrapped rather than as a line of its own."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_MAY_SPLIT = re.compile(r"[.!?…][\"'”’»)\]*_]*(?:\s|[\[(【¹²³⁰⁴-⁹A-Z])|[。！？؟।۔]")
_ONLY_MARKER = re.compile(rf"(?:{_LIST_MARKER}|#{{1,6}})\Z")
_BEFORE_NUMBER = frozenset(
    "art artt arts abs no nos nr nrn sec secs sect ziff zif rz rn rdnr lit bst fig figs abb tab tabs vol vols p pp para"
    " paras cl cls ch chs chap kap reg regs anh eq ex s bd satz std tel ph ed".split()
)
"""Abbreviations that a number follows: ``Art. 5 Abs. 2``."""
NEVER_LAST = frozenset(
    "mio mrd tsd ca bzw z.b b d.h h u.a i.d.r vgl sog gem inkl zzgl e.g i.e cf viz vs approx dr mr mrs ms prof st hon rev"
    " gen lt sgt col capt sr sra srta dra sres pág págs núm núms aprox p.ej ee vid mme mlle env éd c.-à-d د أ".split()
) - {"b", "h"}
_LONGEST_ABBREVIATION = 4
"""Characters; a full stop after a word no longer than that ends no sentence when a small letter follows."""
_MONTH = re.compile(r"(?:Jan|Feb|März|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)[a-zäé]*\b")
_OPENS_MARKER = frozenset("[【¹²³⁰⁴⁵⁶⁷⁸⁹")
_LEADING_MARKERS = re.compile(
    r"\s*(?:(?:\[\^?(?:sources?|src|quellen?)?\s*#?\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*\]|【\d{1,3}[^】]{0,20}】)(?!\()\s*)+"
    r"|\s*[¹²³⁰⁴-⁹]+(?:[,\s]?[¹²³⁰⁴-⁹]+)*",
    re.IGNORECASE,
)
_MISSED = re.compile(r"[.!?]\s+(?=[(\"“„«]?[A-ZÀ-ÖØ-Þ(][\w)])")


_LONGEST_PART = 4_000
"""Characters handed to the library at once."""
_LONGEST_BRACKET = 1_000
"""Characters; an opening bracket or quotation mark that is not closed by then is a slip of the writer."""


def sentence_spans(text: str, language: str = "en") -> list[Span]:
    """Find the sentences of a text.

    Lines of lists, tables and headings are sentences of their own; wrapped lines are joined. A citation marker
    directly after a full stop belongs to the sentence before it; a list marker to the item it opens.

    Args:
        text: any text.
        language: ISO 639-1 code, for the abbreviations of ``sentencex``; an unknown one is treated as English.

    Returns: spans in order, without overlap, each without surrounding white space and never empty.
    """
    spans: list[Span] = []
    for block in _blocks(text):
        spans.extend(_sentences_of_block(text, block, language))
    return spans


def _blocks(text: str) -> Iterator[Span]:
    """Runs of lines that may hold running text, trimmed; a line that stands for itself is a run of one."""
    start = end = position = 0
    previous = ""
    for raw in text.splitlines(keepends=True):
        line = raw.strip()
        if previous and (not line or _stands_apart(previous, line)):
            yield Span(start, end)
            previous = ""
        if line:
            left = position + raw.index(line[0])
            start = start if previous else left
            end = left + len(line)
            previous = line
        position += len(raw)
    if previous:
        yield Span(start, end)


def _stands_apart(line: str, following: str) -> bool:
    """Whether the break between two stripped lines ends a sentence."""
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
    cuts = _library_cuts(block, language)
    cuts += _missed_cuts(block, cuts)
    spans = []
    left = 0
    for cut in [*sorted(cuts), len(block)]:
        right = _behind_markers(block, cut)
        piece = block[left:right].strip()
        if right <= left or not piece:
            continue
        if right < len(block) and _is_wrong(piece, block[right : right + 12].lstrip()):
            continue
        start = span.start + block.index(piece[0], left)
        spans.append(Span(start, start + len(piece)))
        left = right
    return spans


def _library_cuts(block: str, language: str) -> list[int]:
    """Sentence ends by ``sentencex``, without that of the block.

    Long text goes in parts: the library's time grows with the square of the length for text beyond ASCII.
    """
    cuts: list[int] = []
    start = 0
    while start < len(block):
        end = start + _LONGEST_PART
        if end < len(block):
            ends = [found.end() for found in _MAY_SPLIT.finditer(block, start + _LONGEST_PART // 2, end)]
            end = ends[-1] if ends else end
        part = block[start:end]
        # The end of a part is a sentence end only if it is one by its marks; where there are none it is no cut.
        found = [start + boundary["end_index"] for boundary in get_sentence_boundaries(language, _encodable(part))]
        cuts.extend(found if _MAY_SPLIT.search(part[-2:]) else found[:-1])
        start = end
    return [cut for cut in cuts if cut < len(block)]


def _encodable(text: str) -> str:
    """The text with what is not Unicode replaced, character for character: the library takes UTF-8 only."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _missed_cuts(block: str, cuts: Sequence[int]) -> list[int]:
    """Sentence ends that the library left out."""
    known = set(cuts)
    missed: list[int] = []
    position = left = 0
    for found in _MISSED.finditer(block):
        while position < len(cuts) and cuts[position] < found.end():
            left = max(left, cuts[position])
            position += 1
        if found.end() not in known and _is_outside(block[left : found.start()]):
            missed.append(found.end())
            left = found.end()
    return missed


def _is_outside(before: str) -> bool:
    """Whether a full stop stands outside of brackets and quotation marks and does not follow an initial."""
    if len(before) > _LONGEST_BRACKET:
        return True
    if not before.strip() or (before[-1].isupper() and not before[-2:-1].isalnum()):
        return False
    if before.count('"') % 2 or before.count("(") != before.count(")") or before.count("[") != before.count("]"):
        return False
    if "„" in before:
        return before.count("„") <= before.count("“") + before.count("”")
    return before.count("“") <= before.count("”")


def _behind_markers(block: str, cut: int) -> int:
    """The cut, or the end of the citation markers that follow it."""
    following = block[cut : cut + 4].lstrip()
    if following[:1] in _OPENS_MARKER:
        found = _LEADING_MARKERS.match(block, cut)
        return found.end() if found else cut
    return cut


def _is_wrong(piece: str, after: str) -> bool:
    """Whether no sentence ends here: only a list marker so far, or an abbreviation that goes on."""
    if piece[-1] != ".":
        return len(piece) < 7 and bool(_ONLY_MARKER.match(piece))  # noqa: PLR2004 - longest list marker
    last = piece.rsplit(None, 1)[-1].strip("([§.").lower()
    if last in NEVER_LAST or (after[:1].isdigit() and last in _BEFORE_NUMBER):
        return True
    if len(last) <= _LONGEST_ABBREVIATION and after[:1].islower():
        return True
    if last.isdigit() and len(last) <= 2 and _MONTH.match(after):  # noqa: PLR2004 - a day of the month
        return True
    return len(piece) < 7 and bool(_ONLY_MARKER.match(piece))  # noqa: PLR2004 - longest list marker


# ---- words -----------------------------------------------------------------------------------------------------

BREAK = "\x01"
"""Stands between spans in ``words_of_spans``; a control character that ``str.split`` does not take for white space."""
_ASCII_WORD = re.compile(r"[a-z]+|\x01|\d+(?:[.,']\d+)*")
_WORD = re.compile(r"[^\W\d_]+|\x01|\d+(?:[.,'’]\d+)*")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_JOINING = frozenset(map(chr, range(0x300, 0x370))) | {"\u00ad", "\u200b", "\u200c", "\u200d"}
"""Combining marks and invisible characters inside of words."""
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
"""Vowel marks and the stretching stroke go, the alefs and the two forms of final yeh become one, digits ASCII."""
_ARABIC_ARTICLE = re.compile(
    "[\u0648\u0641]?(?:[\u0628\u0643]\u0627\u0644|\u0644\u0644)(?=...)|[\u0648\u0641]\u0627\u0644(?=...)|\u0627\u0644(?=..)"
)
"""The article, with a conjunction or preposition written as one word with it (al-, wal-, bil-, kal-, lil-)."""
_SPACED_THOUSANDS = re.compile(r"(?<=\d)[\u00a0\u202f\u2009](?=\d{3}(?!\d))")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]+"
)
"""Scripts written without spaces: Thai, Lao, Burmese, Khmer, kana, Han."""
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?|\d{1,3}(?:\.\d{3})+,\d+")
_APOSTROPHE_THOUSANDS = re.compile(r"\d{1,3}(?:['’]\d{3})+(?:\.\d+)?")
_DECIMAL_COMMA = re.compile(r"\d+,\d+")


def words(text: str) -> list[str]:
    """The words of a text in order: case-folded, compatibility-normalised, numbers in one spelling.

    Scripts without spaces give character bigrams; Arabic loses its vowel marks and its article. ``1,200.50``,
    ``1'200.5`` and ``1.200,50`` are all ``1200.5``; ``1.200`` alone stays a decimal, because nothing says otherwise.
    """
    found = _tokens(text.replace(BREAK, " "))
    if not _DIGIT.search(text):
        return found
    return [number(word) if "0" <= word[0] <= "9" else word for word in found]


def plain_arabic(text: str) -> str:
    """Arabic without vowel marks, with one form of each letter that writers vary, and with ASCII digits."""
    return text.translate(_PLAIN_ARABIC)


def words_of_spans(text: str, spans: Sequence[Span]) -> tuple[list[str], list[tuple[int, str]]]:
    """The words of the spans of a text, all in one pass: the quickest way, for reading sources.

    Returns: all words in order with ``BREAK`` between spans; and numbers as (position of the span, number as written),
        which for text beyond Latin-1 stand among the words instead.
    """
    if BREAK in text:
        text = text.replace(BREAK, " ")
    joined = _SPACED_BREAK.join([text[start:end] for start, end in spans])
    plain = _as_latin(joined)
    if plain is None:
        return _tokens(joined), []
    numbers = []
    if _ASCII_DIGIT.search(plain):
        position = 0
        for found in _BREAK_OR_NUMBER.findall(plain):
            if found == _BREAK_BYTE:
                position += 1
            else:
                numbers.append((position, found.decode("ascii")))
    return plain.translate(_ONLY_LETTERS).decode("latin-1").split(), numbers


def _as_latin(text: str) -> bytes | None:
    """The text in Latin-1, folded as ``_tokens`` folds it, if only marks are lost; None if letters or digits would be."""
    if text.isascii():
        return text.encode("ascii")
    text = text.replace("’", "'")
    if "\u00a0" in text or "\u202f" in text or "\u2009" in text:
        text = _SPACED_THOUSANDS.sub("", text)
    if any(character.isalnum() or character in _JOINING for character in set(_NOT_ASCII.findall(text))):
        text = unicodedata.normalize("NFKC", text).casefold()
        if any(character > "\xff" and character.isalnum() for character in set(_NOT_ASCII.findall(text))):
            return None
    return text.encode("latin-1", "replace")


_SPACED_BREAK = f" {BREAK} "
_BREAK_BYTE = BREAK.encode()
_ONLY_LETTERS = bytes(
    ord(chr(code).lower()) if chr(code).isalpha() else code if code == ord(BREAK) else ord(" ") for code in range(256)
)
"""For ``bytes.translate`` of Latin-1: small letters, the break, and spaces for all else."""
_ASCII_DIGIT = re.compile(rb"[0-9]")
_BREAK_OR_NUMBER = re.compile(rb"[0-9\x01][0-9]*(?:[.,'][0-9]+)*")
"""Begins with a set of characters, because such a search skips what is not in it four times as fast as ``\\d`` does."""


def _tokens(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    text = text.replace("’", "'")
    if "\u00a0" in text or "\u202f" in text or "\u2009" in text:
        text = _SPACED_THOUSANDS.sub("", text)
    foreign = {character for character in _NOT_ASCII.findall(text) if character.isalnum() or character in _JOINING}
    if not foreign:
        # ASCII but for its typographic marks, as most texts are; ASCII is matched twice as fast.
        return _ASCII_WORD.findall(text.encode("ascii", "replace").decode().lower())
    text = unicodedata.normalize("NFKC", text).casefold()
    if _ARABIC.search(text):
        # One marked vowel would cut a word in two, and the article would make two words of one.
        found = [_without_article(word) for word in _WORD.findall(plain_arabic(text))]
    else:
        found = _WORD.findall(text)
    if _UNSPACED.search(text):
        return [piece for word in found for piece in _pieces(word)]
    return found


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


@lru_cache(maxsize=4096)
def number(word: str) -> str:
    """One spelling for a written number; what is not a number (a date, a section) stays as it is."""
    plain = word
    if _THOUSANDS.fullmatch(word):
        decimal_comma = "," in word and word.rfind(",") > word.rfind(".") > -1
        if decimal_comma:
            plain = word.replace(".", "").replace(",", ".")
        elif word.count(".") > 1:
            plain = word.replace(".", "")
        else:
            plain = word.replace(",", "")
    elif _APOSTROPHE_THOUSANDS.fullmatch(word):
        plain = word.replace("'", "").replace("’", "")
    elif _DECIMAL_COMMA.fullmatch(word):
        plain = word.replace(",", ".")
    if plain.count(".") == 1:
        plain = plain.rstrip("0").rstrip(".")
    return plain.lstrip("0") or "0" if "." not in plain else plain
