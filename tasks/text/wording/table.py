"""The table of phrases that each language's module fills in."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wording:
    """The wording of one language, in lower case.

    Attributes:
        code: ISO 639-1.
        spaced: True if spaces separate words; phrases then match whole words only.
        denials: patterns of words that every hedge contains; searched first, because most sentences have none.
        hedges: patterns of sentences that only say that the sources, or the writer, give no answer.
        turns: words after which a hedge continues with a statement.
        courtesies: patterns at the start of a sentence without content.
        next_steps: patterns at the start of a sentence that sends the reader elsewhere.
        strong: literal phrases of strong uncertainty.
        moderate: literal phrases of moderate uncertainty.
        factual: literal words of a question for a single fact.
        units: literal words that make the number before them an amount, a share, a time or an age.
        function_words: its most frequent words, which tell a short text from other languages.
        letters: letters that are rare in the other languages here.
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
