"""Counts the sentences of sources that the check flags in another spelling: python -m bench.eval.rewordings --data DIR [--every N].

Each sentence is a claim beside the sources it comes from, spelled otherwise: the same date, number, unit or contraction in
other characters. A flag is a false alarm.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench.eval import contrast, data
from bench.eval.__main__ import DATA
from schemas.job import JobRequest
from tasks.text.fact_words import fact_words

Reword = Callable[[str], str]
"""A sentence in another spelling; the same where it has nothing to spell otherwise."""

_MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
]  # fmt: skip
_NUMBERS = {word: f"{value:.0f}" for word, value in fact_words("en").numbers.items() if 2 <= value <= 12}
_DIGITS = {digits: word for word, digits in _NUMBERS.items()}
_AMOUNT = r"\s?(\d[\d,.]*\d|\d)(?![\d,.]*\d)((?: | )?(?:million|billion|thousand)\b)?(?![-–\w])"  # noqa: RUF001 - as in texts
_CONTRACTIONS = {
    "do not": "don't", "does not": "doesn't", "did not": "didn't", "is not": "isn't", "are not": "aren't", "was not": "wasn't",
    "were not": "weren't", "cannot": "can't", "will not": "won't", "must not": "mustn't", "has not": "hasn't",
    "have not": "haven't", "would not": "wouldn't", "should not": "shouldn't", "could not": "couldn't", "need not": "needn't",
}  # fmt: skip
_EXPANSIONS = {short: whole for whole, short in _CONTRACTIONS.items()} | {"can't": "can not", "it's": "it is"}
_ORDINALS = {"first": "1st", "second": "2nd", "third": "3rd", "fourth": "4th", "fifth": "5th", "tenth": "10th"}
_UNITS = {
    "km": "kilometres",
    "kg": "kilograms",
    "m": "metres",
    "cm": "centimetres",
    "km/h": "kilometres per hour",
    "m²": "square metres",
}


def _words(table: Mapping[str, str]) -> Reword:
    """Replaces whole words by a table."""
    pattern = re.compile(r"(?<![\w-])(?:" + "|".join(map(re.escape, table)) + r")(?![\w-])")
    return lambda text: pattern.sub(lambda match: table[match[0]], text)


def _pattern(pattern: str, spelled: str | Callable[[re.Match[str]], str]) -> Reword:
    compiled = re.compile(pattern)
    return lambda text: compiled.sub(spelled, text)


_DAY = rf"(?<![\d–-])\b(\d{{1,2}}) ({'|'.join(_MONTHS)})"  # noqa: RUF001 - a range of days
REWORDINGS: Mapping[str, Reword] = {
    "small letter at its start": lambda text: text[0].lower() + text[1:],
    "words before it": lambda text: f"According to the source, {text[0].lower()}{text[1:]}",
    "bold words": _pattern(r"^(\S+ )(\S+ \S+)(?= \S)", r"\1**\2**"),
    "typographic marks": lambda text: text.replace("'", "’").replace(" - ", " – "),  # noqa: RUF001 - they are meant
    "no-break spaces": _pattern(r"(?<=\d) (?=\w)", "\u00a0"),
    "percent for %": _pattern(r"(\d) ?%", r"\1 percent"),
    "number words": _pattern(r"(?<![\d.,\w-])([2-9]|1[0-2])(?= [a-z])", lambda match: _DIGITS[match[1]]),
    "digits for words": _pattern(rf"(?<![\w-])({'|'.join(_NUMBERS)})(?![\w-])", lambda match: _NUMBERS[match[1]]),
    "spaced thousands": _pattern(r"(?<=\d),(?=\d{3}\b)", " "),
    "bare thousands": _pattern(r"(?<=\d),(?=\d{3}\b)", ""),
    "USD for $": _pattern(rf"\${_AMOUNT}", r"USD \1\2"),
    "dollars for $": _pattern(rf"\${_AMOUNT}", r"\1\2 dollars"),
    "EUR for €": _pattern(rf"€{_AMOUNT}", r"EUR \1\2"),
    "euros for € or EUR": _pattern(rf"(?:€|EUR){_AMOUNT}", r"\1\2 euros"),
    "contractions": _words(_CONTRACTIONS),
    "no contractions": _words(_EXPANSIONS),
    "1st for first": _words(_ORDINALS),
    "units in words": _pattern(
        rf"(\d) ({'|'.join(map(re.escape, sorted(_UNITS, key=len, reverse=True)))})(?![\w/²³-])",
        lambda match: f"{match[1]} {_UNITS[match[2]]}",
    ),
    "month before its day": _pattern(_DAY, r"\2 \1"),
    "ISO dates": _pattern(
        rf"{_DAY} (\d{{4}})\b", lambda match: f"{match[3]}-{_MONTHS.index(match[2]) + 1:02}-{int(match[1]):02}"
    ),
    "& for and": _pattern(r"(?<=\w) and (?=\w)", " & "),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.eval.rewordings", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=DATA, help="directory with labelled sets (*.jsonl), for their sources"
    )
    parser.add_argument("--every", type=int, default=4, help="of the labelled rows one in so many")
    parser.add_argument("--shown", type=int, default=0, help="most flagged sentences of a kind to print")
    options = parser.parse_args()
    sentences, flagged = Counter[str](), Counter[str]()
    for request in (*_examples(), *_labelled(options.data, options.every)):
        for kind, reword in REWORDINGS.items():
            text = request.response or ""
            if (reworded := reword(text)) == text:
                continue
            sentences[kind] += 1
            if not contrast.supported_now(request.model_copy(update={"response": reworded})):
                flagged[kind] += 1
                if flagged[kind] <= options.shown:
                    print(f"{kind}: {reworded}")
    print("| spelling | sentences | flagged |\n| --- | --- | --- |")
    for kind in REWORDINGS:
        share = f"{flagged[kind] / sentences[kind]:.1%}" if sentences[kind] else ""
        print(f"| {kind} | {sentences[kind]} | {share} |")
    return 0


def _examples() -> Iterator[JobRequest]:
    """The sentences of the examples' sources, each a claim about them."""
    for twin in contrast.twins_of_examples():
        if twin.kind == contrast.UNCHANGED:
            yield twin.request


def _labelled(folder: Path, every: int) -> Iterator[JobRequest]:
    """A sentence of a source of one in ``every`` labelled rows; sentences that stand in several rows come once."""
    texts = set[str]()
    for row in data.read(data.files(folder))[::every]:
        contents = [source.content for source in row.request.context]
        sentence = next((text for text in contrast.sentences_of(contents) if text not in texts), None)
        if sentence is not None:
            texts.add(sentence)
            yield row.request.model_copy(update={"response": sentence})


if __name__ == "__main__":
    sys.exit(main())
