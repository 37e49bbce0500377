"""The textbook way with Celery: a chain of two tasks a question in a pool of threads, the stock client, results in Redis."""

import argparse
import json
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from celery import Celery, chain
from openai import OpenAI

from bench.side_by_side.workload import INSTRUCTIONS, prompt_of

URL = os.environ.get("CHAIN_REDIS_URL", "redis://127.0.0.1/0")
app = Celery("chain", broker=URL, backend=URL)
app.conf.update(worker_prefetch_multiplier=1, task_ignore_result=False, result_expires=3600)

_WORD = re.compile(r"\w+")


@cache
def client() -> OpenAI:
    """One client for all threads of the process."""
    return OpenAI(api_key="unused", base_url=os.environ["CHAIN_BASE_URL"])


@app.task(name="chain.generate")
def generate(job: dict[str, Any]) -> dict[str, Any]:
    """Calls the provider."""
    completion = client().chat.completions.create(
        model="stand-in",
        messages=[{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": prompt_of(job)}],
    )
    return {**job, "answer": completion.choices[0].message.content}


@app.task(name="chain.check")
def check(job: dict[str, Any]) -> dict[str, Any]:
    """Compares the words of each sentence with those of the sources, as a tutorial would."""
    words = set(_WORD.findall(" ".join(job["context"]).lower()))
    claims = []
    for sentence in re.split(r"(?<=[.!?])\s+", job["answer"]):
        own = set(_WORD.findall(sentence.lower()))
        claims.append({"text": sentence, "supported": len(own & words) > len(own) / 2})
    return {"query": job["query"], "answer": job["answer"], "claims": claims}


def main() -> None:
    """Sends a chain for each question, waits for all, and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    with options.questions.open() as lines:
        jobs = [json.loads(line) for line in lines]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    results = [chain(generate.s(job), check.s()).apply_async() for job in jobs]
    with options.output.open("w") as out:
        out.writelines(json.dumps(result.get(timeout=3600)) + "\n" for result in results)


if __name__ == "__main__":
    main()
