"""Tests the guard of the Celery tasks, in a process of its own, as it changes Celery for the whole process."""

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
PROGRAM = """
import json
from worker.process.celery_app import make_app
from worker.process.intake import trust_nothing
from worker.settings import Settings

app = make_app(Settings(), "redis://127.0.0.1:1")
trust_nothing(app)
app.loader.import_default_modules()
print(json.dumps({name: task.Request for name, task in app.tasks.items()}))
"""


def test_every_task_of_a_worker_runs_nothing_but_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=REPOSITORY, check=True, capture_output=True, text=True, timeout=120
    )

    names = ("submit", "generate", "check", "local", "poll")
    assert json.loads(done.stdout) == {f"nightdesk.{name}": "worker.process.intake:PlainRequest" for name in names}
