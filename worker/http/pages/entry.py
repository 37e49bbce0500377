"""The way in and out: a person gives a key, and gets a session for it."""

import secrets
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from schemas.access import Role
from worker.http.access_log import WHY
from worker.http.authentication import LONGEST_KEY, UNKNOWN_KEY
from worker.http.dependencies import ServiceOf
from worker.http.pages.rendering import page
from worker.http.pages.visitors import (
    LOGIN,
    TOKEN_BYTES,
    PageRoute,
    browser_token,
    form_token,
    local_path,
    read_form,
    set_token,
    token_hash,
)
from worker.operations.api_keys import hash_of

router = APIRouter(route_class=PageRoute)

Next = Annotated[str, Query(max_length=2_000, alias="next")]


@router.get("/login")
async def login_page(request: Request, service: ServiceOf, following: Next = "/view/") -> Response:
    """Asks for the key; without keys there is nothing to ask for."""
    if await service.access.is_open():
        return RedirectResponse(local_path(following), 303)
    return _login(browser_token(request), following)


def _login(token: str, following: str, error: str = "") -> Response:
    context = {
        "title": "Log in", "visitor": None, "token": form_token(token), "following": local_path(following), "error": error,
    }  # fmt: skip
    return page("login", context, 403 if error else 200)


@router.post("/login")
async def login(request: Request, service: ServiceOf) -> Response:
    """Begins a session for a valid key, under a new secret."""
    token = browser_token(request)
    form = await read_form(request, token)
    key, following = form.text("key"), local_path(form.text("next"))
    caller = await service.access.caller_by_hash(request, hash_of(key)) if 0 < len(key) <= LONGEST_KEY else None
    if caller is None or caller.key_hash is None:
        request.scope[WHY] = UNKNOWN_KEY
        return _login(token, following, "This is no valid key. It begins with ndk_; 'nightdesk keys add' makes one.")
    if not caller.role.includes(Role.READ):
        return _login(token, following, f"The key {caller.name} may not look at jobs.")
    await service.ledger.viewer_sessions.remove(token_hash(token))
    fresh = secrets.token_urlsafe(TOKEN_BYTES)
    await service.ledger.viewer_sessions.add(token_hash(fresh), caller.key_hash)
    set_token(request, fresh)
    return RedirectResponse(following, 303)


@router.post("/logout")
async def logout(request: Request, service: ServiceOf) -> Response:
    """Ends the session."""
    token = browser_token(request)
    await read_form(request, token)
    await service.ledger.viewer_sessions.remove(token_hash(token))
    set_token(request, secrets.token_urlsafe(TOKEN_BYTES))
    return RedirectResponse(LOGIN, 303)
