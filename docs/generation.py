"""Writes the outputs in docs/generation.md and docs/results.md: runs a job for each through steps, adapters and real SDKs.

The prose of the pages is written by hand; the text between ``<!-- run: name -->`` and ``<!-- end -->`` comes from here.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from docs.example_runner import QUESTION, ExampleRunner, scripted, spaced, writes
from docs.formats import CONTEXT
from schemas.generation import AnswerProtocol, GenerationMode
from schemas.job import JobRequest
from tasks.prompting.messages import render
from tests.lent_ledger import lending
from tests.servers import running_servers
from tests.stub.scripts import Piece, Script
from tests.stub.server import running_stub

PAGES = tuple(Path(__file__).parent / name for name in ("generation.md", "results.md"))

TENANT = Piece(
    "The notice period for the tenant is three months.", ((1, "notice period for the tenant is three months"),)
)
LANDLORD = Piece("The landlord has six months.", ((2, "The landlord has a notice period of six months."),))
RENT = Piece("The rent may rise once a year, by 4% at most.", ((2, "The rent may rise once a year, by 4% at most."),))
DEPOSIT = Piece("The deposit comes to two monthly rents.", ((1, "It begins with the month after the letter."),))

Example = Callable[[ExampleRunner], Awaitable[str]]

EXAMPLES: dict[str, Example] = {}


def example(function: Example) -> Example:
    """Registers an example under the name of its function."""
    EXAMPLES[function.__name__] = function
    return function


def block(text: str, kind: str = "") -> str:
    return f"```{kind}\n{text}\n```"


def as_json(value: Any) -> str:
    return block(json.dumps(value, ensure_ascii=False, indent=1), "json")


def task_of(mode: GenerationMode) -> str:
    """The sentences in which a mode puts its task to the model."""
    request = JobRequest(query=QUESTION, context=CONTEXT, config={"mode": mode})
    system = render(request, AnswerProtocol.SEGMENTS).snapshot.texts([source["content"] for source in CONTEXT])[0][1]
    return system.partition("\n")[0]


ANSWERS: dict[GenerationMode, tuple[dict[str, Any], Script]] = {
    GenerationMode.SIMPLE: ({}, ()),
    GenerationMode.GROUNDED: ({"provider": "openai"}, (TENANT, LANDLORD, RENT)),
    GenerationMode.ANALYTICAL: (
        {"provider": "anthropic"},
        spaced(
            Piece(
                "Tenant and landlord are not on a par: the tenant's notice period is three months,", TENANT.citations
            ),
            Piece("the landlord's six months.", LANDLORD.citations),
            Piece("The sources do not say from when the landlord's period runs."),
        ),
    ),
    GenerationMode.CONVERSATIONAL: (
        {"provider": "openai", "stream": True},
        spaced(
            Piece("Happy to help!"),
            Piece("As a tenant you have a notice period of three months,", TENANT.citations),
            Piece("and your landlord one of six months.", LANDLORD.citations),
        ),
    ),
    GenerationMode.COMPARISON: (
        {"provider": "mine", "output_format": "auto"},
        (
            Piece("The tenant's notice period is three months.", TENANT.citations),
            Piece("The landlord's notice period is six months.", LANDLORD.citations),
        ),
    ),
    GenerationMode.SUMMARIZATION: ({"provider": "mine", "output_format": "bullets"}, (LANDLORD, TENANT, RENT)),
}


@example
async def modes(runner: ExampleRunner) -> str:
    parts = []
    for mode, (config, script) in ANSWERS.items():
        with scripted(*script):
            result, detail = await runner.answer(config={"mode": mode, **config})
        assert detail.view.record is not None
        assert detail.view.record.provider_snapshot is not None
        who = f"{detail.view.record.model_provider}, in {detail.view.record.provider_snapshot.protocol}"
        task = f"Asked: *{task_of(mode)}*"
        parts += [f"**{mode.value}**", task, f"{result.outcome}, by {who}:", block(result.response)]
    return "\n\n".join(parts)


@example
async def objects(runner: ExampleRunner) -> str:
    facts = {"confidence": 0.9, "key_facts": ["The tenant has three months."], "limitations": []}
    runner.stub.then(writes(TENANT, LANDLORD, data=facts))
    result, _ = await runner.answer(config={"provider": "mine", "output_schema": "AnswerWithSources"})
    return as_json(result.structured)


@example
async def ungrounded(runner: ExampleRunner) -> str:
    parts = []
    for policy in ("flag", "redact", "retry", "reject"):
        runner.stub.then(writes(TENANT, DEPOSIT), *([writes(TENANT)] if policy == "retry" else []))
        result, detail = await runner.answer(
            config={"provider": "mine", "strictness": "strict", "on_ungrounded": policy}
        )
        calls = len(detail.attempts)
        summary = (
            f"**{policy}**: {result.outcome}, grounding {result.grounding_score:.2f}, {calls} call{'s' * (calls > 1)}"
        )
        parts += [summary, block(result.response)]
    return "\n\n".join(parts)


RENT_ANSWER = (
    "The rent may rise once a year, by 4% at most [1]. The landlord must give notice 90 days before [1]. "
    "The deposit is two monthly rents."
)
RENT_SOURCES = (
    {
        "content": "The rent may rise once a year, by 4% at most. The landlord shall give notice 60 days before.",
        "title": "Tenancy Act",
        "article": "21",
        "relevance_score": 0.91,
    },
    {"content": "The porter keeps the keys of the cellar.", "title": "House rules", "relevance_score": 0.55},
)
HIDDEN = {
    *("job_id", "batch_id", "message_id", "latency_ms", "timing_ms", "metadata", "values", "query", "response"),
    *("position", "output_format", "sources_used", "sources_provided", "truncated"),
}
"""Fields of a result that differ from run to run, that are empty here, or that the page shows above."""


def without_empty(value: Any) -> Any:
    """A value without fields that are null or empty."""
    match value:
        case dict():
            return {name: without_empty(part) for name, part in value.items() if part not in (None, "", [])}
        case list():
            return [without_empty(part) for part in value]
        case _:
            return value


@example
async def checked_answer(runner: ExampleRunner) -> str:
    result, _ = await runner.answer(
        "How much may the rent rise, and when must the landlord give notice?",
        RENT_SOURCES,
        response=RENT_ANSWER,
        custom_id="rent",
    )
    fields = json.loads(result.model_dump_json(exclude=HIDDEN))
    (citation, _) = fields["citations"]
    del citation["chunk_id"], citation["document_id"]
    fields["citations"] = [citation]
    return as_json(without_empty(fields))


# ---- the page --------------------------------------------------------------------------------------------------

_PLACE = re.compile(r"(<!-- run: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> dict[Path, str]:
    """The text of each page with the present outputs; every example has its place on one page."""
    texts = {page: page.read_text() for page in PAGES}
    places = [match[2] for text in texts.values() for match in _PLACE.finditer(text)]
    if sorted(places) != sorted(EXAMPLES):
        raise ValueError(f"on the pages: {sorted(places)}; examples: {sorted(EXAMPLES)}")

    async def run_examples() -> dict[str, str]:
        with running_stub() as stub:
            return {name: await EXAMPLES[name](ExampleRunner(stub)) for name in places}

    outputs = asyncio.run(run_examples())
    return {
        page: _PLACE.sub(lambda match: f"{match[1]}\n{outputs[match[2]]}\n\n{match[3]}", text)
        for page, text in texts.items()
    }


if __name__ == "__main__":
    with running_servers() as servers, lending(lambda: servers):
        outputs = pages()
    for path, content in outputs.items():
        path.write_text(content)
