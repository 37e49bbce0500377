"""Answers from completions of every protocol, with citations that point at existing words."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import json
from itertools import groupby
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.generation import AnswerProtocol
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import Completion, FinishReason, NativeCitation, ProviderSnapshot
from tasks.answers.citations import locate
from tasks.answers.postprocess import Processed, postprocess
from tasks.answers.redaction import redact
from tasks.prompting.messages import render

RENT = "Rent may rise once a year, by 4% at most. The landlord shall give notice 60 days before."
PETS = "Small pets — hamsters, “birds” and fish — are allowed.\nDogs need the\nlandlord's consent."
CONTEXT = [
    {"content": RENT, "title": "Act", "page": 14, "article": "Art. 21", "section": "Rent", "relevance_score": 0.9},
    {"content": PETS, "section_hierarchy": ["House rules", "Pets"]},
]


def ask(context: Any = CONTEXT, query: str = "May rent rise?", **config: Any) -> JobRequest:
    return JobRequest(query=query, context=context, config=GenerationConfig(**config))


def complete(text: str, protocol: AnswerProtocol = AnswerProtocol.SEGMENTS, **fields: Any) -> Completion:
    fields.setdefault("finish_reason", FinishReason.STOP)
    return Completion(text=text, protocol=protocol, snapshot=ProviderSnapshot(provider="fake"), **fields)


def process(completion: Completion, request: JobRequest | None = None) -> Processed:
    request = request or ask()
    return postprocess(request, render(request, completion.protocol), completion)


def segments(*parts: tuple[str, list[tuple[int, str]]], sufficient: bool = True, **extra: Any) -> str:
    listed = [
        {"text": text, "citations": [{"source": source, "quote": quote} for source, quote in cited]}
        for text, cited in parts
    ]
    return json.dumps({"sufficient": sufficient, "segments": listed, **extra})


GOOD = segments(
    ("Dogs need consent.", [(2, "Dogs need the landlord's consent")]),
    ("Rent may rise once a year.", [(1, "Rent may rise once a year")]),
)


def assert_positions_hold(processed: Processed, request: JobRequest) -> None:
    for citation in processed.citations:
        content = request.context[citation.source_index].content
        if citation.source_start is None:
            assert not citation.verified
            assert citation.quoted_text == ""
        else:
            assert content[citation.source_start : citation.source_end] == citation.quoted_text != ""
        assert 0 <= citation.start_pos <= citation.end_pos <= len(processed.response)
    for statement in processed.statements:
        assert 0 <= statement.start < statement.end <= len(processed.response)


# ---- segments ----------------------------------------------------------------------------------------------------


def test_a_good_answer_is_rendered_cited_and_located() -> None:
    processed = process(complete(GOOD))
    assert processed.response == "Dogs need consent [1]. Rent may rise once a year [2]."
    assert processed.parsed
    assert processed.warnings == ()
    assert not processed.abstained
    first, second = processed.citations
    assert (first.source_index, first.rank, first.quoted_text) == (1, 1, "Dogs need the\nlandlord's consent")
    assert first.section == "House rules > Pets"
    assert (second.page, second.article, second.section, second.relevance_score) == (14, "Art. 21", "Rent", 0.9)
    assert second.text_snippet == RENT[:150]
    assert processed.response[second.start_pos : second.end_pos] == "[2]"
    assert [statement.citations for statement in processed.statements] == [(0,), (1,)]


def test_trailing_commas_and_loose_citations_are_read() -> None:
    text = '{"sufficient": true, "segments": [{"text": "Dogs, ] need consent.", "citations": ["[2]", 2, {"source": "Source 1"},]},]}'
    processed = process(complete(text))
    assert processed.response == "Dogs, ] need consent [1][2]."
    assert [citation.source_index for citation in processed.citations] == [1, 1, 0]


def test_an_answer_cut_off_keeps_its_whole_segments() -> None:
    processed = process(complete(GOOD[:-40], finish_reason=FinishReason.LENGTH))
    assert processed.response == "Dogs need consent [1]."
    assert not processed.parsed
    assert any("cut off" in warning for warning in processed.warnings)


def test_a_quote_that_is_not_there_is_never_invented() -> None:
    processed = process(complete(segments(("Rent may double.", [(1, "rent may double")]))))
    citation = processed.citations[0]
    assert (citation.verified, citation.source_start, citation.quoted_text) == (False, None, "")
    assert any("does not stand in the source [1]" in warning for warning in processed.warnings)


def test_a_quote_of_another_source_names_that_source() -> None:
    processed = process(complete(segments(("Dogs need consent.", [(1, "Dogs need the")]))))
    assert not processed.citations[0].verified
    assert any("is in context[1]" in warning for warning in processed.warnings)


def test_sources_that_do_not_exist_are_dropped_with_a_warning() -> None:
    processed = process(complete(segments(("Rent may rise [7].", [(9, "x"), (1, "Rent may rise")]))))
    assert processed.response == "Rent may rise [1]."
    assert processed.warnings == ("cited source(s) that do not exist: 7, 9",)


def test_the_models_own_word_makes_an_abstention() -> None:
    processed = process(complete(segments(("The sources do not say.", []), sufficient=False)))
    assert processed.abstained
    assert processed.response == "The sources do not say."
    partly = process(complete(segments(("Rent may rise.", [(1, "Rent may rise")]), sufficient=False)))
    assert not partly.abstained


def test_numbers_follow_the_prompt_and_not_the_request() -> None:
    request = ask(context=["x" * 30, RENT])
    prompt = render(request, AnswerProtocol.SEGMENTS)
    moved = prompt.model_copy(update={"snapshot": prompt.snapshot.model_copy(update={"shown": (1,)})})
    processed = postprocess(request, moved, complete(segments(("Rent may rise.", [(1, "Rent may rise")]))))
    assert [citation.source_index for citation in processed.citations] == [1]
    assert any("1 of 2 sources were left out" in warning for warning in processed.warnings)


def test_a_requested_object_is_structured_and_reported_when_missing() -> None:
    request = ask(output_schema={"type": "object"})
    with_data = process(complete(segments(("Rent may rise.", [(1, "Rent")]), data={"rises": True})), request)
    assert with_data.structured == {"rises": True}
    without = process(complete(GOOD), request)
    assert without.structured is None
    assert any("output_schema" in warning for warning in without.warnings)


def test_excess_length_and_missing_citations_give_warnings() -> None:
    processed = process(complete(segments(("Rent may rise.", []))), ask(max_response_length=5, min_citations=2))
    assert any("at most 5 allowed" in warning for warning in processed.warnings)
    assert any("at least 2 required" in warning for warning in processed.warnings)


@given(st.text(alphabet=st.one_of(st.sampled_from('{}[]",:\\\n segmnt1`truefalse'), st.characters()), max_size=80))
@example('{"segments": [' * 50)
@example("[" * 5000)
@example('{"segments": [{"text": "a", "citations": [{"source": 1e400}]}]}')
@example('{"segments": [{"text": "a", "citations": [{"source": ' + "9" * 5000 + "}]}]}")
def test_any_completion_gives_an_answer(text: str) -> None:
    request = ask()
    for protocol in AnswerProtocol:
        assert_positions_hold(process(complete(text.encode("utf-8", "replace").decode(), protocol), request), request)


# ---- markers and native citations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marker", "expected"),
    [
        ("[1]", [0]),
        ("[2][1]", [1, 0]),
        ("[1, 2]", [0, 1]),
        ("[1-2]", [0, 1]),
        ("[source 2]", [1]),
        ("[Source 1, Source 2]", [0, 1]),
        ("【2†source】", [1]),
        ("(Source 2)", [1]),
        ("[^2]", [1]),
        ("¹,²", [0, 1]),
        ("[3]", []),
        ("[2019]", []),
        ("[1](https://x.test)", []),
    ],
)
def test_markers_of_any_style(marker: str, expected: Any) -> None:
    text = f"Dogs need the landlord's consent, rent may rise once a year{'' if marker[0] == '¹' else ' '}{marker}."
    processed = process(complete(text, AnswerProtocol.MARKERS))
    assert [citation.source_index for citation in processed.citations] == expected


def test_a_range_of_markers_cites_the_sources_between() -> None:
    request = ask([*CONTEXT, {"content": "The roof leaks."}, {"content": "The door is red."}])
    processed = process(
        complete("Dogs need consent, rent may rise once a year [1-4].", AnswerProtocol.MARKERS), request
    )
    assert [citation.source_index for citation in processed.citations] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rent is up [2]. Dogs [1], cats [2] and fish.", "Rent is up [1]. Dogs [2], cats [1] and fish."),
        ("Rent is up.[2] More.", "Rent is up [1]. More."),
        ("(see it [2]) and **so [1]** on", "(see it [1]) and **so [2]** on"),
        ("- one [2]\n- two [1]\n\nEnd", "- one [1]\n- two [2]\n\nEnd"),
        ("Rent is up [9].", "Rent is up."),
        ("Up [1].\n\nSources:\n[1] Act\n[2] Rules", "Up [1]."),
        ("Area of 5 m² and 10³ units.", "Area of 5 m² and 10³ units."),
        ("Begun in 2020² and due at $100¹.", "Begun in 2020 [1] and due at $100 [2]."),
        ("It rose by 15 %² and costs 20 €¹.", "It rose by 15 % [1] and costs 20 € [2]."),
    ],
)
def test_running_text_keeps_its_shape(text: str, expected: Any) -> None:
    assert process(complete(text, AnswerProtocol.MARKERS)).response == expected


def test_a_marker_without_quote_gets_the_place_its_sentence_relies_on() -> None:
    processed = process(complete("The landlord must give notice 60 days before [1].", AnswerProtocol.MARKERS))
    citation = processed.citations[0]
    assert citation.quoted_text == "The landlord shall give notice 60 days before."
    unrelated = process(complete("Bananas are yellow [1].", AnswerProtocol.MARKERS)).citations[0]
    assert (unrelated.verified, unrelated.source_start) == (False, None)


def test_an_answer_of_hedges_alone_abstains() -> None:
    assert process(complete("The sources do not mention this.", AnswerProtocol.MARKERS)).abstained
    assert not process(complete("The sources do not mention dogs. Rent rises.", AnswerProtocol.MARKERS)).abstained


def test_native_citations_become_segments() -> None:
    text = "Rent may rise once a year. Dogs need consent."
    native = (
        NativeCitation(start=0, end=25, source_number=1, quote="Rent may rise once a year"),
        NativeCitation(start=27, end=45, source_number=2, quote="Dogs need the\nlandlord's consent."),
        NativeCitation(start=27, end=45, source_number=8, quote="x"),
    )
    processed = process(complete(text, AnswerProtocol.NATIVE, native_citations=native))
    assert processed.response == "Rent may rise once a year [1]. Dogs need consent [2]."
    assert all(citation.verified for citation in processed.citations)
    assert processed.warnings == ("cited source(s) that do not exist: 8",)


# ---- check-only --------------------------------------------------------------------------------------------------


def test_a_supplied_answer_stays_unchanged_and_its_markers_are_found() -> None:
    text = "Dogs need consent (Source: Act). Rent may rise [Source 2] once.\n\nReferences:\n1. Act\n2. Rules"
    request = JobRequest(response=text, context=CONTEXT)
    processed = postprocess(request, None, None)
    assert processed.response == text
    assert [text[c.start_pos : c.end_pos] for c in processed.citations] == ["(Source: Act)", "[Source 2]"]
    assert [(c.source_index, c.rank) for c in processed.citations] == [(0, 1), (1, 2)]
    assert len(processed.statements) == 2


def test_an_unknown_number_in_a_supplied_answer_belongs_to_its_statement() -> None:
    processed = postprocess(JobRequest(response="Rent may rise [5]. Dogs too [1].", context=CONTEXT), None, None)
    assert [(statement.citations, statement.unknown) for statement in processed.statements] == [((), (5,)), ((0,), ())]


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                ["[1]", "[2]", "[1, 2]", "[9]", "¹", ". ", " ", "\n", "Rent may rise", "dogs", "(Source 1)"]
            ),
            st.text(max_size=6),
        ),
        max_size=12,
    )
)
@example(["[1]", "[1]", "0;", "Rent may rise"])  # two clauses, one citation
def test_any_supplied_answer_is_parsed_with_exact_positions(pieces: list[str]) -> None:
    text = "".join(pieces).encode("utf-8", "replace").decode()
    request = JobRequest(response=text, context=CONTEXT)
    processed = postprocess(request, None, None)
    assert processed.response == text
    assert_positions_hold(processed, request)
    # Clauses of one sentence share its citations; sentences do not.
    claimed = [
        position
        for _, clauses in groupby(processed.statements, lambda statement: statement.sentence)
        for position in dict.fromkeys(position for clause in clauses for position in clause.citations)
    ]
    assert claimed == sorted(set(claimed))


# ---- taking statements out ---------------------------------------------------------------------------------------


def test_redacting_a_sentence_of_a_longer_segment_keeps_the_rest() -> None:
    request = ask()
    processed = process(complete(segments(("Rent may rise. It doubles daily.", [(1, "Rent may rise")]))), request)
    second = processed.statements[1]
    assert redact(request, processed, [(second.start, second.end)]).response == "Rent may rise [1]."


def test_redaction_of_a_supplied_answer_cuts_its_text() -> None:
    request = JobRequest(response="Rent may rise [1]. It doubles [2]. Dogs need consent [2].", context=CONTEXT)
    processed = postprocess(request, None, None)
    second = processed.statements[1]
    shorter = redact(request, processed, [(second.start, second.end)])
    assert shorter.response == "Rent may rise [1]. Dogs need consent [2]."
    assert_positions_hold(shorter, request)


# ---- quotes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quote", "content", "expected"),
    [
        ("abc", "x abc y", "abc"),
        ("RENT - may", "Rent – may rise.", "Rent – may"),
        ("ABC def", "x abc \n DEF y", "abc \n DEF"),
        ('say "yes"', "to say “yes” now", "say “yes”"),
        ("a - b", "x a – b", "a – b"),
        ("first", "the ﬁrst", "ﬁrst"),
        ("irst", "the ﬁrst", None),
        ("cafe\u0301 x", "le café x", "café x"),
        ("hy\u00adphen", "a hyphen b", "hyphen"),
        ('"Rent may rise."', "The rent may rise, perhaps", "rent may rise"),
        ("rent may ... once a year", "Rent may rise once a year", "Rent may rise once a year"),
        ("rent may ... once a year", "Once a year rent may fall", None),
        ("   ", "anything", None),
        ("...", "anything", None),
    ],
)
def test_quotes_are_found_whatever_their_typography(quote: str, content: str, expected: Any) -> None:
    span = locate(quote, content)
    assert (content[span.start : span.end] if span else None) == expected


def test_code_keeps_its_brackets_and_footnotes_are_no_part_of_an_answer() -> None:
    text = "Rent may rise [1]:\n```\nrise = rents[1]\n```\nand `x[2]`."
    processed = process(complete(text, AnswerProtocol.MARKERS))
    assert processed.response == text
    assert len(processed.citations) == 1
    request = ask(CONTEXT).model_copy(
        update={"response": "Rent may rise.¹ Dogs need consent.²\n\n¹ Act, p. 14  \n² House rules"}
    )
    checked = postprocess(request, None, None)
    assert [citation.source_index for citation in checked.citations] == [0, 1]
    assert len(checked.statements) == 2


@pytest.mark.parametrize(
    "citations",
    [
        [{"node_id": "n-act-12", "rank": 1}],
        [{"chunk_id": "n-act-12"}],
        ["n-act-12"],
        "n-act-12",
        [{"node_id": "2"}],
    ],
)
def test_a_source_may_be_cited_by_the_id_of_its_chunk(citations: Any) -> None:
    context = [
        {"content": "Rent may rise once a year.", "chunk_id": "n-act-2"},
        {"content": "Dogs need consent.", "chunk_id": "n-act-12"},
    ]
    processed = process(
        complete(json.dumps({"answer": "Dogs need consent.", "citations": citations})), ask(context=context)
    )
    assert [citation.source_index for citation in processed.citations] == [1]
