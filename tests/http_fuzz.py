"""Sends requests made from the OpenAPI document to a running service: no answer may be a 5xx, or of another form (make fuzz-http)."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx2

from schemas.access import Role
from tests.http_routes import JOB
from tests.http_service import running_service
from tests.integration.test_http_tenants import ids_of, make_key
from tests.servers import Servers, running_servers

EXAMPLES = 20
"""Requests of each kind for each route."""

CHECKS = "not_a_server_error,response_schema_conformance,status_code_conformance,content_type_conformance"


def main() -> int:
    """Run schemathesis, also with the sequences of requests that depend on each other: without keys, then with one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="requests of each kind for each route")
    options = parser.parse_args()
    with running_servers() as servers:
        codes = [_fuzz(servers, options.examples, with_key=with_key) for with_key in (False, True)]
    return max(codes)


def _fuzz(servers: Servers, examples: int, *, with_key: bool) -> int:
    with servers.database() as database_url, tempfile.TemporaryDirectory() as home:
        key = make_key(database_url, "fuzz", "default", Role.ADMIN) if with_key else ""
        with running_service(
            database_url, servers.redis_url, Path(home), loopback=not with_key, provider="extractive"
        ) as door:
            options = ["--checks", CHECKS, "--max-examples", str(examples), "--continue-on-failure"]
            headers = ["--header", f"Authorization: Bearer {key}"] if with_key else []
            if with_key:
                door.http.headers["Authorization"] = f"Bearer {key}"
            environment = {
                **os.environ,
                "SCHEMATHESIS_HOOKS": "tests.fuzz_hooks",
                "NIGHTDESK_FUZZ_IDS": json.dumps({**ids_of(door.http), "ended_job_id": _end_job(door.http)}),
            }
            phases = ["--phases", "coverage,fuzzing,stateful", "--no-color"]
            program = Path(sys.executable).with_name("schemathesis")
            command = [program, "run", f"{door.url}/openapi.json", *options, *phases, *headers]
            return subprocess.run(command, check=False, env=environment).returncode


def _end_job(http: httpx2.Client) -> str:
    """The id of a job that is final."""
    job_id = str(http.post("/v1/jobs", json=JOB).json()["job_id"])
    assert http.post(f"/v1/jobs/{job_id}/cancel").json() == {"cancelled": 1}
    return job_id


if __name__ == "__main__":
    sys.exit(main())
