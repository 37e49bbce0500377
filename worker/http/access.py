"""Decides who calls: the tenant of a request, its role, and whether it may."""

import ipaddress
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fastapi import Request

from tasks.errors import ConfigurationError
from worker.http.problems import Problem
from worker.settings import Settings


class Role(StrEnum):
    """The rights of a caller."""

    READ = "read"
    """Look at jobs and batches."""
    SUBMIT = "submit"
    """Also submit and cancel."""
    REVIEW = "review"
    """Look at jobs and batches, and judge answers."""
    ADMIN = "admin"
    """Everything of the tenant."""


_RIGHTS: dict[Role, frozenset[Role]] = {
    Role.READ: frozenset({Role.READ}),
    Role.SUBMIT: frozenset({Role.READ, Role.SUBMIT}),
    Role.REVIEW: frozenset({Role.READ, Role.REVIEW}),
    Role.ADMIN: frozenset(Role),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """The one who sent a request."""

    tenant: str
    name: str
    """Stands in the events of the ledger."""
    role: Role

    def may(self, right: Role) -> bool:
        """Tells whether the role includes a right."""
        return right in _RIGHTS[self.role]


class Access:
    """The callers of a service."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant

    async def caller(self, request: Request) -> Caller:
        """The caller of a request; raises ``Problem``."""
        require_local(request)
        return Caller(self._tenant, "local", Role.ADMIN)


def access_to(settings: Settings, host: str) -> Access:
    """The callers of a service that listens on an address; raises ``ConfigurationError`` where anybody could reach it."""
    if not is_loopback(host):
        raise ConfigurationError(
            f"{host} is reached from other machines, and without keys everybody could do everything: leave --host out"
        )
    return Access(settings.tenant)


def require_local(request: Request) -> None:
    """Refuses what a page in somebody's browser sends to this machine: another name of it, or another page's origin."""
    host = request.url.hostname or ""
    if not is_loopback(host):
        detail = f"without keys this service answers only under a loopback address or localhost, not {host[:100]!r}"
        raise Problem(421, "misdirected", "Misdirected request", detail)
    origin = request.headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{request.url.netloc}":
        raise Problem(403, "foreign-origin", "Forbidden", "without keys no other page may call this service")


def is_loopback(host: str) -> bool:
    """Tells whether a name or an address leads to this machine alone."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def requires(right: Role) -> Callable[[Request], Coroutine[Any, Any, Caller]]:
    """A dependency of routes: the caller, who has this right."""

    async def caller_of(request: Request) -> Caller:
        access: Access = request.app.state.service.access
        caller = await access.caller(request)
        if not caller.may(right):
            detail = f"the key {caller.name!r} has the role {caller.role.value}, and this needs {right.value}"
            raise Problem(403, "forbidden", "Forbidden", detail)
        return caller

    return caller_of
