"""CPU of the check of each hostile text as answer, as source and as a model's answer; ``python -m bench.hostile_texts [NAME...]``.

Each check runs in a process of its own, which the system ends at ``LIMIT_S`` seconds of CPU. Rows are those that took longer than
``SHOWN_S``, or more than ``GROWTH`` times as long as a text of half the length. The exit code is 1 if one was ended.
"""

import os
import resource
import sys
from collections.abc import Callable
from time import process_time

from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground
from tests.hostile_texts import hostile_texts
from tests.reader_outputs import outputs
from tests.stub import hostile

CHARACTERS = 100_000
LIMIT_S = 60
SHOWN_S = 2.0
GROWTH = 3.0
LEAST_S = 0.2
"""Less is mostly what a process does first."""
SOURCE = "The notice period is three months. The fee is 5,000 euros. Anna Berg pays it in May 2024."
ANSWER = "The fee is 5,000 euros [1]. Anna Berg pays it in May 2024 [1]. It is not due before 10:30."


def _work(role: str, text: str) -> Callable[[], object]:
    """The check of a text in a role."""
    if role == "completion":
        request = JobRequest(query="What is the fee?", context=({"content": SOURCE},))
        return lambda: outputs(role, request, hostile.completion(hostile.Reply(text)))
    response, sources = (text, [SOURCE]) if role == "answer" else (ANSWER, [text, SOURCE])
    context = tuple({"content": source} for source in sources)
    request = JobRequest(query="What is the fee?", context=context, response=response)
    return lambda: ground(request, postprocess(request, None, None))


def cpu_s(role: str, text: str) -> float | None:
    """The CPU of a check in a process of its own; None if it was ended."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reading)
        work = _work(role, text)
        started = process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (int(started) + LIMIT_S, int(started) + LIMIT_S))
        work()
        os.write(writing, f"{process_time() - started}".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        measured = answer.read()
    os.waitpid(child, 0)
    return float(measured) if measured else None


def main(names: list[str]) -> int:
    """Measures the texts of these names, or all."""
    ended = checks = 0
    for role in ("answer", "source", "completion"):
        _work(role, ANSWER)()
        for text in hostile_texts():
            if names and text.name not in names:
                continue
            half, whole = cpu_s(role, text.of_length(CHARACTERS // 2)), cpu_s(role, text.of_length(CHARACTERS))
            checks += 1
            if half is None or whole is None:
                ended += 1
                print(f"{role:<10} {text.name:<28} ended at {LIMIT_S} s", flush=True)
            elif names or whole > SHOWN_S or (whole > LEAST_S and whole > GROWTH * half):
                print(f"{role:<10} {text.name:<28} {whole:6.2f} s, {whole / half:4.1f} times half of it", flush=True)
    print(f"{checks} checks of {CHARACTERS:,} characters, {ended} ended")
    return int(ended > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
