"""The routes: what is served where, to whom, and how errors are reported."""

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ddot import __version__
from ddot.infill.model import Model
from ddot.serve import infill, llama_cpp, openai
from ddot.serve.jobs import Full, Stopped, Work
from ddot.serve.replies import STREAM_HEADERS, Refused, finished, refusal, reply, streamed
from ddot.serve.requests import Asked, CompletionRequest, EditorRequest, InfillRequest, read

_PAGE = Path(__file__).with_name("page.html")
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_ROUTES = (
    "POST /v1/infill, POST /infill, POST /v1/completions, GET /v1/models, GET /health, GET /openapi.json "
    "and the page at GET /"
)


@dataclass(frozen=True)
class Access:
    """Who may ask: clients with the API key, if there is one; pages of these other origins."""

    api_key: str | None = None
    allow_origins: tuple[str, ...] = ()


def make_app(model: Model, work: Work, access: Access) -> FastAPI:
    """The application that serves one model."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(work.close)

    app = FastAPI(title="ddot", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    if access.allow_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(access.allow_origins), allow_methods=["*"], allow_headers=["*"]
        )
    for kind in (Exception, ValueError, Refused, Full, Stopped, HTTPException, ClientDisconnect):
        app.add_exception_handler(kind, _told)
    app.include_router(_open_routes(model, work))
    app.include_router(_routes(model, work), dependencies=[Depends(_asks_for(access.api_key))])
    return app


def _open_routes(model: Model, work: Work) -> APIRouter:
    """Routes that need no key: the page asks for it itself."""
    routes = APIRouter()
    page = _PAGE.read_text(encoding="utf-8")

    @routes.get("/")
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page, headers=_PAGE_HEADERS)

    @routes.get("/health")
    async def health() -> Response:
        return reply({"status": "ok", "model": model.name, "at_work": work.at_work, "waiting": work.waiting})

    return routes


def _routes(model: Model, work: Work) -> APIRouter:
    routes = APIRouter()
    begun = int(time.time())

    @routes.get("/v1/models")
    async def models() -> Response:
        one = {"id": model.name, "object": "model", "created": begun, "owned_by": "ddot"}
        return reply({"object": "list", "data": [one]})

    @routes.post("/v1/infill", openapi_extra=_takes(InfillRequest))
    async def fill_text(request: Request) -> Response:
        asked = await read(request, InfillRequest)
        job = work.start(infill.filled(model, asked))
        if asked.stream:
            return await streamed(request, job, infill.said, infill.closed)
        return reply(await finished(request, job))

    @routes.post("/infill", openapi_extra=_takes(EditorRequest))
    async def fill_for_an_editor(request: Request) -> Response:
        asked = await read(request, EditorRequest)
        if llama_cpp.asks_for_nothing(asked):
            nothing = llama_cpp.NOTHING
            if asked.stream:
                body = b"".join(llama_cpp.events(model, asked, nothing))
                return Response(body, headers=STREAM_HEADERS, media_type="text/event-stream")
            return reply(llama_cpp.answer(model, asked, nothing))
        job = work.start(llama_cpp.filled(model, asked))
        if asked.stream:
            return await streamed(request, job, lambda _: [], lambda done: llama_cpp.events(model, asked, done))
        return reply(llama_cpp.answer(model, asked, await finished(request, job)))

    @routes.post("/v1/completions", openapi_extra=_takes(CompletionRequest))
    async def complete(request: Request) -> Response:
        asked = await read(request, CompletionRequest)
        job = work.start(openai.filled(model, asked))
        if asked.stream:
            return await streamed(request, job, lambda _: [], lambda done: openai.events(model, asked, done))
        return reply(openai.answer(model, asked, await finished(request, job)))

    return routes


def _takes(kind: type[Asked]) -> dict[str, Any]:
    """The body of a route, for /openapi.json. `read` reads it: with a size limit, whatever its content type says."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": kind.model_json_schema()}}}}


def _asks_for(key: str | None) -> Callable[[Request], Any]:
    """Refuse clients without the key, in a time that does not reveal how much of it was right."""

    async def check(request: Request) -> None:
        if key is None:
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(token.strip().encode("latin-1"), key.encode())  # headers are read as Latin-1
        if scheme.lower() != "bearer" or not is_right:
            wrong = "the API key is wrong" if token else "an API key is required"
            advice = "send it as 'Authorization: Bearer KEY'"
            raise Refused(401, f"{wrong}; {advice}", "invalid_api_key", {"WWW-Authenticate": "Bearer"})

    return check


async def _told(request: Request, error: Exception) -> Response:
    """Every error as JSON with a sentence."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=400)  # nobody is left to read it
    if isinstance(error, HTTPException):
        what = "does not take" if error.status_code == 405 else "is not an address for"
        sentence = f"{request.url.path} {what} {request.method}; there are {_ROUTES}"
        code = "not_found" if error.status_code == 404 else "not_allowed"
        error = Refused(error.status_code, sentence, code, dict(error.headers or {}))
    refused = refusal(error)
    return reply(refused.body, refused.status, refused.headers)
