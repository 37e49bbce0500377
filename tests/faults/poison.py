"""Runs the command line where a question with ``POISON`` ends its worker, in its prompt or in its check.

``python -m tests.faults.poison prompt worker --queues ...``
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from schemas.job import JobRequest
from tasks import generate
from tasks.grounding.checkers import CheckInput, Lexical
from worker.cli import main

POISON = "POISON"


def end_if_poisoned(request: JobRequest) -> None:
    """Kill this process, as the system does when memory runs out."""
    if POISON in request.query:
        os.kill(os.getpid(), signal.SIGKILL)


def poison_prompts() -> None:
    """Let each poisoned job end its worker before its first attempt."""
    render: Callable[..., Any] = generate.render  # type: ignore[attr-defined]

    def poisoned(request: JobRequest, *arguments: Any) -> Any:
        end_if_poisoned(request)
        return render(request, *arguments)

    generate.render = poisoned  # type: ignore[attr-defined]


def poison_checks() -> None:
    """Let each poisoned job end its worker when its answer is checked."""
    check = Lexical.check

    def poisoned(self: Lexical, answer: CheckInput) -> Any:
        end_if_poisoned(answer.request)
        return check(self, answer)

    Lexical.check = poisoned  # type: ignore[method-assign]


if __name__ == "__main__":
    {"prompt": poison_prompts, "check": poison_checks}[sys.argv.pop(1)]()
    main()
