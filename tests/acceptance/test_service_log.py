"""An auditor reads the log of ``nightdesk serve``: each answered request of a key is a line of JSON, and no line has a secret."""

import http.client
import json
import signal
from urllib.parse import quote, urlsplit

import psycopg

from tests.acceptance.command import run_here
from tests.acceptance.conftest import System
from tests.deadlines import scale_to_load
from tests.forking import start_command

PASSWORD = "p@ss:of/the%desk"
CALLBACKS = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"


def test_each_answered_request_of_a_key_is_logged_without_secrets(system: System) -> None:
    with psycopg.connect(system.database_url, autocommit=True) as owner:
        (name,) = owner.execute("SELECT 'desk_' || oid FROM pg_database WHERE datname = current_database()").fetchone()  # type: ignore[misc]
        owner.execute(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{PASSWORD}'".encode())
    where = urlsplit(system.database_url)
    url = where._replace(netloc=f"{name}:{quote(PASSWORD, safe='')}@{where.hostname}:{where.port}").geturl()
    environment = system.environment(database_url=url, log_format="json", access_log="true", callback_secret=CALLBACKS)

    def new_key(name: str, *options: str) -> str:
        return run_here(["keys", "add", name, *options], environment).out.strip()

    keys = {
        "reader": new_key("reader", "--role", "read"),
        "slow": new_key("slow", "--requests-per-minute", "1"),
        "scraper": new_key("scraper", "--role", "metrics"),
    }
    out, err = system.logs / "serve.out", system.logs / "serve.err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        service = start_command(["serve", "--port", "0"], environment, stdout=stdout.fileno(), stderr=stderr.fileno())
    try:
        system.until(lambda: out.read_text().endswith("\n"), what="the address of the service")
        netloc = urlsplit(out.read_text().strip()).netloc

        def ask(key: str, path: str, method: str = "GET") -> int:
            client = http.client.HTTPConnection(netloc, timeout=scale_to_load(30))
            client.request(method, path, headers={"Authorization": f"Bearer {keys.get(key, 'ndk_none')}"})
            status = client.getresponse().status
            client.close()
            return status

        requests = [
            ("reader", "/v1/batches", 200),
            ("reader", f"/v1/jobs?{PASSWORD}&{CALLBACKS}", 405),
            ("reader", f"/view/?q={PASSWORD}&{quote(PASSWORD, safe='')}&{CALLBACKS}", 200),
            ("reader", "/v1/batches?nonsense=1", 422),
            ("reader", "/metrics", 403),
            ("slow", "/v1/batches", 200),
            ("slow", "/v1/batches", 429),
            ("scraper", "/metrics", 200),
            ("scraper", "/v1/batches", 403),
        ]
        assert [(key, path, ask(key, path)) for key, path, _ in requests] == requests
        assert [ask("nobody", "/v1/batches?nonsense=1") for _ in range(5)] == [401] * 5
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(scale_to_load(60))
        with psycopg.connect(system.database_url, autocommit=True) as owner:
            owner.execute(f"DROP ROLE {name}".encode())

    text = err.read_text()
    assert [
        secret for secret in (PASSWORD, quote(PASSWORD, safe=""), CALLBACKS, *keys.values()) if secret in text
    ] == []
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    reads = [(line["key"], line["path"], line["status"]) for line in lines if line["logger"] == "nightdesk.access"]
    routed = [(key, urlsplit(path).path, status) for key, path, status in requests if status != 405]
    assert reads == routed
    (refused,) = [line for line in lines if line["logger"] == "nightdesk.refused"]
    assert refused["address"] == "127.0.0.1"
