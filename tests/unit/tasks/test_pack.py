"""Packing: the selection and order of sources in the prompt, and the omitted sources in the record."""

from typing import Any

import pytest

from schemas.generation import AnswerProtocol
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import LeftOut, LeftOutReason, MessagesSnapshot, SourcePart
from tasks.answers.formats import resolve_format
from tasks.answers.postprocess import postprocess
from tasks.prompting.messages import render
from tasks.prompting.sources.pack import ESTIMATE, estimate, exact_counter
from tests.builders import make_completion

LEASE = (
    "The tenant may end the lease with a notice period of three months. Notice must be given in writing and the"
    " landlord has to confirm its receipt within fourteen days, or else the period starts anew. Rent may be raised"
    " once a year, after an announcement that gives the reason and the amount, and never in the first year."
)


def snapshot(context: Any, **config: Any) -> MessagesSnapshot:
    request = JobRequest(query="What holds?", context=context, config=GenerationConfig(**config))
    return render(request, AnswerProtocol.SEGMENTS).snapshot


def omitted(*omissions: tuple[int, str, int | None]) -> tuple[LeftOut, ...]:
    return tuple(LeftOut(source_index=index, reason=LeftOutReason(why), of=of) for index, why, of in omissions)


# ---- order -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "order"),
    [
        ([None, None, None], (0, 1, 2)),
        ([0.2, 0.9, 0.5], (1, 2, 0)),
        ([None, 0.1, None, 0.3], (3, 1, 0, 2)),
        ([0.5, 0.5, 0.7], (2, 0, 1)),
        ([-1.0, 0.0, None], (1, 0, 2)),
    ],
)
def test_the_most_relevant_comes_first_and_ties_stay(scores: list[float | None], order: tuple[int, ...]) -> None:
    context = [{"content": f"Source number {n}.", "relevance_score": score} for n, score in enumerate(scores)]
    assert snapshot(context).shown == order


def grouped(*groups: tuple[str, float]) -> list[dict[str, Any]]:
    return [
        {"content": f"{'xyzw'[n % 4] * 3} fills line {n}. " * 20, "sub_query": query, "relevance_score": score}
        for n, (query, score) in enumerate(groups)
    ]


def test_each_sub_query_keeps_its_best_source_however_weak() -> None:
    context = grouped(("a", 0.9), ("a", 0.8), ("a", 0.7), ("b", 0.2), ("c", 0.1))
    room_for_three = 3 * estimate(context[0]["content"]) + 5
    packed = snapshot(context, max_context_tokens=room_for_three)
    assert packed.shown == (0, 3, 4)
    assert packed.left_out == omitted((1, "budget", None), (2, "budget", None))


def test_sub_queries_are_merged_by_relevance_and_named_once() -> None:
    context = grouped(("a", 0.3), ("b", 0.9), ("a", 0.8))
    assert snapshot(context).shown == (1, 2, 0)
    request = JobRequest(query="All?", context=context)
    body = render(request, AnswerProtocol.SEGMENTS).snapshot.texts([source.content for source in request.context])[-1][
        1
    ]
    assert body.endswith("Parts to cover in one answer:\n- a\n- b\nQuestion: All?")


def test_aggregation_asks_for_points_and_renders_them() -> None:
    request = JobRequest(query="All?", context=["Rent may rise once a year."], aggregate=True)
    rules = render(request, AnswerProtocol.SEGMENTS).snapshot.messages[0].text([])
    assert "Merge what all sources say into one list" in rules
    assert resolve_format(request).value == "bullets"
    table_request = request.model_copy(update={"config": GenerationConfig(output_format="table")})
    assert resolve_format(table_request).value == "table"


# ---- repetitions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [LEASE, LEASE.upper(), LEASE.replace(" ", "\n"), f"  {LEASE}  "],
    ids=["same", "case", "lines", "margins"],
)
def test_the_same_words_are_shown_once(other: str) -> None:
    packed = snapshot([LEASE, other])
    assert packed.shown == (0,)
    assert packed.left_out == omitted((1, "duplicate", 0))


def test_a_source_of_almost_the_same_words_is_shown() -> None:
    assert snapshot([LEASE, LEASE.replace("three", "four")]).shown == (0, 1)


def test_the_same_words_of_two_products_are_two_sources() -> None:
    context = [{"content": LEASE, "product_name": name} for name in ("Basic", "Premium", "Basic")]
    packed = snapshot(context)
    assert packed.shown == (0, 1)
    assert packed.left_out == omitted((2, "duplicate", 0))


def test_the_more_relevant_of_two_is_kept_and_citations_point_at_it() -> None:
    context = [
        {"content": LEASE, "relevance_score": 0.5},
        {"content": "Other matters are settled elsewhere.", "relevance_score": 0.6},
        {"content": LEASE, "relevance_score": 0.9},
    ]
    request = JobRequest(query="How long is the notice?", context=context)
    prompt = render(request, AnswerProtocol.MARKERS)
    assert prompt.snapshot.shown == (2, 1)
    processed = postprocess(request, prompt, make_completion("The notice period is three months [1]."))
    assert [citation.source_index for citation in processed.citations] == [2]
    assert "left out, because another source says the same: context[0] (repeats context[2])" in processed.warnings


# ---- the budget ------------------------------------------------------------------------------------------------


def test_omitted_sources_are_named_and_the_last_is_trimmed_at_a_sentence_end() -> None:
    context = [f"{'ABCD'[n]} is said in a sentence here, number {n}. " * 12 for n in range(4)]
    packed = snapshot(context, max_context_tokens=200)
    parts = [part for part in packed.messages[-1].parts if isinstance(part, SourcePart)]
    assert packed.shown == (0, 1)
    assert context[1][: parts[1].end].endswith("number 1.")
    assert packed.left_out == omitted((2, "budget", None), (3, "budget", None))
    assert packed.source_tokens is not None
    assert 100 < packed.source_tokens <= 200
    assert packed.prompt_tokens is not None
    assert packed.prompt_tokens > packed.source_tokens
    assert packed.counted_by == ESTIMATE


def test_models_of_openai_are_counted_by_their_own_tokenizer_near_the_budget() -> None:
    pytest.importorskip("rs_bpe")
    numbers = "1,184.55; 2,246.71; 3,088.13; " * 40
    wide = snapshot([numbers], max_context_tokens=5_000, model="gpt-6-luna")
    assert wide.counted_by == ESTIMATE
    tight = snapshot([numbers], max_context_tokens=300, model="gpt-6-luna")
    assert tight.counted_by == "o200k_base"
    counter = exact_counter("gpt-6-luna")
    assert counter is not None
    (part,) = [part for part in tight.messages[-1].parts if isinstance(part, SourcePart)]
    assert tight.source_tokens == counter.count(numbers[: part.end]) <= 300
    assert snapshot([numbers], max_context_tokens=300, model="claude-x").counted_by == ESTIMATE


@pytest.mark.parametrize(
    ("model", "vocabulary"),
    [
        ("gpt-6-luna", "o200k_base"),
        ("gpt-4o-mini", "o200k_base"),
        ("openai/gpt-4.1", "o200k_base"),
        ("o3", "o200k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("claude-haiku-5-5", None),
        ("llama3.2", None),
        (None, None),
    ],
)
def test_each_model_has_its_vocabulary(model: str | None, vocabulary: str | None) -> None:
    pytest.importorskip("rs_bpe")
    counter = exact_counter(model)
    assert (counter.name if counter else None) == vocabulary


@pytest.mark.parametrize("protocol", AnswerProtocol)
def test_a_prompt_spends_few_tokens_beside_its_sources(protocol: AnswerProtocol) -> None:
    counter = exact_counter("gpt-6") or pytest.skip("no tokenizer here")
    for mode in ("simple", "grounded", "analytical", "conversational", "comparison", "summarization"):
        for count in (1, 8, 20):
            contents = [f"Fact {'abcdefghijklmnopqrst'[n] * 3} is told by source {n}." for n in range(count)]
            request = JobRequest(query="x", context=contents, config=GenerationConfig(mode=mode))
            texts = render(request, protocol).snapshot.texts(contents)
            beside = sum(counter.count(text) for _, text in texts) - sum(map(counter.count, contents))
            assert beside < 120 + 12 * count
