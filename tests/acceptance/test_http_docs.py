"""The page on HTTP is right: its examples are run in order, by curl, against ``nightdesk serve`` and a worker."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from schemas.states import FINAL_STATES
from tests.acceptance.conftest import System
from tests.deadlines import scale_to_load
from tests.forking import start_command

PAGE = Path(__file__).parents[2] / "docs" / "http.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl to run the examples with")
def test_every_example_of_the_page_does_what_it_shows(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    system.start_worker()
    out, err = system.logs / "serve.out", system.logs / "serve.err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        service = start_command(
            ["serve", "--port", "0"], system.environment(), stdout=stdout.fileno(), stderr=stderr.fileno()
        )
    try:
        system.until(lambda: out.read_text().endswith("\n"), what="the address of the service")
        names = {"NIGHTDESK": out.read_text().strip()}
        blocks = re.findall(r"```sh\n(.*?)```(?:\n\n```json\n(.*?)```)?", PAGE.read_text(), re.DOTALL)
        answers = [_run(script, example, names) for script, example in blocks]
        monkeypatch.setenv("NIGHTDESK", names["NIGHTDESK"])
        namespace: dict[str, Any] = {}
        for program in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
            exec(program, namespace)
        namespace["client"].close()
        if shutil.which("node") is not None:
            (script,) = re.findall(r"```js\n(.*?)```", PAGE.read_text(), re.DOTALL)
            node = _run_node(script, names["NIGHTDESK"])
            assert node == ["The notice period is three months [1]."]
    finally:
        service.send_signal(signal.SIGTERM)
        code = service.wait(scale_to_load(60))

    assert code == 0, err.read_text()
    assert len(answers) > 10
    assert namespace["batch"].status == "completed"
    assert [row["response"]["body"]["outcome"] for row in namespace["answers"]] == ["answered"]
    assert namespace["response"].output_text.startswith("The notice period is three months")
    assert namespace["citation"].filename == "lease.txt"
    assert namespace["response"].metadata["nightdesk_outcome"] == "answered"
    assert "".join(namespace["pieces"]) == namespace["response"].output_text
    result, by_name = answers[1], answers[8]
    assert (result["state"], result["outcome"]) == ("completed", "answered")
    assert "three months" in result["response"]
    assert (by_name["custom_id"], by_name["state"]) == ("q1", "completed")
    assert err.read_text().endswith("stopped\n")
    assert "Traceback" not in err.read_text()


def _run_node(script: str, url: str) -> list[str]:
    """Run a program in JavaScript; returns the lines that it prints."""
    command = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(command, env={**os.environ, "NIGHTDESK": url}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _run(script: str, example: str, names: dict[str, str], tries: int = 5) -> Any:
    """Run an example, compare the form of its answer with the one shown, and note the ids in it."""
    done = subprocess.run(["bash", "-euc", script], env=names, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{script}: {done.stderr}"
    answer = json.loads(done.stdout.splitlines()[0])
    if "wait=" in script and answer["state"] not in set(FINAL_STATES) and tries:
        # As the page says: ask again. A worker on a busy machine takes its time to start.
        return _run(script, example, names, tries - 1)
    if example:
        assert _form(answer) == _form(json.loads(example)), done.stdout
        names |= {name.upper(): answer[f"{name}_id"] for name in ("job", "batch") if f"{name}_id" in answer}
    return answer


def _form(value: Any) -> Any:
    """A value without what differs from run to run: ids."""
    if isinstance(value, dict):
        return {key: "id" if key.endswith("_id") and each else _form(each) for key, each in value.items()}
    return [_form(each) for each in value] if isinstance(value, list) else value
