"""Sentences with exact offsets, and normalised words."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.text.numbers import number
from tasks.text.sentences import BREAK, sentence_spans, words, words_of_spans


def split(text: str, language: str = "en") -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text, language)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It costs 4.2 EUR. It rose.", ["It costs 4.2 EUR.", "It rose."]),
        ("Art. 5 Abs. 2 applies. See No. 4.", ["Art. 5 Abs. 2 applies.", "See No. 4."]),
        ("Das kostet 5 Mio. Euro. Am 3. Mai war es so.", ["Das kostet 5 Mio. Euro.", "Am 3. Mai war es so."]),
        ("J. K. Rowling wrote. Dr. Smith read.", ["J. K. Rowling wrote.", "Dr. Smith read."]),
        ("First.[1] Second. [2][3] Third.¹ Fourth.", ["First.[1]", "Second. [2][3]", "Third.¹", "Fourth."]),
        ('He said "Go. Now." Then left.', ['He said "Go. Now."', "Then left."]),
        ("1. Do this. Then that.\n2. Rest.", ["1. Do this.", "Then that.", "2. Rest."]),
        ("| a | b. C |\n|---|---|\n| c | d |", ["| a | b. C |", "|---|---|", "| c | d |"]),
        ("(2) It shall. It is so. (3) Next.", ["(2) It shall.", "It is so.", "(3) Next."]),
        ("你好。我是人。3月走。", ["你好。", "我是人。", "3月走。"]),
        ("Da steht: „Es ist fällig.“ Dann nichts.", ["Da steht: „Es ist fällig.“", "Dann nichts."]),
        # The library breaks down at a wide space between a single letter and a full stop.
        ("Take plan A\u00a0. It costs less.", ["Take plan A\u00a0.", "It costs less."]),
        (
            "Die Miete beträgt z. B. 3,5 % mehr. Dr. Müller prüft das, d. h. u. a. den Vertrag. Am 1. Januar gilt er.",
            [
                "Die Miete beträgt z. B. 3,5 % mehr.",
                "Dr. Müller prüft das, d. h. u. a. den Vertrag.",
                "Am 1. Januar gilt er.",
            ],
        ),
        (
            "El Sr. García pagó 3,5 millones. ¿Cuándo vence? La Dra. López firmó, p. ej., en EE. UU. el 3 de mayo. ¡No!",
            [
                "El Sr. García pagó 3,5 millones.",
                "¿Cuándo vence?",
                "La Dra. López firmó, p. ej., en EE. UU. el 3 de mayo.",
                "¡No!",
            ],
        ),
        (
            "M. Dupont a payé 3,5 M€. Mme. Martin signe. Est-ce possible ? Oui, c.-à-d. dès lundi.",
            ["M. Dupont a payé 3,5 M€.", "Mme. Martin signe.", "Est-ce possible ?", "Oui, c.-à-d. dès lundi."],
        ),
        (
            "租金为每月3.5万元。押金不退还！可以养狗吗？第5.2条适用。",
            ["租金为每月3.5万元。", "押金不退还！", "可以养狗吗？", "第5.2条适用。"],
        ),
        # The library ends a sentence between a marker and its full stop.
        (
            "On Sundays we close at 6 p.m. [1]. Pets stay out, cats etc. [1][2]. It is so...[3]. No?",
            ["On Sundays we close at 6 p.m. [1].", "Pets stay out, cats etc. [1][2].", "It is so...[3].", "No?"],
        ),
        # The library ends no sentence of a paragraph whose first one has a number in brackets.
        (
            "(1) Notice is given in writing. [2] The tenant may object. [^3] 28 days are the rule. [4] So it is.",
            [
                "(1) Notice is given in writing. [2]",
                "The tenant may object. [^3]",
                "28 days are the rule. [4]",
                "So it is.",
            ],
        ),
        (
            "(a) Die Kündigung ist schriftlich. [Quelle 2] Der Mieter darf widersprechen. ¹ Das gilt immer.",
            ["(a) Die Kündigung ist schriftlich. [Quelle 2]", "Der Mieter darf widersprechen. ¹", "Das gilt immer."],
        ),
        (
            "(1) The tenant's consent is needed [5]. A network has 5 units [6]. I agree [7]. 7 units are enough.",
            [
                "(1) The tenant's consent is needed [5].",
                "A network has 5 units [6].",
                "I agree [7].",
                "7 units are enough.",
            ],
        ),
        (
            "(1) Er kann am dritten Werktag kündigen [4]. 7 Tage später endet die Frist [5, 6].",
            ["(1) Er kann am dritten Werktag kündigen [4].", "7 Tage später endet die Frist [5, 6]."],
        ),
        (
            "(3) Other grounds count only if they arose later.⁴\nArt. 28a Grounds for notice.⁴ (1) So it is.[5] 3 ways.",
            [
                "(3) Other grounds count only if they arose later.⁴",
                "Art. 28a Grounds for notice.⁴",
                "(1) So it is.[5]",
                "3 ways.",
            ],
        ),
        # A small letter begins a sentence that a marker and a full stop go before.
        (
            "The price is 10 euros [7]. iPhones cost more [8][9]! eBay says so¹. x² counts.",
            ["The price is 10 euros [7].", "iPhones cost more [8][9]!", "eBay says so¹.", "x² counts."],
        ),
        ("[1]. Report of the board. [2][3]. another one", ["[1]. Report of the board. [2][3].", "another one"]),
        (
            "يبلغ الإيجار 3.5 آلاف ريال. هل يُسمح بالكلاب؟ [1] نعم، بموافقة المالك! وقّع د. أحمد العقد.",
            [
                "يبلغ الإيجار 3.5 آلاف ريال.",
                "هل يُسمح بالكلاب؟ [1]",
                "نعم، بموافقة المالك!",
                "وقّع د. أحمد العقد.",
            ],
        ),
        (
            "The term 押金 means deposit. 押金为500元。 هل هذا صحيح؟ Yes.",
            ["The term 押金 means deposit.", "押金为500元。", "هل هذا صحيح؟", "Yes."],
        ),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert split(text) == expected


def test_wrapped_lines_are_joined_and_short_ones_are_not() -> None:
    wrapped = "This line is rather long and is wrapped by its writer somewhere in the\nmiddle. Short line\nAnother"
    assert split(wrapped) == [wrapped[: wrapped.index(" Short")], "Short line", "Another"]


MIXED = st.text(
    alphabet=st.one_of(st.sampled_from("aB .!?\n\r-[]1(2)\"'“”。¹|#*:;,äß字\u2028\x1e😀é"), st.characters()),
    max_size=120,
)


@example("?A\ud800")
@given(MIXED)
def test_spans_are_ordered_trimmed_and_lose_nothing(text: str) -> None:
    spans = sentence_spans(text)
    position = 0
    for start, end in spans:
        assert position <= start < end <= len(text)
        assert text[start:end] == text[start:end].strip()
        assert not text[position:start].strip()
        position = end
    assert not text[position:].strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,200.50 and 1.200,50 and 1'200.5", ["1200.5", "and", "1200.5", "and", "1200.5"]),
        ("4,2 = 4.20", ["4.2", "4.2"]),
        ("2.500.000 1,000 007 0.5", ["2500000", "1000", "7", "0.5"]),
        ("12.03.2020", ["12.03.2020"]),
        ("1\u202f200", ["1200"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("It’s the ﬁrst", ["it", "s", "the", "first"]),
        ("手机很好", ["手机", "机很", "很好"]),
        ("يُسمَح بالكلابِ", ["يسمح", "كلاب"]),
        ("والإشعار إشعار للإشعار", ["اشعار", "اشعار", "اشعار"]),
        ("الأب والد الوالدة", ["اب", "والد", "والدة"]),
        ("٣٫٥٪ ١٬٢٠٠", ["3.5", "1200"]),
        ("", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@given(MIXED)
def test_words_never_hold_separators_and_agree_by_sentence(text: str) -> None:
    spans = sentence_spans(text)
    tokens = words(text)
    assert all(word and not any(character.isspace() for character in word) for word in tokens)
    pieces: list[list[str]] = [[]]
    for word in words_of_spans(text, spans):
        if word == BREAK:
            pieces.append([])
        else:
            pieces[-1].append(word)
    assert len(pieces) == max(1, len(spans))
    for (start, end), piece in zip(spans, pieces, strict=False):
        spelled = [number(word) if "0" <= word[0] <= "9" else word for word in piece]
        assert sorted(spelled) == sorted(words(text[start:end]))
