"""Say of a piece of an answer whether it states something that can be checked, and why not."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from dataclasses import dataclass

from tasks.text.evidence import content_words
from tasks.text.sentences import words


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence ``[start, end)`` of the response.

    ``citations`` are positions in the processed answer's citations, ``unknown`` numbers it cites that name no source.
    """

    start: int
    end: int
    citations: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()


_SOURCES = (
    r"(?:sources?|context|documents?|passages?|excerpts?|texts?|materials?|information|articles?|quellen?|dokumente?n?"
    r"|unterlagen|kontext|textstellen)"
)
_TELLING = (
    r"(?:sa(?:y|id)|mention|stat|contain|provid|specif|answer|address|indicat|includ|giv|describ|discuss|explain|list|tell"
    r"|found|find|detail|clarif|reveal|confirm|cover|availab|enthalt|nenn|angeb|erwähn|beantwort|sag|hervor)\w*"
)
_HEDGE = re.compile(
    rf"\b{_SOURCES}\b[^.]{{0,40}}?\b(?:not|don't|doesn't|didn't|cannot|can't|isn't|aren't|nicht)\b[^.]{{0,20}}?\b{_TELLING}"
    rf"|\b{_SOURCES}\b[^.]{{0,40}}?\b(?:nothing|no (?:\w+ )?(?:information|answer|details?|mention|evidence)|keine (?:angabe|information|antwort))"
    rf"|\b(?:not|no|nothing|none)\b[^.]{{0,40}}?\b{_TELLING}[^.]{{0,30}}?\b(?:in|from|by|of)\b (?:the |these |any |this )?(?:\w+ ){{0,2}}{_SOURCES}\b"
    r"|\b(?:i|we)(?:'m| am| are| was| were)? (?:not sure|unable|sorry|(?:do not|don't|cannot|can't|could not) (?:know|find|answer|say|tell))\b"
    r"|\b(?:no|not enough|insufficient) (?:relevant )?(?:information|evidence)\b"
    r"|\b(?:is|are|was|were) not (?:mentioned|specified|stated|addressed|given)[^,;\w]{0,5}\Z"
    r"|\bes (?:liegen|gibt) keine (?:angaben|informationen)\b|\blässt sich (?:daraus|aus den \w+) nicht\b",
    re.IGNORECASE,
)
_DENIAL = re.compile(
    r"\b(?:no|not|none|nothing|cannot|unable|sorry|insufficient|nicht|nichts|keine?[nrms]?)\b|n't", re.IGNORECASE
)
"""Stands in every hedge; looked for first, because most sentences have none."""
_TURN = re.compile(
    r"\b(?:but|however|although|though|nevertheless|instead|aber|jedoch|obwohl|sondern)\b", re.IGNORECASE
)
"""After such a word a hedge goes on to state something."""
_GREETING = re.compile(
    r"(?:hi|hello|hey|dear|thanks?|thank you|sorry|sure|certainly|of course|great|ok(?:ay)?|wow|you're welcome|good (?:morning|day|evening)"
    r"|i hope|i'm glad|let me know|feel free|please let|happy to|here (?:is|are) (?:the|a|an|some|what)|in summary\W*\Z|yes\W*\Z|no\W*\Z"
    r"|hallo|guten (?:tag|morgen|abend)|danke|gerne|natürlich|ich hoffe)\b[^.!?,]{0,80}[.!?,:]*\Z",
    re.IGNORECASE,
)
_RULE = re.compile(r"[\s|:\-=_*`#~+]*\Z")
_HEADING = re.compile(r"\s*(?:#{1,6}\s|\*\*[^*\n]{1,80}\*\*:?\s*\Z|__[^_\n]{1,80}__:?\s*\Z)")
_LIST_MARKER = re.compile(r"\s*(?:>\s*)?(?:[-*+•]\s+|\(?(?:\d{1,3}|[a-zA-Z])[.)]\s+)?")
_LONGEST_LEAD_IN = 15
"""Words; a line that ends with a colon and is longer states something of its own."""
_CLOSING = " \"'”’»)*_"


def is_hedge(text: str) -> bool:
    """Whether a sentence only says that the sources, or the writer, do not say."""
    text = text.replace("’", "'")
    return bool(_DENIAL.search(text) and _HEDGE.search(text)) and not _TURN.search(text)


def bare(text: str) -> str:
    """The sentence without its list marker."""
    found = _LIST_MARKER.match(text)
    return text[found.end() :] if found else text


def why_not_checkable(text: str) -> str | None:
    """Why a sentence (without citation markers) has nothing to check, in plain words; None when it can be checked."""
    stripped = text.strip()
    ending = stripped.rstrip(_CLOSING)[-1:]
    reasons = (
        ("no words", lambda: _RULE.match(stripped)),
        ("a question", lambda: ending in {"?", "？"}),
        ("a heading", lambda: _HEADING.match(stripped)),
        ("the lead-in to what follows", lambda: ending in {":", "："} and len(stripped.split()) <= _LONGEST_LEAD_IN),
        ("a courtesy", lambda: _GREETING.match(stripped)),
        ("it says what the sources do not say", lambda: is_hedge(stripped)),
        ("no word of content", lambda: not content_words(words(bare(stripped)))),
    )
    return next((reason for reason, applies in reasons if applies()), None)
