"""The spellings of a line that holds an answer to check."""

from typing import Any

import pytest

from tasks.errors import InputError
from tasks.raw_jobs import as_check_only
from tasks.submit import parse_request

ANSWER = "It closes at noon."
SOURCE = "The archive closes at noon."


@pytest.mark.parametrize("sources", ["context", "sources"])
@pytest.mark.parametrize("response", ["response", "answer"])
@pytest.mark.parametrize("query", ["query", "question"])
def test_every_spelling_is_the_same_job(sources: str, response: str, query: str) -> None:
    raw = {sources: [SOURCE, {"content": SOURCE, "title": "Hours"}], response: ANSWER, query: "When?", "label": 1}

    request, warnings = parse_request(as_check_only(raw))

    assert request.check_only
    assert (request.query, request.response) == ("When?", ANSWER)
    assert [source.content for source in request.context] == [SOURCE, SOURCE]
    assert request.context[1].metadata == {"title": "Hours"}
    assert request.metadata == {"label": 1}
    assert warnings == ["unknown keys were put into metadata: 'label'"]


def test_the_question_may_be_left_out() -> None:
    assert as_check_only({"sources": [SOURCE], "answer": ANSWER}) == {
        "context": [{"content": SOURCE}],
        "response": ANSWER,
    }


@pytest.mark.parametrize(
    "rest",
    [
        {"answer": [ANSWER]},
        {"prediction": {"content": ANSWER, "references": []}},
        {"response": {"output": ANSWER, "tokenUsage": {"total": 9}}},
        {"output": [{"role": "user", "content": "When?"}, {"role": "assistant", "content": ANSWER}]},
        {"output": {"choices": [{"index": 0, "message": {"role": "assistant", "content": ANSWER}}]}},
        {"response": {"generations": [[{"text": ANSWER}]]}},
        {"generated_texts": ANSWER, "generation_gt": ["Never."]},
        {"modelOutput": ANSWER, "expected_output": "Never."},
        {"messages": [{"role": "user", "content": "When?"}, {"role": "assistant", "content": ANSWER}]},
    ],
)
def test_an_answer_is_read_in_the_shapes_of_others(rest: dict[str, Any]) -> None:
    assert as_check_only({"query": "When?", "context": [SOURCE], **rest})["response"] == ANSWER


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"sources": [SOURCE]}, "response: is missing: put the answer to check there, or under 'answer'"),
        ({"sources": [SOURCE], "response": None}, "response: is missing"),
        (
            {"context": [SOURCE], "sources": [], "answer": ANSWER},
            "sources: is another name of 'context', which is given too",
        ),
        (
            {"context": [SOURCE], "answer": ANSWER, "response": ANSWER},
            "keep one of them, or say which with --map response=answer",
        ),
    ],
)
def test_a_line_that_can_not_be_checked_is_refused(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        as_check_only(raw)
    assert message in str(caught.value)


@pytest.mark.parametrize("raw", [[1], "text", None, 7])
def test_a_line_that_is_no_object_is_returned_unchanged(raw: Any) -> None:
    with pytest.raises(InputError, match="a job must be a JSON object"):
        parse_request(as_check_only(raw))
