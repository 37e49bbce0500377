"""The second round: extends the prompt by the first answer and its problems, or gives the round up."""

from schemas.job import JobRequest
from schemas.prompt import Correction, Prompt, Role, hash_messages
from schemas.states import JobState
from tasks.ports import Advance, Leased
from tasks.prompting.sources.injection import defuse
from tasks.prompting.templates import Slots, as_message, fill, load_part

TEMPLATE, VERSION = "_correction", "1"

MAX_PREVIOUS_CHARACTERS = 20_000
"""Most characters of the first answer in the second prompt; about 5,000 tokens."""


def give_up(job: Leased, why: str) -> Advance:
    """Returns the job to the check of the first answer, which is paid for, with the reason for giving up."""
    before = job.correction or Correction(purpose="reask")
    correction = before.model_copy(update={"given_up": why, "previous": "", "problems": ()})
    return Advance(
        JobState.SCHEDULED, job.request.config.check_step, job.round - 1, event="given_up", correction=correction
    )


def with_correction(prompt: Prompt, request: JobRequest, correction: Correction | None) -> Prompt:
    """The prompt of a second round; without a correction the prompt itself.

    The first answer is the model's own text and the problems quote it. Neither passes through the template engine, and
    chat tokens in them (copied from a source, for example) are disabled like those of a source. The snapshot contains
    the added messages too, and its hash covers all of them.
    """
    if correction is None:
        return prompt
    slots = Slots(defuse)
    variables = {
        "purpose": correction.purpose,
        "problems": [slots.add(problem) for problem in correction.problems],
    }
    added = [as_message(role, pieces) for role, pieces in fill(load_part(TEMPLATE, VERSION), slots, variables)]
    # Providers refuse a message without text.
    if previous := defuse(correction.previous[:MAX_PREVIOUS_CHARACTERS]).strip():
        added.insert(0, as_message(Role.ASSISTANT, [previous]))
    messages = (*prompt.snapshot.messages, *added)
    contents = [source.content for source in request.context]
    proof = hash_messages([(message.role, message.text(contents)) for message in messages])
    snapshot = prompt.snapshot.model_copy(update={"messages": messages, "sha256": proof})
    return prompt.model_copy(update={"snapshot": snapshot})
