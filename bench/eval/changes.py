"""Changes one fact of a true claim, by the kind of change: the wrong twin of a contrast pair."""
# ruff: noqa: ARG001 - every change takes the same arguments

import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from tasks.text.language import language_of
from tasks.text.numbers import number
from tasks.text.sentences import words
from tasks.text.statements import without_place

KINDS = (
    "absent number",
    "other number",
    "date",
    "absent name",
    "other name",
    "role",
    "negation",
    "antonym",
    "direction",
)
_NUMBER = re.compile(r"(?<![\w.,\[])\d+(?:[.,]\d+)*(?![\w\]])")
_NUMBER_WORDS = "two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty".split()
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBER_WORDS)})\b", re.IGNORECASE)
_MONTHS = "January February March April May June July August September October November December".split()
_MONTH = re.compile(rf"\b(?:{'|'.join(_MONTHS)})\b")
_NAME = re.compile(r"(?<=[a-zäöüß,;] )[A-Z][a-zà-öø-ÿ]{2,}(?:[ -][A-Z][a-zà-öø-ÿ]{2,})*")
_NO_NAMES = frozenset(
    "I The This That These Those It In On At He She They We You A An And But Or For Mr Mrs Dr".split() + _MONTHS
)
_INVENTED = (
    "Brevik Oskarsson Tallinder Vasquero Kimbleton Ostrava Halvorsen Pemberley Drachten Quillon Zabrinski Mereworth"
    " Lindqvist Aramoana Trondal Bexhill Corvane Yarmolenko Straubing Fennimore"
).split()
_AUXILIARY = re.compile(
    r"\b(is|are|was|were|has|have|had|can|could|may|might|must|will|would|should|does|do|did)\b(?! (?:not|no)\b|n't)",
    re.IGNORECASE,
)
_PAST = re.compile(r"(?<=[a-z] )([a-z]{3,}ed)\b")
_PRESENT = re.compile(r"(?<=[a-z] )([a-z]{3,}[a-rt-z]s) (?=(?:the|a|an|to|in|on|of|all|both|its|their)\b)")
_GERMAN_VERB = re.compile(r"\b(ist|sind|war|waren|wird|werden|kann|können|darf|dürfen|muss|müssen|soll|hat|haben)\b")
_DENIES = re.compile(
    r"\b(?:not|no|never|none|nothing|neither|nor|without|cannot|nicht|kein\w*|nie)\b|n't", re.IGNORECASE
)
_DIRECTIONS = (
    "before/after", "may/must", "must/may", "at least/at most", "more/less", "all/some", "all/none of the", "some/all",
    "up/down", "always/sometimes", "above/below", "over/under", "until/from", "minimum/maximum", "earlier/later",
    "increased/decreased", "increase/decrease", "rose/fell", "first/last", "most/few", "every/no", "only/also",
    "vor/nach", "mindestens/höchstens", "darf/muss", "mehr/weniger", "steigen/sinken",
)  # fmt: skip


class Facts:
    """The numbers, names and months that the sources of a claim hold, to draw wrong ones from.

    Args:
        contents: the sources.
    """

    def __init__(self, contents: Sequence[str]) -> None:
        self._text = "\n".join(contents)
        self.vocabulary = set(words(self._text))
        self._lower = self._text.lower()

    def numbers(self) -> list[str]:
        """Numbers in digits, each once."""
        return sorted(set(_NUMBER.findall(self._text)))

    def names(self) -> list[str]:
        """Runs of capitalised words inside sentences, each once."""
        return sorted({name for name in _NAME.findall(self._text) if name.split()[0] not in _NO_NAMES})

    def holds(self, word: str) -> bool:
        """Tells whether the sources hold a word or number."""
        return number(word) in self.vocabulary or word.lower() in self._lower


def changed(kind: str, claim: str, facts: Facts, seed: str) -> str | None:
    """The claim with one fact changed; None where the claim has no such fact, or the sources no other.

    Args:
        kind: one of ``KINDS``.
        claim: its words without markers.
        facts: of its sources.
        seed: fixes the choice; equal seeds give equal changes.
    """
    choices = random.Random(f"{kind} {seed}")
    options = list(_CHANGES[kind](claim, facts, choices))
    return choices.choice(options) if options else None


def _replace(claim: str, match: re.Match[str], replacement: str) -> str:
    return claim[: match.start()] + replacement + claim[match.end() :]


def _behind_place(claim: str) -> int:
    """The start of what a sentence says: the number of a paragraph or a list is no fact."""
    return len(claim.rstrip()) - len(without_place(claim.strip()))


def _absent_numbers(claim: str, facts: Facts, choices: random.Random) -> Iterator[str]:
    for match in _NUMBER.finditer(claim, _behind_place(claim)):
        digits = match.group()
        for _ in range(50):
            new = re.sub(r"\d", lambda _: str(choices.randint(1, 9)), digits)
            if re.fullmatch(r"(?:1[89]|20)\d\d", digits):
                new = str(choices.randint(1801, 2029))
            if number(new) != number(digits) and not facts.holds(new):
                yield _replace(claim, match, new)
                break
    for match in _NUMBER_WORD.finditer(claim):
        absent = [
            word
            for place, word in enumerate(_NUMBER_WORDS)
            if not facts.holds(word) and not (place < 11 and facts.holds(str(place + 2)))
        ]
        if absent:
            yield _replace(claim, match, choices.choice(absent))


def _other_numbers(claim: str, facts: Facts, choices: random.Random) -> Iterator[str]:
    present = {number(digits) for digits in _NUMBER.findall(claim)}
    alternatives = [digits for digits in facts.numbers() if number(digits) not in present]
    for match in _NUMBER.finditer(claim, _behind_place(claim)):
        if alternatives:
            yield _replace(claim, match, choices.choice(alternatives))


def _dates(claim: str, facts: Facts, choices: random.Random) -> Iterator[str]:
    for match in _MONTH.finditer(claim):
        alternatives = [month for month in _MONTHS if month != match.group()]
        yield _replace(claim, match, choices.choice(alternatives))
    for match in re.finditer(r"\b(?:1[5-9]|20)\d\d\b", claim):
        yield _replace(claim, match, str(int(match.group()) + choices.choice((-11, -3, -1, 1, 2, 10))))


def _claim_names(claim: str, facts: Facts) -> Iterator[re.Match[str]]:
    if language_of(claim) == "de":
        # Capitals mark nouns there.
        return
    for match in _NAME.finditer(claim):
        if match.group().split()[0] not in _NO_NAMES and facts.holds(match.group()):
            yield match


def _absent_names(claim: str, facts: Facts, choices: random.Random) -> Iterator[str]:
    for match in _claim_names(claim, facts):
        absent = [name for name in _INVENTED if not facts.holds(name)]
        new = choices.sample(absent, min(2, len(match.group().split())))
        yield _replace(claim, match, " ".join(new))


def _other_names(claim: str, facts: Facts, choices: random.Random) -> Iterator[str]:
    for match in _claim_names(claim, facts):
        alternatives = [
            name
            for name in facts.names()
            if not {*name.lower().split()} & {*claim.lower().replace(",", " ").replace(".", " ").split()}
        ]
        if alternatives:
            yield _replace(claim, match, choices.choice(alternatives))


def _roles(claim: str, facts: Facts, choices: random.Random) -> Iterator[str]:
    names = list(_claim_names(claim, facts))
    opening = re.match(r"[A-Z][a-z]{2,}(?: [A-Z][a-z]{2,})+", claim)
    if opening and facts.holds(opening.group()):
        names.insert(0, opening)
    for first, second in pairwise(names):
        between = claim[first.end() : second.start()]
        # A list ("X, Y and Z") or a couple says the same in any order.
        if len(between.split()) > 1 and first.group() != second.group():
            yield claim[: first.start()] + second.group() + between + first.group() + claim[second.end() :]


def _negations(claim: str, facts: Facts, choices: random.Random) -> Iterator[str]:
    if _DENIES.search(claim):
        return
    for match in _AUXILIARY.finditer(claim):
        yield _replace(claim, match, f"{match.group()} not")
        return
    for match in _GERMAN_VERB.finditer(claim):
        yield _replace(claim, match, f"{match.group()} nicht")
        return
    for match in _PRESENT.finditer(claim):
        yield _replace(claim, match, f"does not {match.group(1)[:-1]} ")
        return
    for match in _PAST.finditer(claim):
        yield _replace(claim, match, f"never {match.group()}")
        return


@cache
def _antonyms() -> dict[str, list[str]]:
    """Direct antonyms of WordNet 3.0 that are frequent in the labelled sets, by hand without those of rare senses."""
    antonyms: dict[str, list[str]] = {}
    for pair in (Path(__file__).parent / "antonyms.txt").read_text().split():
        first, second = pair.split("/")
        antonyms.setdefault(first, []).append(second)
        antonyms.setdefault(second, []).append(first)
    return antonyms


def _opposites(claim: str, facts: Facts, choices: random.Random) -> Iterator[str]:
    for match in re.finditer(r"\b[a-z]{3,}\b", claim):
        if match.group() in _antonyms():
            yield _replace(claim, match, choices.choice(_antonyms()[match.group()]))


def _directions(claim: str, facts: Facts, choices: random.Random) -> Iterator[str]:
    for pair in _DIRECTIONS:
        word, other = pair.split("/")
        # "May not" forbids as "must not" does.
        denied = r"(?! not\b)" if {word, other} == {"may", "must"} else ""
        for match in re.finditer(rf"\b{word}\b{denied}", claim):
            yield _replace(claim, match, other)


_CHANGES: dict[str, Callable[[str, Facts, random.Random], Iterator[str]]] = {
    "absent number": _absent_numbers,
    "other number": _other_numbers,
    "date": _dates,
    "absent name": _absent_names,
    "other name": _other_names,
    "role": _roles,
    "negation": _negations,
    "antonym": _opposites,
    "direction": _directions,
}
