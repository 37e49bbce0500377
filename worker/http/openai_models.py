"""The routes of models in the form of OpenAI's API: the names that an order may have in ``model``."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from worker.http.dependencies import Reader, ServiceOf
from worker.http.documents import OPENAI_PROBLEMS, json_answer
from worker.http.response_order import OWN_MODEL, require_served

router = APIRouter(prefix="/openai/v1/models", tags=["openai"], responses=OPENAI_PROBLEMS)


def _document(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": "nightdesk"}


@router.get("")
async def models(service: ServiceOf, caller: Reader) -> Response:  # noqa: ARG001 - a right is needed
    """The model of the settings, and each provider that can answer here; `provider:model` names another model of one."""
    data = [_document(name) for name in (OWN_MODEL, *service.catalog.answering)]
    return json_answer({"object": "list", "data": data})


@router.get("/{model:path}")
async def retrieve(model: str, service: ServiceOf, caller: Reader) -> Response:  # noqa: ARG001 - a right is needed
    """A model that an order may name."""
    require_served(model, service.catalog)
    return json_answer(_document(model))
