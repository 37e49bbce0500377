"""The routes of supervisors: alive, ready with the truth about PostgreSQL and Redis, and metrics."""

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE

from worker.http.dependencies import Scraper, ServiceOf
from worker.http.documents import Readiness, json_answer, problems
from worker.http.problems import Problem

router = APIRouter(tags=["health"])


# Monitors that ask with HEAD are many.
@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
async def alive() -> Response:
    """The process answers. Nothing else is asked: a restart would not bring back a server that is away."""
    return json_answer({"status": "alive"})


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness, "description": "not ready"}})
async def ready(service: ServiceOf) -> Response:
    """PostgreSQL can be reached. Without Redis jobs are accepted and polls answered, and start some seconds later."""
    readiness = await service.lookout.look()
    return json_answer(readiness, 200 if readiness.ready else 503)


@router.get("/metrics", response_class=PlainTextResponse, responses=problems())
async def metrics(service: ServiceOf, caller: Scraper) -> Response:
    """Figures of this process and of the whole ledger, as Prometheus reads them; for a key of the operator's tenant with the role `metrics`.

    Without PostgreSQL it answers a key that it knows, with `nightdesk_ledger_up` 0 and no figures of the ledger as it stands.
    """
    if caller.tenant != service.settings.tenant:
        detail = (
            "the figures are those of all tenants, so only a key of the operator's own tenant (NIGHTDESK_TENANT) "
            f"with the role metrics may read them; {caller.name!r} is of another"
        )
        raise Problem(403, "forbidden", "Forbidden", detail)
    return Response(await service.metrics.exposition(), media_type=CONTENT_TYPE)
