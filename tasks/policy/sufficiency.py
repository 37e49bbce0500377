"""Tells whether sources seem to answer a question that a model declines to answer: an abstention is no proof of a gap."""

from collections.abc import Iterator
from operator import or_

from schemas.job import JobRequest
from tasks.policy.relevance import mean_relevance
from tasks.policy.scores import DEFAULTS, least_relevance
from tasks.questions.subject import (
    EXPECTED,
    UNKNOWN_SUBJECT,
    Masks,
    Question,
    SubjectScore,
    is_expected,
    is_unknown,
    mask_source,
    read_question,
)
from tasks.text.source_index import index_source


def sources_suffice(request: JobRequest) -> bool:
    """Tells whether a passage of a job's sources is about its question, and has the kind of thing that it asks for.

    A heuristic, the one by which the offline provider decides to answer. Sources of too little relevance do not suffice.
    """
    constants = request.config.quality or DEFAULTS
    mean = mean_relevance(request)
    if mean is not None and mean < least_relevance(request.query, constants):
        return False
    previous = request.conversation_history[-1][0] if request.conversation_history else ""
    questions = read_question(request.query, previous)
    if not questions:
        return False
    masks = [mask_source(questions[0], index_source(source.content), source.metadata) for source in request.context]
    least = UNKNOWN_SUBJECT if is_unknown(questions, masks) else 0.0
    return all(any(score >= least for score in _scores(request, question, masks)) for question in questions)


def _scores(request: JobRequest, question: Question, masks: list[Masks]) -> Iterator[float]:
    """The log-odds of the passages of the sources that have a word of a question, and a thing of the kind that it asks for."""
    scorer = SubjectScore(question)
    for source, mask in zip(request.context, masks, strict=True):
        spans = index_source(source.content).spans
        around = [0, *mask.passages, 0]
        for position, inside in enumerate(mask.passages):
            start, end = spans[position]
            text = source.content[start:end]
            if inside and is_expected(question, text):
                yield scorer.score(inside, or_(around[position], around[position + 2]), mask) + EXPECTED
