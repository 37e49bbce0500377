"""What one language's module says of its wording."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wording:
    """The wording of one language, in lower case.

    Attributes:
        code: ISO 639-1.
        spaced: whether words stand apart by spaces; phrases then match whole words only.
        denials: patterns of which one stands in every hedge; looked for first, because most sentences have none.
        hedges: patterns of sentences that only say that the sources, or the writer, do not say.
        turns: words after which a hedge goes on to state something.
        courtesies: patterns a sentence without content opens with.
        next_steps: patterns a sentence opens with that sends the reader elsewhere.
        strong: phrases, as written, of strong uncertainty.
        moderate: phrases, as written, of moderate uncertainty.
        factual: words, as written, of a question for a single fact.
        units: words, as written, that make a number before them an amount, a share, a time or an age.
        function_words: its most frequent words, by which a short text is told from other languages.
        letters: letters that hardly another of the languages here has.
    """

    code: str
    denials: tuple[str, ...]
    hedges: tuple[str, ...]
    turns: tuple[str, ...]
    courtesies: tuple[str, ...]
    next_steps: tuple[str, ...]
    strong: tuple[str, ...]
    moderate: tuple[str, ...]
    factual: tuple[str, ...]
    units: tuple[str, ...]
    spaced: bool = True
    function_words: str = ""
    letters: str = ""
