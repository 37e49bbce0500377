"""Puts the pages together, with their style and script, and one page for addresses that name nothing."""

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from worker.http.pages import batch_pages, entry, job_pages, order_forms, review_pages
from worker.http.pages.rendering import ASSETS
from worker.http.pages.visitors import PageRoute
from worker.http.problems import not_found

root = APIRouter(include_in_schema=False)
router = APIRouter(prefix="/view", include_in_schema=False, route_class=PageRoute)


@root.get("/")
async def front(request: Request) -> Response:
    """Leads a browser to the pages; a program gets what it gets for any address that names nothing."""
    if "text/html" not in request.headers.get("accept", ""):
        raise not_found()
    return RedirectResponse("/view/", 303)


@router.get("")
async def beginning() -> Response:
    """Leads to the batches."""
    return RedirectResponse("/view/", 308)


@router.get("/assets/{name}")
async def asset(name: str) -> Response:
    """The style or the script. Its name holds its hash, so it is never asked for again."""
    if (file := ASSETS.get(name)) is None:
        raise not_found()
    return Response(file.content, 200, {"Cache-Control": "public, max-age=31536000, immutable"}, file.media_type)


for part in (entry, batch_pages, job_pages, order_forms, review_pages):
    router.include_router(part.router)


@router.get("/{path:path}")
async def unknown(path: str) -> Response:
    """Any other address."""
    del path
    raise not_found()
