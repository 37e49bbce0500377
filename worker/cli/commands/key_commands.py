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
    LIMIT = "limit"
    REVOKE = "revoke"


def _limit(text: str) -> Any:
    return typer.Option(min=0, max=1_000_000_000, help=text)


def keys(
    action: Annotated[Action, typer.Argument(help="add, list, limit or revoke.")],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Of the key to add, limit or revoke.")] = None,
    *,
    role: Annotated[
        Role, typer.Option(help="read; submit (and cancel, and read); review (and read); admin.")
    ] = Role.READ,
    tenant: Annotated[str | None, typer.Option(help="Whose jobs it reaches; default: NIGHTDESK_TENANT.")] = None,
    requests_per_second: Annotated[
        int | None, _limit("Most requests a second, of each process that serves; 0: no limit.")
    ] = None,
    requests_per_minute: Annotated[
        int | None, _limit("Most requests a minute, of each process that serves; 0: no limit.")
    ] = None,
    jobs_waiting: Annotated[
        int | None, _limit("Most jobs submitted with the key that are not final; 0: no limit.")
    ] = None,
    jobs_per_minute: Annotated[int | None, _limit("Most jobs submitted a minute; 0: no limit.")] = None,
    jobs_per_day: Annotated[int | None, _limit("Most jobs submitted a day (UTC); 0: no limit.")] = None,
    as_json: options.Json = False,
) -> int:
    """Make, list, limit or revoke keys of callers over HTTP ('nightdesk serve').

    A new key is written to standard output, once: the ledger has only its hash. A revoked one ends within seconds.
    Once there is a key, every request needs one. 'limit' changes the limits that are named, and leaves the others.
    """
    limits = {
        "requests_per_second": requests_per_second,
        "requests_per_minute": requests_per_minute,
        "jobs_waiting": jobs_waiting,
        "jobs_per_minute": jobs_per_minute,
        "jobs_per_day": jobs_per_day,
    }
    if (name is None) is not (action is Action.LIST):
        raise InputError("list takes no name, the others take one: nightdesk keys add NAME", field="NAME")
    if action is Action.LIST:
        _show(*_with_ledger(_keys_and_use), as_json=as_json)
        return 0
    assert name is not None
    if action is Action.REVOKE:
        key = _with_ledger(lambda ledger: ledger.api_keys.revoke(name, actor()))
        if as_json:
            write_json(asdict(key))
        else:
            tell(f"the key {key.name} is revoked; requests with it are refused within seconds")
        return 0
    if action is Action.LIMIT:
        _tell_limits(_with_ledger(lambda ledger: ledger.api_keys.limit(name, limits)), as_json=as_json)
        return 0
    request = KeyRequest(name, load_settings().tenant if tenant is None else options.new_tenant(tenant), role, limits)
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


async def _keys_and_use(ledger: PostgresLedger) -> tuple[list[ApiKey], dict[str, int]]:
    return await ledger.api_keys.all(), await ledger.api_keys.jobs_today()


def _tell_limits(key: ApiKey, *, as_json: bool) -> None:
    if as_json:
        write_json(asdict(key))
    else:
        tell(f"the key {key.name}: {', '.join(_limits_of(key)) or 'no limits'}; in force within seconds")


def _limits_of(key: ApiKey) -> list[str]:
    """The limits of a key in words."""
    return [
        f"{most:,} {text}"
        for most, text in (
            (key.requests_per_second, "requests a second"),
            (key.requests_per_minute, "requests a minute"),
            (key.jobs_waiting, "jobs that are not final"),
            (key.jobs_per_minute, "jobs a minute"),
            (key.jobs_per_day, "jobs a day"),
        )
        if most is not None
    ]


def _show(all_keys: list[ApiKey], jobs_today: dict[str, int], *, as_json: bool) -> None:
    if as_json:
        write_json(
            [{**asdict(key), "jobs_today": None if key.revoked_at else jobs_today.get(key.name)} for key in all_keys]
        )
        return
    if not all_keys:
        tell("there are no keys: 'nightdesk serve' answers whatever runs on its own machine")
    for key in all_keys:
        end = f"revoked {key.revoked_at:%Y-%m-%d %H:%M} UTC by {key.revoked_by}" if key.revoked_at else "valid"
        write_line(f"{key.name:<20} {key.role.value:<7} {key.tenant:<16} {end}")
        if not key.revoked_at and (limits := _limits_of(key)):
            today = f"; {jobs_today[key.name]:,} jobs today" if key.name in jobs_today else ""
            write_line(f"{'':<20} at most {', '.join(limits)}{today}")
