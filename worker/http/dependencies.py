"""Parameters of routes: the service, and a caller with a right."""

from typing import Annotated

from fastapi import Depends, Request

from schemas.access import Role
from worker.http.authentication import Caller, requires
from worker.http.service import Service


async def _service(request: Request) -> Service:
    # A plain function would be run in a thread, which takes longer than all else that is done for a poll.
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(_service)]
Reader = Annotated[Caller, Depends(requires(Role.READ))]
Scraper = Annotated[Caller, Depends(requires(Role.ADMIN, as_known=True))]
Reviewer = Annotated[Caller, Depends(requires(Role.REVIEW))]
Submitter = Annotated[Caller, Depends(requires(Role.SUBMIT))]
