"""Detects the language of a short text, such as a question, by its script, its function words and its letters."""

import re

from tasks.text.wording import WORDINGS

_LATIN = re.compile(r"[a-zß-öø-ÿœ]+")
_SCRIPTS = (
    # The order matters: Japanese and Korean texts contain Han characters too, Persian and Urdu ones Arabic letters.
    ("ja", re.compile("[\u3040-\u30ff]")),
    ("ko", re.compile("[\uac00-\ud7af]")),
    ("zh", re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")),
    ("fa", re.compile("[\u067e\u0686\u0698\u06af\u06cc\u0679\u06d2]")),
    ("ar", re.compile("[\u0620-\u064a]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
    ("el", re.compile("[\u0370-\u03ff]")),
    ("he", re.compile("[\u05d0-\u05ea]")),
    ("hi", re.compile("[\u0900-\u097f]")),
    ("th", re.compile("[\u0e00-\u0e7f]")),
)
_OTHER_LANGUAGES = {
    # Only here so that they do not count as a related language.
    "it": "il lo gli che è sono di del della dei delle per con non qual quale quali quanto quando dove chi come si può un una",
    "pt": "o os as um uma do da dos das é são que qual quais quanto quando onde quem como não para por com em no na ao você",
    "nl": "de het een en van is zijn was wat wie waar wanneer hoe hoeveel welke voor met niet kan mag moet ik je op aan te",
}
_LETTER_WEIGHT = 0.9
"""Weight of a language's own letter; less than a function word's, because a name keeps its letters in any language."""

_FUNCTION_WORDS = {wording.code: frozenset(wording.function_words.split()) for wording in WORDINGS} | {
    code: frozenset(listed.split()) for code, listed in _OTHER_LANGUAGES.items()
}
_SHARED = {
    word: sum(word in listed for listed in _FUNCTION_WORDS.values())
    for word in frozenset[str]().union(*_FUNCTION_WORDS.values())
}
_LETTERS = {wording.code: frozenset(wording.letters) for wording in WORDINGS if wording.letters}


def language_of(text: str) -> str | None:
    """The ISO 639-1 code of a text's language; None without a clear sign.

    It is exact for English, German, Spanish, French, Chinese and Arabic. Other languages are told by their script, or
    only as none of these. A word of several languages counts for each by its share.
    """
    text = text[:1_000].lower()
    latin = _LATIN.findall(text)
    if not text.isascii():
        letters = sum(map(len, latin))
        for code, script in _SCRIPTS:
            # A Latin name or abbreviation does not make the text Latin: half as many letters of the script are enough.
            if (count := len(script.findall(text))) and (count * 2 >= letters or code in {"ja", "ko"}):
                return code
    scores = dict.fromkeys(_FUNCTION_WORDS, 0.0)
    for word in latin:
        if share := _SHARED.get(word):
            for code, listed in _FUNCTION_WORDS.items():
                scores[code] += (word in listed) / share
    for code, own in _LETTERS.items():
        scores[code] += _LETTER_WEIGHT * sum(letter in own for letter in text)
    best, next_best = sorted(scores, key=lambda code: -scores[code])[:2]
    return best if scores[best] > scores[next_best] else None
