"""Every connection to PostgreSQL goes silent under ``nightdesk run``: it goes on over new ones and ends well."""

from pathlib import Path

from tests.acceptance.cli_home import question, read_lines, write_lines
from tests.acceptance.conftest import System
from tests.deadlines import scale_to_load
from tests.faults.proxy import running_proxy
from tests.forking import start_command

JOBS = 40


def test_run_outlives_connections_that_go_silent(system: System, tmp_path: Path) -> None:
    questions = write_lines(tmp_path / "questions.jsonl", [question(number) for number in range(JOBS)])
    answers = tmp_path / "answers.jsonl"
    with running_proxy(system.database_url) as proxy, (tmp_path / "run.err").open("wb") as err:
        environment = system.environment(
            database_url=proxy.url, provider="extractive", extractive_latency_s=1.0, slots=10, lease_s=60
        )
        run = start_command(["run", questions, "-o", answers], environment, stdout=err.fileno(), stderr=err.fileno())
        try:
            system.until(
                lambda: system.scalar("SELECT count(*) FROM job WHERE finished_at IS NOT NULL") > 5, what="finals"
            )
            proxy.silence_all()
            code = run.wait(scale_to_load(180))
        finally:
            run.kill()
    stderr = (tmp_path / "run.err").read_text()
    assert code == 0, stderr
    assert "waiting for it" in stderr
    assert [result["state"] for result in read_lines(answers)] == ["completed"] * JOBS
    outcomes = dict(system.rows("SELECT outcome, count(*) FROM attempt GROUP BY 1"))
    # Without a free core a lease may be too old by the time of its call: that attempt ends, and no call is made.
    outcomes.pop("error:cancelled", None)
    assert outcomes == {"ok": JOBS}, "nothing was called again"
