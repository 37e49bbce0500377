"""Sends requests made from the OpenAPI document to a running service: no answer may be a 5xx, or of another form (make fuzz-http)."""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.http_service import running_service
from tests.servers import running_servers

EXAMPLES = 20
"""Requests of each kind for each route."""

CHECKS = "not_a_server_error,response_schema_conformance,status_code_conformance,content_type_conformance"


def main() -> int:
    """Run schemathesis with and without the sequences of requests that depend on each other."""
    with (
        running_servers() as servers,
        servers.database() as database_url,
        tempfile.TemporaryDirectory() as home,
        running_service(database_url, servers.redis_url, Path(home)) as door,
    ):
        options = ["--checks", CHECKS, "--max-examples", str(EXAMPLES), "--continue-on-failure"]
        # Events last as long as their job; lines are no form that it can write.
        skipped = ["--exclude-path-regex", "events", "--phases", "coverage,fuzzing,stateful", "--no-color"]
        program = Path(sys.executable).with_name("schemathesis")
        return subprocess.run([program, "run", f"{door.url}/openapi.json", *options, *skipped], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
