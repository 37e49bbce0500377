"""Parameters of routes: the service, a caller with a right, and the end of its connection."""

import asyncio
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request

from schemas.access import Role
from worker.http.authentication import requires
from worker.http.problems import FieldError, invalid, methods_of
from worker.http.service import Service
from worker.http.shares import SHARE, Caller
from worker.ledger.tenancy import JobVersion

DEPARTURE = "nightdesk.departure"
"""Key of the scope of a request: a future that is done once the connection has ended."""


def departure_of(request: Request) -> "asyncio.Future[None] | None":
    """The end of the connection of a request."""
    departure: asyncio.Future[None] | None = request.scope.get(DEPARTURE)
    return departure


async def refuse_unknown_parameters(request: Request) -> None:
    """Raises ``Problem`` for parameters that the address does not have: a mistyped ceiling must not be none."""
    # The key goes first: a stranger is told nothing, and the log has whose request this was.
    await request.app.state.service.access.caller(request)
    if not request.query_params:
        return
    operation = methods_of(request)[request.method.lower()]
    names = sorted(each["name"] for each in operation.get("parameters", ()) if each["in"] == "query")
    unknown = [name for name in request.query_params if name not in names]
    if unknown:
        choice = f"there are {', '.join(names)}" if names else "there are none"
        problem = invalid(f"this address has no such parameter; {choice}", unknown[0])
        problem.errors = [FieldError(message="there is no such parameter", field=name) for name in unknown[:5]]
        raise problem


KnownParameters = Depends(refuse_unknown_parameters)


async def _service(request: Request) -> Service:
    # A plain function would be run in a thread, which takes longer than all else that is done for a poll.
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(_service)]
Reader = Annotated[Caller, Depends(requires(Role.READ))]
Scraper = Annotated[Caller, Depends(requires(Role.METRICS, as_known=True))]
Reviewer = Annotated[Caller, Depends(requires(Role.REVIEW))]
Submitter = Annotated[Caller, Depends(requires(Role.SUBMIT))]


async def _own_batch(request: Request, service: ServiceOf, batch_id: UUID) -> UUID:
    await service.ledger.tenancy.require_batch(batch_id, request.scope[SHARE].tenant)
    return batch_id


async def _own_job(request: Request, service: ServiceOf, job_id: UUID) -> JobVersion:
    return await service.ledger.tenancy.job(job_id, request.scope[SHARE].tenant)


OwnBatch = Annotated[UUID, Depends(_own_batch)]
"""A batch of the caller's tenant. Stands behind the caller, as those do who have their share of the requests."""
OwnJob = Annotated[JobVersion, Depends(_own_job)]
"""A job of the caller's tenant, in the same way."""
