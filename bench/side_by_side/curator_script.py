"""Answers the questions with bespokelabs-curator: run by a Python that has it, so nothing of this project is imported."""

import argparse
import json
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("CURATOR_CACHE_DIR", tempfile.mkdtemp(prefix="curator-"))
os.environ.setdefault("TELEMETRY_ENABLED", "false")
os.environ.setdefault("OPENAI_API_KEY", "unused")
# litellm, which curator needs, brings the tokenizer's vocabulary: nothing is fetched.
litellm = find_spec("litellm")
assert litellm is not None
assert litellm.origin is not None
os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers")

from bespokelabs import curator  # type: ignore[import-not-found]  # noqa: E402

INSTRUCTIONS = "Answer the question from the numbered sources only. Cite each source that you use as [N]."


class Answerer(curator.LLM):  # type: ignore[misc]
    """One prompt a question."""

    def prompt(self, job: dict[str, Any]) -> list[dict[str, str]]:
        """The sources, then the question."""
        sources = "\n\n".join(f"[{number}] {content}" for number, content in enumerate(job["contents"], 1))
        return [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": f"{sources}\n\nQuestion: {job['query']}"},
        ]

    def parse(self, job: dict[str, Any], answer: str) -> dict[str, Any]:
        """The line of a question."""
        return {"query": job["query"], "answer": answer}


def main() -> None:
    """Reads the questions, asks, and writes the answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("base_url")
    parser.add_argument("--calls", type=int, default=1_000, help="at once")
    options = parser.parse_args()
    with options.questions.open() as lines:
        raw = [json.loads(line) for line in lines]
    jobs = [{"query": job["query"], "contents": job["context"]} for job in raw]
    llm = Answerer(
        model_name="gpt-4-turbo",
        backend="openai",
        backend_params={
            "base_url": options.base_url,
            "max_concurrent_requests": options.calls,
            "max_requests_per_minute": 10_000_000,
            "max_tokens_per_minute": 10_000_000_000,
        },
    )
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    response = llm(jobs)
    rows = getattr(response, "dataset", response)
    with options.output.open("w") as out:
        out.writelines(json.dumps({"query": row["query"], "answer": row["answer"]}) + "\n" for row in rows)


if __name__ == "__main__":
    main()
