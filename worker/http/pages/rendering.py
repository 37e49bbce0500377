"""Renders pages: text from outside stays text, with its invisible turns shown, under a policy that runs nothing of it."""

import base64
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fastapi.responses import Response
from markupsafe import Markup

from schemas.grounding import Verdict
from worker.operations.counts import cost, duration, spent_of, whole_number
from worker.operations.overview import dollars
from worker.operations.report_page import make_environment, word

_HERE = Path(__file__).parent

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    # A form of a page without any referrer would be sent with the origin "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-store",
}

MISSING = "\N{EN DASH}"
"""In place of a value that there is none of."""


class Asset(NamedTuple):
    """A file that pages load, under a name with its hash."""

    name: str
    content: bytes
    media_type: str
    integrity: str


def _asset(file: str, media_type: str) -> Asset:
    content = (_HERE / "static" / file).read_bytes()
    stem, _, suffix = file.rpartition(".")
    integrity = "sha384-" + base64.b64encode(hashlib.sha384(content).digest()).decode()
    return Asset(f"{stem}.{hashlib.sha256(content).hexdigest()[:16]}.{suffix}", content, media_type, integrity)


_STYLE = _asset("view.css", "text/css")
_SCRIPT = _asset("view.js", "text/javascript")
_ICON = _asset("icon.svg", "image/svg+xml")
ASSETS = {asset.name: asset for asset in (_STYLE, _SCRIPT, _ICON)}


def page(
    template: str, context: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A page of a template."""
    html = _environment.get_template(f"{template}.html.j2").render(context)
    return Response(html, status, {**HEADERS, **(headers or {})}, "text/html")


# ---- how values are written ------------------------------------------------------------------------------------------


def _score(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}"


def _moment(at: datetime | str | None) -> Markup | str:
    if at is None:
        return MISSING
    moment = (datetime.fromisoformat(at) if isinstance(at, str) else at).astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), f"{moment:%Y-%m-%d %H:%M:%S} UTC")


_environment = make_environment(_HERE / "templates")
_environment.filters.update({
    "cost": cost, "usd": dollars, "spent": spent_of, "count": whole_number, "score": _score, "moment": _moment, "duration": duration, "word": word,
})  # fmt: skip
_environment.globals.update(style=_STYLE, script=_SCRIPT, icon=_ICON, verdicts=list(Verdict))
