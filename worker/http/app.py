"""Puts the routes together into one application, with its OpenAPI document."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from schemas.job import JobRequest
from tasks.errors import NightdeskError
from worker.http import (
    batches,
    chat_completions,
    events,
    feedback,
    health,
    jobs,
    openai_batch_routes,
    openai_files,
    openai_models,
    openai_responses,
    orders,
)
from worker.http.dependencies import KnownParameters
from worker.http.documents import LabelOrder
from worker.http.entrance import Entrance
from worker.http.pages import viewer
from worker.http.problems import Problem, answer_problem
from worker.http.service import open_service
from worker.ledger.outage import PROBE_S
from worker.local import Endpoints
from worker.settings import Settings

DESCRIPTION = """Answers questions in bulk, from sources, with every claim checked.

Submit a job or a batch, poll it by its id, read the result. Errors are problem details (RFC 9457)."""


def make_application(settings: Settings, where: Endpoints, *, loopback: bool, probe_s: float = PROBE_S) -> FastAPI:
    """The application, which connects when it is started.

    Args:
        settings: of the service.
        where: PostgreSQL and Redis.
        loopback: it listens on loopback alone.
        probe_s: seconds that PostgreSQL may take to tell that it is there, twice.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_service(settings, where, loopback=loopback, probe_s=probe_s) as service:
            app.state.service = service
            yield

    app = FastAPI(
        title="Nightdesk",
        version=version("nightdesk"),
        description=DESCRIPTION,
        lifespan=lifespan,
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for kind in (Problem, NightdeskError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer_problem)
    for router in (health.router, viewer.root, viewer.router):
        app.include_router(router)
    for router in (
        jobs.router,
        events.router,
        batches.router,
        orders.router,
        feedback.router,
        openai_files.router,
        openai_batch_routes.router,
        openai_models.router,
        chat_completions.router,
        openai_responses.router,
    ):
        app.include_router(router, dependencies=[KnownParameters])
    app.add_middleware(Entrance, access_log=settings.access_log)
    _complete_document(app)
    return app


def _complete_document(app: FastAPI) -> None:
    """Adds the requests that routes read by themselves to the OpenAPI document, which is made once."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schemas = make().setdefault("components", {}).setdefault("schemas", {})
            for model in (JobRequest, LabelOrder):
                schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
                for name, definition in schema.pop("$defs", {}).items():
                    schemas.setdefault(name, definition)
                schemas[model.__name__] = schema
        return make()

    app.openapi = openapi  # type: ignore[method-assign]
