"""The dashboard: one page and its assets, all in the package. The page reads the API with the viewer's token.

Nothing here is secret, so it needs no token itself. What may load is said by the Content-Security-Policy: only
what this server ships, no inline script or style, no frame around it.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FOLDER = Path(__file__).parent
ASSETS = FOLDER / "assets"

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

router = APIRouter(include_in_schema=False)


@router.get("/", response_class=HTMLResponse)
async def dashboard() -> HTMLResponse:
    """The page; everything on it comes from the API afterwards."""
    return HTMLResponse(PAGE, headers=SECURITY_HEADERS | {"Cache-Control": "no-cache"})


def mount(app: FastAPI) -> None:
    """Put the dashboard at `/` and its assets at `/assets`."""
    app.include_router(router)
    app.mount("/assets", _WithHeaders(StaticFiles(directory=ASSETS)), name="assets")


def _page() -> str:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
    )
    template = environment.get_template("index.html")
    return template.render(version=importlib.metadata.version("bacepipe"))


class _WithHeaders:
    """An ASGI application whose answers carry the security headers; they are asked for anew by their ETag."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {**SECURITY_HEADERS, "Cache-Control": "no-cache"}
                extra = [(name.lower().encode(), value.encode()) for name, value in given.items()]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        await self._inner(scope, receive, send_with_headers)


PAGE = _page()
