"""Stands in for Azure, Amazon Bedrock and Google Vertex: it answers only what is signed, or has a token that it gave out.

Signatures are recomputed from the bytes that came, by the published algorithms: AWS Signature Version 4 and RS256.
"""

import asyncio
import hashlib
import hmac
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import jwt
import orjson
from aiohttp import web

from tests.stub.answers import messages, responses

ACCESS_KEY, SECRET_KEY, SESSION = "AKIDEXAMPLE0123456789", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session-token"
IDENTITY_HEADER = "of-this-machine"
LONG_AGO, FAR_AWAY = 1, 4_000_000_000


@dataclass
class Clouds:
    """A running stand-in.

    Attributes:
        key: accepted as a key, or as a bearer token.
        public_key: of the service account at Google.
        expires: Unix time at which its tokens end.
        paths: addresses of the calls that were accepted, as they came on the wire.
        tokens: how many tokens were given out.
    """

    key: str
    public_key: Any = None
    expires: int = FAR_AWAY
    url: str = ""
    paths: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    tokens: int = 0

    def token(self) -> str:
        self.tokens += 1
        return f"token-{self.tokens}"

    def _authorised(self, request: web.Request, body: bytes) -> bool:
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        if scheme == "AWS4-HMAC-SHA256":
            return _signed(request, body, value)
        issued = {f"token-{number}" for number in range(1, self.tokens + 1)}
        return (scheme == "Bearer" and value in {self.key, *issued}) or request.headers.get("api-key") == self.key

    async def _take(self, request: web.Request) -> Any:
        body = await request.read()
        if not self._authorised(request, body):
            raise web.HTTPForbidden(
                text='{"message": "The security token included in the request is invalid."}',
                content_type="application/json",
            )
        self.paths.append(request.raw_path)
        self.bodies.append(orjson.loads(body))
        return self.bodies[-1]

    async def azure(self, request: web.Request) -> web.Response:
        body = await self._take(request)
        return web.json_response({**responses(body), "model": "gpt-6-luna"}, headers={"apim-request-id": "azure-1"})

    async def managed_identity(self, request: web.Request) -> web.Response:
        if request.headers.get("x-identity-header") != IDENTITY_HEADER:
            raise web.HTTPUnauthorized
        assert request.query["resource"] == "https://cognitiveservices.azure.com"
        answer = {"access_token": self.token(), "expires_on": str(self.expires), "token_type": "Bearer"}
        answer["resource"] = request.query["resource"]
        return web.json_response(answer)

    async def bedrock(self, request: web.Request) -> web.Response:
        body = await self._take(request)
        assert "model" not in body
        assert body["anthropic_version"]
        return web.json_response(messages({**body, "model": "claude-haiku-5-5"}), headers={"x-amzn-requestid": "aws-1"})

    async def google_token(self, request: web.Request) -> web.Response:
        form = await request.post()
        claims = jwt.decode(
            str(form["assertion"]),
            self.public_key,
            algorithms=["RS256"],
            audience="https://oauth2.googleapis.com/token",
        )
        assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
        return web.json_response({"access_token": self.token(), "expires_in": 3600 if self.expires == FAR_AWAY else 1})

    async def vertex(self, request: web.Request) -> web.Response:
        body = await self._take(request)
        assert "model" not in body
        assert body["anthropic_version"]
        return web.json_response(messages({**body, "model": "claude-haiku-5-5"}))


def _signed(request: web.Request, body: bytes, value: str) -> bool:
    """Recomputes AWS Signature Version 4 of a request as it came."""
    parts = dict(part.strip().split("=", 1) for part in value.split(","))
    key_id, *scope = parts["Credential"].split("/")
    day, region, service, _ = scope
    names = parts["SignedHeaders"].split(";")
    if not {"host", "x-amz-date", "x-amz-security-token"} <= set(names) or key_id != ACCESS_KEY or service != "bedrock":
        return False
    path, _, query = request.raw_path.partition("?")
    headers = "".join(f"{name}:{' '.join(request.headers[name].split())}\n" for name in names)
    digest = hashlib.sha256(body).hexdigest()
    canonical = "\n".join([request.method, quote(path, safe="/~"), query, headers, ";".join(names), digest])
    to_sign = "\n".join(
        [
            "AWS4-HMAC-SHA256",
            request.headers["x-amz-date"],
            "/".join(scope),
            hashlib.sha256(canonical.encode()).hexdigest(),
        ]
    )
    key = f"AWS4{SECRET_KEY}".encode()
    for step in (day, region, service, "aws4_request"):
        key = hmac.digest(key, step.encode(), "sha256")
    return hmac.compare_digest(hmac.digest(key, to_sign.encode(), "sha256").hex(), parts["Signature"])


@contextmanager
def running_clouds(key: str) -> Iterator[Clouds]:
    """A stand-in on a loop in a thread of its own."""
    clouds = Clouds(key)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="clouds", daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(_start(clouds), loop).result(10)
    try:
        yield clouds
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _start(clouds: Clouds) -> web.AppRunner:
    app = web.Application(client_max_size=100_000_000)
    app.router.add_post("/openai/v1/responses", clouds.azure)
    app.router.add_post("/openai/responses", clouds.azure)
    app.router.add_get("/identity", clouds.managed_identity)
    app.router.add_post("/model/{model}/invoke", clouds.bedrock)
    app.router.add_post("/token", clouds.google_token)
    app.router.add_post("/v1/projects/{project}/locations/{region}/publishers/anthropic/models/{model}", clouds.vertex)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    clouds.url = f"http://{host}:{port}"
    return runner
