"""Tells whether sources seem to answer a question that a model declines to answer: an abstention is no proof of a gap."""

from schemas.job import JobRequest
from tasks.policy.relevance import mean_relevance
from tasks.policy.scores import DEFAULTS, least_relevance
from tasks.questions.subject import SubjectScore, mask_source, read_question
from tasks.text.source_index import index_source


def sources_suffice(request: JobRequest) -> bool:
    """Tells whether a passage of a job's sources is about its question.

    A heuristic, the one by which the offline provider decides to answer. Sources of too little relevance do not suffice.
    """
    constants = request.config.quality or DEFAULTS
    mean = mean_relevance(request)
    if mean is not None and mean < least_relevance(request.query, constants):
        return False
    question = read_question(request)
    if question is None:
        return False
    sources = [mask_source(question, index_source(source.content), source.metadata) for source in request.context]
    scorer = SubjectScore(question)
    return any(
        inside and scorer.score(inside, before | behind, masks) >= 0
        for masks in sources
        for before, inside, behind in zip([0, *masks.passages], masks.passages, [*masks.passages[1:], 0], strict=False)
    )
