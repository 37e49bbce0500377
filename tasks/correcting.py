"""The second round: a prompt goes on with the answer before and what is wrong with it; or the round is given up."""

from schemas.job import JobRequest
from schemas.prompt import Correction, Message, Prompt, Role, TextPart, hash_messages
from schemas.states import JobState
from tasks.context.hostile import defused
from tasks.ports import Advance, Leased
from tasks.templates import Slots, fill, load_part

TEMPLATE, VERSION = "_correction", "1"

MAX_PREVIOUS_CHARACTERS = 20_000
"""Of the answer before that is shown again; about 5,000 tokens."""


def asked_again(job: Leased) -> Correction | None:
    """Why this round was begun; None in the first."""
    return job.correction if job.round else None


def given_up(job: Leased, why: str) -> Advance:
    """Back to the check of the answer before, which was paid for; it says why there is no better one."""
    before = job.correction or Correction(purpose="reask")
    correction = before.model_copy(update={"given_up": why, "previous": "", "problems": ()})
    return Advance(
        JobState.SCHEDULED, job.request.config.check_step, job.round - 1, event="given_up", correction=correction
    )


def with_correction(prompt: Prompt, request: JobRequest, correction: Correction | None) -> Prompt:
    """The prompt of a second round; without a correction the prompt itself.

    The answer before is the model's own words and the problems quote it: neither passes through the template engine,
    and chat tokens in them (copied from a source, say) are taken apart like those of a source.
    The snapshot holds the added messages like all others, and its hash proves the whole.
    """
    if correction is None:
        return prompt
    slots = Slots(defused)
    variables = {
        "purpose": correction.purpose,
        "problems": [slots.put(problem) for problem in correction.problems],
    }
    added = [
        Message(role=Role(role), parts=(TextPart(text="".join(pieces)),))
        for role, pieces in fill(load_part(TEMPLATE, VERSION), slots, variables)
    ]
    # Providers refuse a turn without words.
    if previous := defused(correction.previous[:MAX_PREVIOUS_CHARACTERS]).strip():
        added.insert(0, Message(role=Role.ASSISTANT, parts=(TextPart(text=previous),)))
    messages = (*prompt.snapshot.messages, *added)
    contents = [source.content for source in request.context]
    proof = hash_messages([(message.role, message.text(contents)) for message in messages])
    snapshot = prompt.snapshot.model_copy(update={"messages": messages, "sha256": proof})
    return prompt.model_copy(update={"snapshot": snapshot})
