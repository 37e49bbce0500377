"""Quotes in random texts: the fast search agrees with a plain search character by character."""
# ruff: noqa: RUF001 - typographic, full-width and invisible characters are the point

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from tasks.answers.citations import _key, comparison_form, locate
from tasks.text.sentences import Span

_TEXT = st.one_of(
    st.lists(
        st.sampled_from(
            [
                *"aAbBéÉßſİıΣς \n\t—-“”\"'’`.,½²Ａ你ب",
                "  ",
                "e\u0301",
                "\u0301",
                "\u064e",
                "\u00ad",
                "\u200b",
                "\u3000",
                "\u00a8",
            ]
        ),
        max_size=25,
    ).map("".join),
    st.text(max_size=25),
)


def clusters(text: str) -> list[tuple[str, Span]]:
    """Each base with its combining marks, in its comparable form; of a run of white space only the first."""
    result: list[tuple[str, Span]] = []
    position = 0
    after_space = False
    while position < len(text):
        end = position + 1
        while end < len(text) and unicodedata.combining(text[end]):
            end += 1
        key = _key(text[position:end])
        if key and not (key == " " and after_space):
            result.append((key, Span(position, end)))
        after_space = key == " " or (after_space and not key)
        position = end
    return result


def places(key_to_find: str, content: str) -> list[Span]:
    pieces = clusters(content)
    return [
        Span(pieces[first][1].start, pieces[last][1].end)
        for first in range(len(pieces))
        for last in range(first, len(pieces))
        if "".join(key for key, _ in pieces[first : last + 1]) == key_to_find
    ]


@given(_TEXT, st.data())
def test_a_quote_is_found_at_its_first_place(content: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(content)))
    part = content[start : data.draw(st.integers(start, len(content)))]
    change = data.draw(st.sampled_from([str.upper, str.lower, str.title, lambda text: text.replace(" ", "\n ")]))
    quote = change(part).strip()
    if not quote or quote in content or "…" in quote or "..." in quote:
        return
    assert comparison_form(quote) == "".join(key for key, _ in clusters(quote)).strip(" ")
    expected = places(comparison_form(quote), content)
    if expected and comparison_form(quote):
        assert locate(quote, content) == expected[0]
    elif comparison_form(quote.strip(" \t\n\"'“”„‟‘’«».,;:")) == comparison_form(quote):
        assert locate(quote, content) is None
