"""Commands beside running servers load what they use, and no more: libraries are nearly all of the time that they take to start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Servers

HEAVY = (
    "aiohttp", "alembic", "anthropic", "celery", "fastapi", "genai_prices", "httpx2", "jinja2", "jsonschema_rs", "kombu",
    "markdown_it", "openai", "redis", "rich", "sqlalchemy", "uvicorn",
    "tasks.answers.parse", "tasks.celery_tasks", "tasks.generate", "tasks.grounding", "worker.scheduling.feed", "worker.ledger.queue",
    "worker.ledger.removal", "worker.process.spool",
)  # fmt: skip
"""Libraries and steps that take long to load, and that none of these commands uses but where it says so."""

SCRIPT = f"""
import sys
from worker import cli
codes = [cli.run(line.split()) for line in sys.argv[1:]]
print(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)
sys.exit(max(codes))
"""

HINTING = {"celery", "kombu", "redis"}
"""What a message to the workers takes."""

MORE_THAN_ARE_HINTED = 51


@pytest.fixture
def environment(servers: Servers, database_url: str, tmp_path: Path) -> dict[str, str]:
    own = {
        "NIGHTDESK_HOME": str(tmp_path / "home"),
        "NIGHTDESK_DATABASE_URL": database_url,
        "NIGHTDESK_REDIS_URL": servers.redis_url,
        "NIGHTDESK_KEY_PREFIX": f"{database_url.rpartition('_')[2]}:",
    }
    return {**{name: value for name, value in os.environ.items() if not name.startswith("NIGHTDESK_")}, **own}


def run(environment: dict[str, str], *commands: str) -> tuple[int, str, set[str]]:
    """Worst exit code and output of commands in one process, and what they loaded of ``HEAVY``."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *commands], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, set(done.stderr.splitlines()[-1].split())


def test_commands_load_what_they_use(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    jobs = [
        {"custom_id": f"q{number}", "query": f"When does hall {number} open?", "context": ["It opens at nine."]}
        for number in range(MORE_THAN_ARE_HINTED)
    ]
    path.write_text("\n".join(map(json.dumps, jobs)))

    code, out, loaded = run(environment, f"submit {path}")
    assert (code, loaded) == (0, set())
    batch = out.strip()

    code, out, loaded = run(environment, f"results {batch} -o -")
    assert (code, len(out.splitlines()), loaded) == (1, MORE_THAN_ARE_HINTED, set())
    assert run(environment, f"status {batch}", "list", f"show {batch}:q3")[::2] == (0, {"rich"})


def test_a_few_jobs_are_hinted_over_celery(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "question.jsonl"
    path.write_text(json.dumps({"query": "When does the hall open?", "context": ["It opens at nine."]}))

    code, _, loaded = run(environment, f"submit {path}")

    assert code == 0
    assert loaded >= HINTING
