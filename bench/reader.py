"""Prints the outputs that a reader gets of a hostile stand-in, or of a small real model, in each format and style.

    python -m bench.reader [NAME ...] [--format markdown] [--style numbered]      the stand-in's replies
    python -m bench.reader --ask FILE [--count 60]      asks the model of make test-local-llm, and stores its replies
    python -m bench.reader --replies FILE               what becomes of stored replies

Each output is the final text of a job as its producer gets it, with its state, outcome and warnings. Where the answer would
get a second round, that is said; the text is the one of an answer that stays as it is. ``--faults`` prints only outputs with
something that no reader should see.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

from schemas.generation import CitationStyle, OutputFormat
from schemas.job import JobRequest
from schemas.model_call import Completion
from tasks.prompting.messages import render
from tests.reader_outputs import Output, faults, outputs
from tests.stub import hostile
from worker.providers.registry import ConfiguredProviders
from worker.settings import Settings

REPOSITORY = Path(__file__).parents[1]
FORMATS = tuple(output_format for output_format in OutputFormat if output_format is not OutputFormat.AUTO)
STYLES = tuple(CitationStyle)
MAX_TOKENS = 96


# ---- the real model -----------------------------------------------------------------------------------------------


def questions(count: int) -> list[tuple[str, JobRequest]]:
    """The shipped examples, with each format and style in turn."""
    files = sorted((REPOSITORY / "examples").glob("*.jsonl"))
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines() if line.strip()]
    lines = [line for line in lines if line.get("context")]
    kinds = cycle(product(STYLES, FORMATS))
    requests = []
    for number, (line, (style, output_format)) in enumerate(islice(zip(cycle(lines), kinds, strict=False), count)):
        config = {
            "max_tokens": MAX_TOKENS, "max_context_tokens": 300, "temperature": 0.0, "min_relevance": 0.0, "timeout_s": 900,
            "output_format": output_format, "citation_style": style,
            "answer_protocol": ("segments", "markers")[(number // len(FORMATS)) % 2], "provider": "llamacpp",
        }  # fmt: skip
        request = JobRequest(query=line["query"], context=line["context"], config=config)
        requests.append((f"{line['custom_id']}-{number}", request))
    return requests


def ask(file: Path, count: int) -> None:
    """Stores the model's replies, one JSON object a line."""
    command = [sys.executable, "-m", "tests.local_llm.serve"]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            asyncio.run(_ask_all(server.stdout.readline().strip(), file, count))
        finally:
            server.kill()


async def _ask_all(address: str, file: Path, count: int) -> None:
    entry: Any = {"llamacpp": {"preset": "llamacpp", "base_url": f"{address}/v1"}}
    provider = ConfiguredProviders(Settings(providers=entry), {}).get("llamacpp")
    with file.open("w") as out:
        for name, request in questions(count):
            answered = await provider.call(provider.plan(request, render(request, provider.protocol(request.config))))
            line = {"name": name, "request": request.model_dump(mode="json")}
            out.write(json.dumps({**line, "completion": answered.completion.model_dump(mode="json")}) + "\n")
            out.flush()
    await provider.close()


# ---- the command --------------------------------------------------------------------------------------------------


def show(output: Output, *, raw: bool) -> None:
    """Prints an output with what it was made of."""
    config = output.request.config
    ending = output.outcome.value if output.outcome else output.state.value
    again = ", after another round" if output.again else ""
    print(f"==== {output.name}: {config.output_format.value}, {config.citation_style.value}: {ending}{again}")
    if raw:
        print(f"---- raw\n{output.raw}\n----")
    print(output.text)
    for fault in faults(output):
        print(f"!! {fault}")
    if output.warnings:
        print(f"   warnings: {'; '.join(output.warnings)}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--format", action="append", choices=[output_format.value for output_format in FORMATS])
    parser.add_argument("--style", action="append", choices=[style.value for style in STYLES])
    parser.add_argument("--ask", type=Path)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--replies", type=Path)
    parser.add_argument("--raw", action="store_true", help="print what the model wrote, too")
    parser.add_argument("--faults", action="store_true")
    options = parser.parse_args()
    if options.ask:
        ask(options.ask, options.count)
        return
    listed = list(_of_file(options.replies) if options.replies else _of_the_stand_in(options))
    counted = 0
    for output in listed:
        bad = bool(list(faults(output)))
        counted += bad
        if bad or not options.faults:
            show(output, raw=options.raw)
    print(f"{len(listed)} outputs, {counted} with something that no reader should see")


def _of_file(file: Path) -> Iterator[Output]:
    for line in file.read_text().splitlines():
        reply = json.loads(line)
        request = JobRequest.model_validate(reply["request"])
        yield outputs(reply["name"], request, Completion.model_validate(reply["completion"]))


def _of_the_stand_in(options: argparse.Namespace) -> Iterator[Output]:
    formats = options.format or [output_format.value for output_format in FORMATS]
    styles = options.style or ["numbered"]
    for name, reply in hostile.named(*options.names):
        for output_format, style in product(formats, styles):
            request = hostile.request(output_format=output_format, citation_style=style)
            yield outputs(name, request, hostile.completion(reply))


if __name__ == "__main__":
    main()
