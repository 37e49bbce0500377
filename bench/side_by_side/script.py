"""The script that a user would write in place of this system: stock client, a semaphore, JSON lines out, no check."""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any, TextIO

from openai import AsyncOpenAI, DefaultAioHttpClient

from bench.side_by_side.workload import INSTRUCTIONS, prompt_of


async def answer(client: AsyncOpenAI, slots: asyncio.Semaphore, job: dict[str, Any], out: TextIO) -> None:
    """Calls for one job and writes its line."""
    async with slots:
        completion = await client.chat.completions.create(
            model="stand-in",
            messages=[{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": prompt_of(job)}],
        )
    out.write(json.dumps({"query": job["query"], "answer": completion.choices[0].message.content}) + "\n")


async def run(jobs: list[dict[str, Any]], out: TextIO, options: argparse.Namespace) -> None:
    """Answers all questions; says ``ready`` when the client is built."""
    slots = asyncio.Semaphore(options.calls)
    transport = DefaultAioHttpClient() if options.aiohttp else None
    async with AsyncOpenAI(api_key="unused", base_url=options.base_url, http_client=transport) as client:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.gather(*(answer(client, slots, job, out) for job in jobs))


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("base_url")
    parser.add_argument("--calls", type=int, default=1_000, help="at once")
    parser.add_argument("--aiohttp", action="store_true", help="by the SDK's aiohttp transport")
    options = parser.parse_args()
    with options.questions.open() as lines:
        jobs = [json.loads(line) for line in lines]
    with options.output.open("w") as out:
        asyncio.run(run(jobs, out, options))


if __name__ == "__main__":
    main()
