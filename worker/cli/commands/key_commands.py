"""``nightdesk keys``: the keys of callers over HTTP."""

from collections.abc import Callable, Coroutine
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from schemas.access import Role
from tasks.errors import InputError
from worker.cli import options
from worker.cli.exits import run_interruptible
from worker.cli.session import session
from worker.cli.terminal import actor, tell, write_json, write_line
from worker.ledger.postgres import PostgresLedger
from worker.ledger.stored_keys import ApiKey
from worker.operations.api_keys import KeyRequest, add_key
from worker.settings import load_settings
from worker.wiring import embedded

Result = TypeVar("Result")


class Action(StrEnum):
    """The change to the keys."""

    ADD = "add"
    LIST = "list"
    REVOKE = "revoke"


def keys(
    action: Annotated[Action, typer.Argument(help="add, list or revoke.")],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Of the key to add or revoke.")] = None,
    *,
    role: Annotated[
        Role, typer.Option(help="read; submit (and cancel, and read); review (and read); admin.")
    ] = Role.READ,
    tenant: Annotated[str | None, typer.Option(help="Whose jobs it reaches; default: NIGHTDESK_TENANT.")] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Most requests a minute, of each process that serves.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Make, list or revoke keys of callers over HTTP ('nightdesk serve').

    A new key is written to standard output, once: the ledger has only its hash. A revoked one ends within seconds.
    Once there is a key, every request needs one.
    """
    if (name is None) is not (action is Action.LIST):
        raise InputError("list takes no name, add and revoke take one: nightdesk keys add NAME", field="NAME")
    if action is Action.LIST:
        _show(_with_ledger(lambda ledger: ledger.api_keys.all()), as_json=as_json)
        return 0
    assert name is not None
    if action is Action.REVOKE:
        key = _with_ledger(lambda ledger: ledger.api_keys.revoke(name, actor()))
        if as_json:
            write_json(asdict(key))
        else:
            tell(f"the key {key.name} is revoked; requests with it are refused within seconds")
        return 0
    request = KeyRequest(
        name, load_settings().tenant if tenant is None else options.new_tenant(tenant), role, requests_per_minute
    )
    key, secret = _with_ledger(lambda ledger: add_key(ledger, request, actor()))
    if as_json:
        write_json({**asdict(key), "key": secret})
    else:
        write_line(secret)
        tell(f"the key {key.name} of the tenant {key.tenant} may {key.role.value}; it is shown only now")
    return 0


def _with_ledger(work: Callable[[PostgresLedger], Coroutine[Any, Any, Result]]) -> Result:
    settings = load_settings()

    async def run(ledger: PostgresLedger) -> Result:
        async with ledger:
            return await work(ledger)

    with session(settings, writes=embedded(settings)) as opened:
        return run_interruptible(run(opened.ledger()))


def _show(all_keys: list[ApiKey], *, as_json: bool) -> None:
    if as_json:
        write_json([asdict(key) for key in all_keys])
        return
    if not all_keys:
        tell("there are no keys: 'nightdesk serve' answers whatever runs on its own machine")
    for key in all_keys:
        end = f"revoked {key.revoked_at:%Y-%m-%d %H:%M} UTC by {key.revoked_by}" if key.revoked_at else "valid"
        pace = f", {key.requests_per_minute} a minute" if key.requests_per_minute else ""
        write_line(f"{key.name:<20} {key.role.value:<7} {key.tenant:<16} {end}{pace}")
