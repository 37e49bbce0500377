"""Splits a sentence into the clauses that state something each.

A clause begins behind a conjunction or a mark, with a subject of its own and a verb. What only may be one stays together:
a condition, a relative clause, a list. The tables are under ``statements`` of each language:

joints      pattern of the conjunctions between clauses; ``contrasts`` are the words of those that never join mere words
subjects    words that begin a subject
breaks      words that show that the verb behind them is that of another clause
writers     words for the writer and the reader
conditions  words at the start of a sentence that is not split; ``conditions_start`` in a language without spaces
"""
# ruff: noqa: RUF001 - text of other scripts is meant

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from tasks.text.language import language_tables
from tasks.text.sentences import Span, is_outside, plain_arabic, sentence_spans
from tasks.text.statements import has_verb, of_tables, pattern_of, read_statement, substance, without_place
from tasks.text.word_search import WordSearch
from tasks.text.wording import DENIAL, denied_part, is_next_step

_SPACED = ("en", "de", "es", "fr", "ar")
_WORD = re.compile(r"[^\W\d_]+|\d[\d.,]*")
_HAN = re.compile("[\u3400-\u9fff]")
_ENDS_CLAUSE = re.compile(r"[,;:(،؛]")
_LEAST_WORDS = 3
"""Words of a clause; fewer are a fragment."""
_LATEST_VERB = 7
"""Words of a clause up to its verb."""
_SOON = 3
"""Place of the verb behind a subject that no word of the tables begins."""
_REACH = 120
"""Characters behind a joint in which the verb must stand."""
_LEAST_HAN = 4
_MOST_CLAUSES = 12
_LONGEST = 2_000
"""Characters; a longer sentence is no sentence. It is cut there, so that what is compared for each claim stays bounded."""


# ---- tables ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Grammar:
    """The words of one language that tell clauses."""

    code: str
    subjects: frozenset[str]
    verbs: frozenset[str]
    breaks: frozenset[str]


@cache
def _grammars() -> dict[str, _Grammar]:
    def listed(code: str, key: str) -> frozenset[str]:
        return frozenset(language_tables()[code]["statements"][key].split())

    return {
        code: _Grammar(code, listed(code, "subjects"), listed(code, "verbs"), listed(code, "breaks"))
        for code in _SPACED
    }


@cache
def _languages_of_subject() -> dict[str, list[str]]:
    """The languages that a subject begins in with a word; not German, where an article begins relative clauses, too."""
    languages: dict[str, list[str]] = {}
    for code in ("en", "es", "fr"):
        for word in _grammars()[code].subjects:
            languages.setdefault(word, []).append(code)
    return languages


@cache
def _words(key: str) -> frozenset[str]:
    """The words of a key in all languages."""
    return frozenset(" ".join(of_tables(key)).split())


@cache
def _languages_of_joint() -> dict[str, str]:
    """The language of each conjunction."""
    return {
        word: code
        for code in _SPACED
        for word in language_tables()[code]["statements"]["joints"].replace("(?=\\w{2})", "").split("|")
    }


@cache
def _joint() -> re.Pattern[str]:
    """A mark with or without a conjunction, or a conjunction alone: ``word`` or ``alone``, ``arabic``, ``han``."""
    joints = {code: language_tables()[code]["statements"]["joints"] for code in (*_SPACED, "zh")}
    latin = "|".join(joints[code] for code in _SPACED if code != "ar")
    return re.compile(
        rf"(?P<mark>[,;—–])\s*(?:(?P<word>{latin})\s+)?|\s(?P<alone>{latin}|(?:و?لكن|بينما))\s+"
        rf"|[،؛]\s*(?P<arabic>{joints['ar']})?|[，；]\s*(?P<han>{joints['zh']})?",
        re.IGNORECASE,
    )


def _patterns_of_joints() -> tuple[str, ...]:
    latin = [code for code in _SPACED if code != "ar"]
    joints = {code: language_tables()[code]["statements"]["joints"] for code in latin}
    subjects = {code: "|".join(sorted(_grammars()[code].subjects)) for code in latin}
    patterns = [rf"\s(?:{joints[code]})\s+(?:{subjects[code]})\b" for code in latin]
    return (
        "(?i)" + "|".join(patterns),
        rf"(?i),\s+(?:{'|'.join(sorted(_languages_of_subject()))})\b|[,\s](?:{'|'.join(sorted(_words('contrasts')))})\s",
        rf"(?i),\s*(?:{'|'.join(joints.values())})\s",
        "[;—–،؛，；]|لكن|بينما",
    )


_MAY_JOIN = WordSearch(patterns=_patterns_of_joints)
"""Finds what may be a joint: much faster than ``_joint``, and enough for most sentences."""


# ---- splitting -------------------------------------------------------------------------------------------------


def clause_spans(text: str) -> list[Span]:
    """The clauses of a sentence (without its citation markers), in order, without the conjunctions between them."""
    start = _after_lead_in(text) if ":" in text or "：" in text else 0
    spans = [Span(0, len(text[:start].rstrip()))] if start else []
    if len(text) > _LONGEST:
        return [*spans, *_pieces(text, start)]
    if text.lstrip()[:1] == "|" or not _MAY_JOIN(text):
        return [*spans, Span(start, len(text))]
    begin = start
    conditional: bool | None = None
    for joint in _joint().finditer(text, start):
        if joint.start() < begin or len(spans) >= _MOST_CLAUSES or not _begins_clause(text, joint):
            continue
        if conditional is None:
            conditional = _is_conditional(text[start:])
        if conditional:
            break
        if _ends_clause(text, begin, joint):
            spans.append(Span(begin, joint.start()))
            begin = joint.end()
    spans.append(Span(begin, len(text)))
    return spans


def _pieces(text: str, start: int) -> Iterator[Span]:
    """The pieces of a text from a place on, cut at the last space before ``_LONGEST`` characters."""
    while len(text) - start > _LONGEST:
        end = max(text.rfind(" ", start, start + _LONGEST), text.rfind("\n", start, start + _LONGEST)) + 1
        if end <= start:
            end = start + _LONGEST
        yield Span(start, end)
        start = end
    yield Span(start, len(text))


_COLON = re.compile(r"[:：]\s*(?=\S)")


def _after_lead_in(text: str) -> int:
    """The start of what follows a lead-in such as "Here is what the sources say:"; 0 without one."""
    colon = _COLON.search(text[:120])
    if colon is None or not _WORD.search(text, colon.end()):
        return 0
    before = without_place(text[: colon.start()])
    words = len(_WORD.findall(before))
    if (words < _LEAST_WORDS and not _HAN.search(before)) or substance(before):
        return 0
    return colon.end()


def _is_conditional(text: str) -> bool:
    """Tells whether a sentence begins with a condition: what it says holds only together."""
    plain = without_place(text).lstrip("¿¡\"'“„« ")
    first = _WORD.match(plain)
    if first is None:
        return False
    if _HAN.match(plain):
        return pattern_of("conditions_start").match(plain) is not None
    return plain_arabic(first.group().lower()) in _words("conditions")


def _begins_clause(text: str, joint: re.Match[str]) -> bool:
    """Tells whether a clause with a subject and a verb begins behind a joint."""
    at = joint.end()
    if _HAN.match(text, at):
        return _begins_han(text, at)
    first = _WORD.match(text, at)
    if first is None:
        return False
    first_word, conjunction = first.group().lower(), _conjunction(joint)
    codes = _languages(first_word, conjunction, joint)
    if not codes:
        # Most commas of a list.
        return False
    mark = joint.group().strip()[:1]
    if conjunction == "while" and mark not in {",", ";"}:
        # "By lorry while it is dark" tells a time and no second fact.
        return False
    contrast = _is_contrast(joint)
    needs_subject = (not contrast and mark != ",") or (not conjunction and mark == ",")
    return any(
        _is_clause(text[at : at + _REACH], _grammars()[code], needs_subject=needs_subject, contrast=contrast)
        for code in codes
    )


def _conjunction(joint: re.Match[str]) -> str:
    group = joint.lastgroup
    return "" if group is None or group == "mark" else joint[group].strip().lower()


def _is_contrast(joint: re.Match[str]) -> bool:
    """Tells whether a joint never stands between mere words."""
    conjunction = _conjunction(joint)
    return joint.group().strip()[:1] in {";", "؛", "；"} or not _words("contrasts").isdisjoint(conjunction.split()[:1])


def _languages(first: str, conjunction: str, joint: re.Match[str]) -> Sequence[str]:
    """The languages in which a joint may stand before a word."""
    if joint.group().strip()[:1] in {"،", "؛"}:
        return ("ar",)
    if conjunction:
        return (_languages_of_joint().get(conjunction, "ar"),)
    return ("en", "de", "es", "fr") if joint["mark"] == ";" else _languages_of_subject().get(first, ())


def _is_clause(text: str, grammar: _Grammar, *, needs_subject: bool, contrast: bool) -> bool:
    """Tells whether a text begins with a clause of a language.

    Args:
        text: the text.
        grammar: of the language.
        needs_subject: its first word must be one that begins a subject.
        contrast: what is before the text never stands before mere words.
    """
    arabic = grammar.code == "ar"
    end = _ENDS_CLAUSE.search(text)
    surface = _WORD.findall(text[: end.start()] if end else text)[:_LATEST_VERB]
    words = [plain_arabic(word.lower()) for word in surface]
    has_subject = words[0] in grammar.subjects
    if len(words) < _LEAST_WORDS - arabic or (needs_subject and not (has_subject or arabic)):
        return False
    at = next((place for place, word in enumerate(words) if word in grammar.verbs), None)
    if at is None or (at == 0 and not arabic) or not grammar.breaks.isdisjoint(words[:at]):
        return False
    if grammar.code == "de" and at == len(words) - 1 and words[at].endswith("en"):
        # An infinitive ends the clause before: "muss die Miete und alle Gebühren zahlen".
        return False
    return arabic or has_subject or contrast or at <= _SOON


def _begins_han(text: str, at: int) -> bool:
    clause = re.compile(rf"[^，。；：,;]{{1,10}}?(?:{pattern_of('verb_phrases').pattern})")
    return clause.match(text, at) is not None and not pattern_of("conditions_start").match(text, at)


def _ends_clause(text: str, begin: int, joint: re.Match[str]) -> bool:
    """Tells whether what stands before a joint, from ``begin`` on, is a clause, outside brackets and quotation marks."""
    before, after = without_place(text[begin : joint.start()]), text[joint.end() :]
    if not is_outside(text[: joint.start()]) or not _of_one_voice(before, after):
        return False
    if _HAN.match(after):
        return len(_HAN.findall(before)) >= _LEAST_HAN and (_is_contrast(joint) or has_verb(before))
    words = [plain_arabic(word.lower()) for word in _WORD.findall(before)]
    if _is_contrast(joint):
        return len(words) >= _LEAST_WORDS - 1
    first = _WORD.match(after)
    codes = _languages(first.group().lower() if first else "", _conjunction(joint), joint)
    return len(words) >= _LEAST_WORDS and any(not _grammars()[code].verbs.isdisjoint(words) for code in codes)


def _of_one_voice(before: str, after: str) -> bool:
    """Tells whether both sides of a joint speak of the matter: what the writer feels belongs to what it is about."""
    first, second = _WORD.search(before), _WORD.search(after)
    if first is not None and plain_arabic(first.group().lower()) in _words("writers"):
        return denied_part(before) is not None
    return second is None or plain_arabic(second.group().lower()) not in _words("writers") or not substance(before)


def only_refuses(text: str) -> bool:
    """Tells whether an answer only says that there is no answer, and perhaps where else to ask."""
    readings = [
        (clause, read_statement(clause))
        for start, end in sentence_spans(text)
        for clause in (text[start + first : start + last] for first, last in clause_spans(text[start:end]))
    ]
    return any(reading.reason == DENIAL for _, reading in readings) and all(
        reading.reason is not None or (is_next_step(clause) and not _DIGIT.search(clause))
        for clause, reading in readings
    )


_DIGIT = re.compile(r"\d")
