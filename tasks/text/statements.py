"""Reads a sentence of an answer: whether it states something, in which words, or what it denies.

Nothing that says something is exempt. A sentence is no claim only if its words are those of talk about the answer itself
(``talk``), or if it is a topic, a question, or a denial. The tables are under ``statements`` of each language:

that, asking   patterns of the conjunction before what is denied, and of a word that makes it a question
talk           words that say nothing about the matter; ``talk_phrases`` is the pattern of a language without spaces
openers        patterns before a statement: "of course", "according to the sources"
presuming      patterns of questions that state something: "did you know that"
offers         patterns of questions that offer more
apologies      patterns before a refusal
remarks        patterns of sentences about the answer: "this is not legal advice"
greetings      patterns of greetings, which may be followed by a name
nouns          those of the verbs that are nouns, too, or other words of another language
verbs          words that make a line a sentence; ``verb_phrases`` is the pattern of a language without spaces
pointing       patterns of a lead-in that only points to what follows
anchors        pattern of the sources, the answer or the writer: what a refusal speaks of
echo, places   patterns before a repeated question, and before the number of a step
"""
# ruff: noqa: RUF001 - text of other scripts is meant

import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import NamedTuple

from tasks.text.language import SUPPORTED, language_of, language_tables
from tasks.text.sentences import month_pattern, never_ends_sentence, plain_arabic, words
from tasks.text.word_search import AsciiSearch
from tasks.text.wording import (
    DENIAL,
    content_words,
    denied_part,
    is_factual,
    is_negative,
    is_next_step,
    may_open_politely,
    opens_politely,
    stems_of,
    words_of,
)

_RULE = re.compile(r"(?:[\s|:\-=_*`#~+]*|`{3}\w*)\Z")
"""A line without words, or one that opens a block of code."""
_HEADING = re.compile(r"\s*(?:#{1,6}\s|\*\*[^*\n]{1,80}\*\*:?\s*\Z|__[^_\n]{1,80}__:?\s*\Z)")
_LEAST_SENTENCE = 4
"""Words of a line with a colon whose verb is no noun."""
_LONGEST_LEAD_IN = 15
"""Words; a longer line that ends with a colon is a statement."""
_CLOSING = " \"'”’»)*_"
QUESTION_MARKS = frozenset("?？؟")
_HAN = re.compile("[\u3400-\u9fff]")
_DIGIT_END = "9"


class Statement(NamedTuple):
    """A clause ``[start, end)`` of the response; a sentence that states one thing is one clause.

    ``citations`` are positions in the processed answer's citations; ``unknown`` are cited numbers without a source.
    ``sentence`` counts the sentences.
    """

    start: int
    end: int
    citations: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    sentence: int = 0


# ---- tables ----------------------------------------------------------------------------------------------------


def of_tables(key: str) -> Iterable[str]:
    """The values of a key under ``statements`` in all languages."""
    for code in SUPPORTED:
        value = language_tables()[code]["statements"].get(key)
        if value:
            yield from [value] if isinstance(value, str) else value


@cache
def pattern_of(key: str, after: str = "") -> re.Pattern[str]:
    """The joint pattern of a key in all languages."""
    return re.compile(f"(?:{'|'.join(of_tables(key))}){after}", re.IGNORECASE)


@cache
def _talk() -> frozenset[str]:
    return content_words(words(" ".join(of_tables("talk"))))


@cache
def _verbs(*, nouns: bool) -> frozenset[str]:
    """Verbs of all languages, with or without those that may be something else in a heading."""
    verbs = frozenset(" ".join(of_tables("verbs")).split())
    return verbs if nouns else verbs - frozenset(" ".join(of_tables("nouns")).split())


# ---- what may be repeated ---------------------------------------------------------------------------------------------


class Vocabulary:
    """The words of a question and its sources: a heading may repeat their numbers and names without a claim.

    Args:
        query: the question.
        sources: the contents of the sources.
        answer: the answer, for its language.
    """

    def __init__(self, query: str = "", sources: Sequence[str] = (), answer: str = "") -> None:
        self._query = query
        self._sources = sources
        self._answer = answer

    @cached_property
    def of_question(self) -> frozenset[str]:
        """The stems of the question."""
        return content_words(words(self._query))

    @cached_property
    def of_everything(self) -> frozenset[str]:
        """The stems of the question and the sources."""
        return self.of_question.union(*(content_words(words(source)) for source in self._sources))

    @cached_property
    def capitals_mark_nouns(self) -> bool:
        """True for German, where capitals tell no names."""
        return language_of(self._answer or self._query) == "de"


NO_VOCABULARY = Vocabulary()


# ---- parts of a sentence ---------------------------------------------------------------------------------------

_MARKS = re.compile(r"\s*(?:>\s*)*(?:#{1,6}\s+)?(?:[-*+•‣◦·–—]\s+)?(?:#{1,6}\s+)?[*_]{0,3}")
_PLACE = re.compile(
    r"(?:\(\s*(?:\d{1,3}|[a-z])\s*\)|(?:\d{1,3}(?:\.\d{1,3}){0,3}[.)]|[a-z][.)]|[A-Z]\))(?=[\s*_])|\d{1,3}、|[①-⑳])[*_]{0,3}\s*"
)
_POINT = re.compile(r"\d{1,2}\.\Z")
_ANSWER_OF_OBJECT = re.compile(r'\s*\{\s*"(?:answer|response|result|summary|text)"\s*:\s*"', re.IGNORECASE)


def without_place(text: str) -> str:
    """The sentence without its list marker, its number in a list, the marks of a heading, and the object that has it as its answer."""
    if (wrapped := _ANSWER_OF_OBJECT.match(text)) is not None:
        return text[wrapped.end() :]
    if text[:2].isalpha():
        # No mark, and no number but behind a word for it.
        step = _step().match(text)
        return text[step.end() :] if step else text
    marks = _MARKS.match(text)
    position = marks.end() if marks else 0
    number = _PLACE.match(text, position) or _step().match(text, position)
    if number and not (_POINT.match(number.group().rstrip(" *_")) and month_pattern().match(text, number.end())):
        position = number.end()
    return text[position:]


@cache
def _step() -> re.Pattern[str]:
    return re.compile(rf"(?:{'|'.join(of_tables('places'))})\s*\d{{1,3}}\s?[步部]?\s?[:：.)*–-]+\s*", re.IGNORECASE)


def substance(text: str) -> frozenset[str]:
    """The stems of the words of a text that are no talk about the answer itself."""
    if _HAN.search(text):
        text = pattern_of("talk_phrases").sub(" ", text)
    return words_of(text).content - _talk()


def has_verb(text: str, *, nouns: bool = False) -> bool:
    """Tells whether a text holds a verb of the tables; ``nouns``: one that may be a noun counts, too."""
    if _HAN.search(text) and pattern_of("verb_phrases").search(text):
        return True
    return not _verbs(nouns=nouns).isdisjoint(plain_arabic(text.lower()).replace("'", " ").replace("’", " ").split())


_NAME = re.compile(r"(?<=[\w,;:] )[A-ZÀ-ÖØ-Þ]\w+")
_HEADLINE = 0.6
"""Share of capitalised words from which capitals tell no names."""


def specifics(text: str, vocabulary: Vocabulary) -> frozenset[str]:
    """The stems of the numbers and names of a text."""
    stems = content_words(words(text))
    numbers = frozenset(stem for stem in stems if stem[0] <= _DIGIT_END)
    spaced = text.split()
    if sum(word[:1].isupper() for word in spaced) > _HEADLINE * len(spaced):
        return numbers
    names = [] if vocabulary.capitals_mark_nouns else _NAME.findall(text)
    return numbers | (content_words(words(" ".join(names))) & stems) if names else numbers


# ---- reading -------------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """A sentence as it was read.

    Attributes:
        reason: the reason that it is no claim; None for a claim.
        words: the words that it states: without its place in a list, and what opens it.
        denied: the words of that which it says is in no source; empty if there is nothing to look up.
    """

    reason: str | None
    words: str = ""
    denied: str = ""


def read_statement(text: str, *, cited: bool = False, vocabulary: Vocabulary = NO_VOCABULARY) -> Reading:
    """Reads a sentence without its citation markers.

    Args:
        text: the sentence.
        cited: it carries a citation.
        vocabulary: the words of the question and the sources.
    """
    stripped = text.strip()
    if _RULE.match(stripped):
        return Reading("no words")
    plain = without_place(stripped)
    ending = stripped.rstrip(_CLOSING)[-1:]
    if ending in QUESTION_MARKS:
        return _question(plain, cited=cited, vocabulary=vocabulary)
    line = ending in {":", "："} and len(stripped.split()) <= _LONGEST_LEAD_IN
    if (line or _HEADING.match(stripped)) and (reason := _topic(plain, line=line, cited=cited, vocabulary=vocabulary)):
        return Reading(reason)
    if is_negative(plain) and (denial := _denial(plain)) is not None and not _is_attributed(plain):
        return denial
    statement = plain
    if _SPECIAL_START.may_match(plain):
        statement = without_opener(plain)
        reason = _emptiness(plain, statement)
    else:
        reason = None if words_of(plain).content else _NO_CONTENT
    return Reading(reason, words="" if reason else statement)


def _denial(plain: str) -> Reading | None:
    """A sentence with a negation as a denial of the answer; None for any other."""
    if (denied := denied_part(plain)) is not None:
        return Reading(DENIAL, denied=_proposition(denied))
    if pattern_of("anchors").search(plain) and nothing_else(plain):
        return Reading(DENIAL)
    return None


def _is_attributed(plain: str) -> bool:
    """Tells whether a sentence only names its source before what it denies: "according to the source, X is not covered"."""
    statement = without_opener(plain)
    return statement != plain and denied_part(statement) is None and bool(pattern_of("matters").search(statement))


def _special_starts() -> str:
    listed = (_openers(), pattern_of("remarks"), pattern_of("greetings"))
    return rf"(?i)\A *(?:{may_open_politely()}|{'|'.join(each.pattern for each in listed)})"


_SPECIAL_START = AsciiSearch(_special_starts)
"""Finds what may open a sentence and say nothing; most begin otherwise."""
_NO_CONTENT = "no word of content"


def _emptiness(plain: str, statement: str) -> str | None:
    """The reason that a sentence says nothing about the matter; ``statement`` is the sentence without its opener."""
    if is_courtesy(plain):
        return "a courtesy"
    if is_remark(statement):
        return "a remark about the answer"
    return None if words_of(statement).content else _NO_CONTENT


def nothing_else(text: str) -> bool:
    """Tells whether a text says nothing about the matter."""
    return not substance(text)


def _proposition(denied: str) -> str:
    """The sentence that a denial denies; empty if it denies no sentence, but only names a topic or a question."""
    if _HAN.search(denied):
        is_sentence = has_verb(denied) and not pattern_of("asking").search(denied)
        return denied.strip() if is_sentence and substance(denied) else ""
    conjunction = pattern_of("that", r"\b").search(denied)
    if conjunction is None or substance(denied[: conjunction.start()]) or is_factual(denied[: conjunction.start()]):
        return ""
    sentence = denied[conjunction.end() :]
    return sentence.strip() if substance(sentence) else ""


def _question(plain: str, *, cited: bool, vocabulary: Vocabulary) -> Reading:
    if pattern_of("presuming").match(plain.lstrip("¿¡ ")):
        return Reading(None, words=without_opener(plain.lstrip("¿¡ ")))
    if _echo().match(plain):
        return Reading("a question")
    if cited or not specifics(plain, vocabulary) <= vocabulary.of_question:
        return Reading(None, words=plain)
    return Reading("a question")


@cache
def _echo() -> re.Pattern[str]:
    return pattern_of("echo", r"\s*[:：]")


def _topic(plain: str, *, line: bool, cited: bool, vocabulary: Vocabulary) -> str | None:
    """The reason that a heading, or a line that ends with a colon, is no claim; None for a claim."""
    reason = "the lead-in to what follows" if line else "a heading"
    if nothing_else(plain):
        return reason
    if cited or not specifics(plain, vocabulary) <= vocabulary.of_everything:
        return None
    if line and pattern_of("pointing").search(plain):
        return reason
    is_sentence = has_verb(plain) or (line and len(plain.split()) >= _LEAST_SENTENCE and has_verb(plain, nouns=True))
    return None if is_sentence and not is_factual(plain) else reason


def is_courtesy(plain: str) -> bool:
    """Tells whether a sentence is only a greeting, thanks or the like."""
    if opens_politely(plain) and nothing_else(plain):
        return True
    greeting = pattern_of("greetings", r"\b[ ,]*(?:[\w.]+ ?){0,4}[,!，！]\Z").match(plain)
    return greeting is not None and not has_verb(plain)


def is_remark(plain: str) -> bool:
    """Tells whether a sentence only speaks of the answer itself, or sends the reader on for more."""
    if pattern_of("remarks").match(plain):
        return nothing_else(plain)
    return is_next_step(plain) and nothing_else(plain)


_AFTER_OPENER = " \t\n,،，:：!！."


def without_opener(plain: str) -> str:
    """The sentence without what opens it."""
    while (opener := _openers().match(plain)) is not None:
        rest = plain[opener.end() :].lstrip(_AFTER_OPENER)
        if not content_words(words(rest)):
            break
        plain = rest
    return plain


@cache
def _openers() -> re.Pattern[str]:
    return pattern_of("openers", r"(?=\W|\Z|[\u3400-\u9fff])")


# ---- between statements ------------------------------------------------------------------------------------------

_ENDS_STATEMENT = frozenset(".!?:。！？：")
_STATEMENT_END = re.compile(r"[.!?:。！？：][\"'”’»)*_]*\s*\Z")
_CLOSERS = frozenset("%)]}\"'”’»€$£°")
_LEAST_STATEMENT = 3
"""Words of a statement; fewer before or after a boundary are a part of one."""


def opens_statement(before: str, text: str) -> bool:
    """Tells whether a text without a sentence's end before it begins a new statement.

    It does if it begins with a capital letter, a digit, or a letter of a script without case, and the text before does
    not end with a function word, a number or a sign that asks for more. Both must have three words or more.
    """
    before, text = before.rstrip(), text.lstrip()
    if not before or not text or not (text[0].isalnum() and not text[0].islower()):
        return False
    if (
        before[-1] in _ENDS_STATEMENT
        or _STATEMENT_END.search(before)
        or not (before[-1].isalnum() or before[-1] in _CLOSERS)
    ):
        return False
    last = stems_of(words(before[-_LONGEST_TAIL:]))
    if not last or not last[-1] or not last[-1][0].isalpha() or never_ends_sentence(before.split()[-1].lower()):
        return False
    return len(words(before)) >= _LEAST_STATEMENT and len(words(text)) >= _LEAST_STATEMENT


_LONGEST_TAIL = 60
"""Characters before a boundary that are looked at."""


_WIDE = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
_OPENS_LINE = re.compile(r"(?:[-*+•][ \t]|\d{1,3}[.)][ \t]|#{1,6}[ \t]|\||```)")
_NO_SPACE_BEFORE = frozenset(".,;:!?)]}”’»…%|")
_NO_SPACE_AFTER = frozenset("([{„“‘«")


def separator(before: str, text: str) -> str:
    """The white space to write between two parts of a text."""
    last, first = before[-1], text[0]
    if last.isspace() or first.isspace():
        return ""
    if _OPENS_LINE.match(text) or before.lstrip().startswith("#"):
        return "\n"
    if first in _NO_SPACE_BEFORE or last in _NO_SPACE_AFTER:
        return ""
    if opens_statement(before, text):
        # Neither has an end: on one line they would read as one statement.
        return "\n\n"
    return "" if _WIDE.match(last) and _WIDE.match(first) else " "
