"""Knows the people who look at pages, by a session that stands for their key, and guards the forms they send."""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from schemas.access import Role
from tasks.errors import NightdeskError
from worker.http.authentication import require_right
from worker.http.bodies import pieces_of
from worker.http.pages.rendering import page
from worker.http.problems import Problem, problem_from
from worker.http.service import Service
from worker.http.shares import Caller, take_share

COOKIE = "nightdesk_viewer"
TOKEN_BYTES = 32
FORM_BYTES = 20_000
"""Largest form."""

LOGIN = "/view/login"


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person at a page: the caller that the key makes, and the secret of the browser that forms prove to know."""

    caller: Caller
    token: str
    logged_in: bool
    """False: no key is needed, or the request brought one itself."""

    @property
    def form_token(self) -> str:
        """Stands in each form."""
        return form_token(self.token)

    def may(self, right: str) -> bool:
        """Tells whether the role includes a right."""
        return self.caller.role.includes(Role(right))


def form_token(token: str) -> str:
    """The proof that a form comes from a page that this browser was sent."""
    return hmac.new(token.encode(), b"form", hashlib.sha256).hexdigest()


def token_hash(token: str) -> bytes:
    """The hash of a cookie, as the ledger keeps it."""
    return hashlib.sha256(token.encode()).digest()


def browser_token(request: Request) -> str:
    """The secret of this browser; a new one where it has none."""
    token = request.cookies.get(COOKIE, "")
    if not token:
        token = getattr(request.state, "cookie", None) or secrets.token_urlsafe(TOKEN_BYTES)
        request.state.cookie = token
    return str(token)


def set_token(request: Request, token: str) -> None:
    """Gives the browser another secret with the answer."""
    request.state.cookie = token


async def _visitor(request: Request) -> Visitor:
    service: Service = request.app.state.service
    if "authorization" in request.headers or await service.access.is_open():
        caller = await service.access.caller(request)
        require_right(caller, Role.READ)
        take_share(request, caller)
        return Visitor(caller, browser_token(request), logged_in=False)
    token = request.cookies.get(COOKIE, "")
    key_hash = await service.ledger.viewer_sessions.key_hash(token_hash(token)) if token else None
    session_caller = None if key_hash is None else await service.access.caller_by_hash(request, key_hash)
    if session_caller is None:
        raise Problem(401, "unauthorized", "Key needed", "give your key to see this page")
    require_right(session_caller, Role.READ)
    take_share(request, session_caller)
    return Visitor(session_caller, token, logged_in=True)


VisitorOf = Annotated[Visitor, Depends(_visitor)]


# ---- forms -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form."""

    fields: dict[str, str]

    def text(self, name: str) -> str:
        """A field; empty where it is missing."""
        return self.fields.get(name, "").strip()


async def read_form(request: Request, token: str) -> Form:
    """The form of a page of ours; raises ``Problem`` for one that another page made."""
    _require_own_origin(request)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        raise Problem(415, "unsupported-media-type", "Unsupported media type", "send a form of a page")
    body = b"".join([piece async for piece in pieces_of(request, FORM_BYTES)])
    try:
        fields = {name: values[-1] for name, values in parse_qs(body.decode(), max_num_fields=50).items()}
    except ValueError:
        raise Problem(400, "bad-request", "Bad request", "the form can't be read; go back and send it again") from None
    if not hmac.compare_digest(fields.get("token", "").encode(), form_token(token).encode()):
        detail = "the form is none of a page that this browser was sent, or is too old: go back, reload the page, and send it again"
        raise Problem(403, "foreign-form", "Form refused", detail)
    return Form(fields)


def _require_own_origin(request: Request) -> None:
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    # TLS may end in front of this service, so the scheme is not compared.
    own = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if not own or site not in {"same-origin", "none"}:
        raise Problem(403, "foreign-origin", "Form refused", "no other page may send forms to this service")


def sends(right: Role) -> Callable[..., Coroutine[Any, Any, tuple[Visitor, Form]]]:
    """A dependency of routes: a visitor with this right, and the form that was sent."""

    async def form_of(request: Request, visitor: VisitorOf) -> tuple[Visitor, Form]:
        form = await read_form(request, visitor.token)
        require_right(visitor.caller, right)
        return visitor, form

    return form_of


Judgement = Annotated[tuple[Visitor, Form], Depends(sends(Role.REVIEW))]
Order = Annotated[tuple[Visitor, Form], Depends(sends(Role.SUBMIT))]


def local_path(path: str) -> str:
    """An address of the viewer, as it was given; any other leads to the batches."""
    fine = path.startswith("/view/") and not path.startswith("/view/login") and "\\" not in path
    return path if fine and path.isprintable() and path.isascii() else "/view/"


# ---- answers ---------------------------------------------------------------------------------------------------------


class PageRoute(APIRoute):
    """Answers errors as pages, leads people without a session to the login, and sets the cookie."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of the route."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                response = await handle(request)
            except (Problem, NightdeskError, RequestValidationError, HTTPException) as error:
                response = _error_page(request, problem_from(error))
            cookie = getattr(request.state, "cookie", None)
            if cookie is not None:
                _set_cookie(request, response, cookie)
            return response

        return answer


def _error_page(request: Request, problem: Problem) -> Response:
    if problem.status == 401 and request.method == "GET":  # noqa: PLR2004 - the status itself
        address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{LOGIN}?next={quote(address)}", 303, {"Cache-Control": "no-store"})
    headers = {name: value for name, value in problem.headers.items() if name != "WWW-Authenticate"}
    return page("error", {"problem": problem, "visitor": None, "title": problem.title}, problem.status, headers)


def _set_cookie(request: Request, response: Response, token: str) -> None:
    secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
    response.set_cookie(COOKIE, token, path="/view", secure=secure, httponly=True, samesite="strict")
