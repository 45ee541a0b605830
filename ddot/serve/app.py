"""The routes: what is served where, to whom, and how errors are reported."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from ddot import __version__
from ddot.serve import infill, llama_cpp, openai
from ddot.serve.access import Access
from ddot.serve.fim import NOTHING
from ddot.serve.guard import Guard, Metrics
from ddot.serve.jobs import Full, Late, Stopped, Work
from ddot.serve.processes import Filling
from ddot.serve.replies import STREAM_HEADERS, Refused, event, finished, refusal, reply, streamed
from ddot.serve.requests import CompletionRequest, EditorRequest, InfillRequest, refusal_of

_PAGE = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_ROUTES = (
    "POST /v1/infill, POST /infill, POST /v1/completions, GET /v1/models, GET /health, GET /metrics, "
    "GET /openapi.json and the page at GET /"
)


def _sends(*kinds: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": "Success", "content": {kind: {} for kind in kinds}}}


_STREAMS = _sends("application/json", "text/event-stream")


class ErrorText(BaseModel):
    message: str
    type: str
    code: str


class ErrorReply(BaseModel):
    """The body of every reply that is not a success."""

    error: ErrorText


def make_app(filling: Filling, work: Work, access: Access, log: bool = False) -> ASGIApp:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(work.close)

    async def check_key(request: Request) -> None:
        access.check_key(request.headers)

    app = FastAPI(
        title="ddot",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses={"default": {"model": ErrorReply, "description": "An error, in a sentence"}},
    )
    if access.origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(access.origins), allow_methods=["*"], allow_headers=["*"])
    for kind in (Exception, ValueError, Refused, Full, Late, Stopped, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _told)
    metrics = Metrics(work)
    app.include_router(_open_routes(filling.model.name, work))
    app.include_router(_routes(filling, work, metrics), dependencies=[Depends(check_key)])
    return Guard(app, access, metrics, log)


def _open_routes(name: str, work: Work) -> APIRouter:
    """Routes that need no key: the page asks for it itself."""
    routes = APIRouter()
    for file, kind in _PAGE.items():
        routes.add_api_route("/" if file == "page.html" else f"/{file}", _file(file, kind), include_in_schema=False)

    @routes.get("/health")
    async def health() -> Response:
        return reply({"status": "ok", "model": name, "at_work": work.at_work, "waiting": work.waiting})

    return routes


def _file(name: str, kind: str) -> Callable[[], Response]:
    """A route that sends a part of the page."""
    content = Path(__file__).with_name(name).read_bytes()
    return lambda: Response(content, headers=_PAGE_HEADERS, media_type=kind)


def _routes(filling: Filling, work: Work, metrics: Metrics) -> APIRouter:
    routes, model = APIRouter(), filling.model
    one = {"id": model.name, "object": "model", "created": int(time.time()), "owned_by": "ddot"}

    @routes.get("/v1/models")
    async def models() -> Response:
        return reply({"object": "list", "data": [one]})

    @routes.get("/v1/models/{name:path}")
    async def one_model(name: str) -> Response:
        if name != model.name:
            raise Refused(404, f"there is no model {name!r}; there is {model.name!r}", "not_found")
        return reply(one)

    @routes.get("/metrics", responses=_sends("text/plain"))
    async def show_metrics() -> Response:
        return Response(metrics.text, media_type="text/plain; version=0.0.4")

    @routes.post("/v1/infill", responses=_STREAMS)
    async def fill_text(request: Request, asked: InfillRequest) -> Response:
        job = work.start(filling.start(infill.filled, asked))
        if asked.stream:
            return await streamed(
                request, job, partial(map, event), lambda done: [event({"type": "result", **done})],
                lambda ahead: event({"type": "queued", "ahead": ahead}),
            )  # fmt: skip
        return reply(await finished(request, job))

    @routes.post("/infill", responses=_STREAMS)
    async def fill_for_an_editor(request: Request, asked: EditorRequest) -> Response:
        if asked.n_predict == 0:  # editors warm up a cache, and there is none here
            if asked.stream:
                body = b"".join(llama_cpp.events(model, asked, NOTHING))
                return Response(body, headers=STREAM_HEADERS, media_type="text/event-stream")
            return reply(llama_cpp.answer(model, asked, NOTHING))
        job = work.start(filling.start(llama_cpp.filled, asked))
        if asked.stream:
            return await streamed(request, job, lambda _: [], lambda done: llama_cpp.events(model, asked, done))
        return reply(llama_cpp.answer(model, asked, await finished(request, job)))

    @routes.post("/v1/completions", responses=_STREAMS)
    async def complete(request: Request, asked: CompletionRequest) -> Response:
        job = work.start(filling.start(openai.filled, asked))
        if asked.stream:
            return await streamed(request, job, lambda _: [], lambda done: openai.events(model, asked, done))
        return reply(openai.answer(model, asked, await finished(request, job)))

    return routes


async def _told(request: Request, error: Exception) -> Response:
    """Every error as JSON with a sentence."""
    if isinstance(error, RequestValidationError):
        error = refusal_of(error, request.url.path)
    elif isinstance(error, HTTPException) and error.status_code == 400:  # too deep, numbers of thousands of digits
        error = Refused(400, "the body is not JSON that can be read", "bad_json")
    elif isinstance(error, HTTPException):
        what = "does not take" if error.status_code == 405 else "is not an address for"
        sentence = f"{request.url.path} {what} {request.method}; there are {_ROUTES}"
        code = "not_found" if error.status_code == 404 else "not_allowed"
        error = Refused(error.status_code, sentence, code, dict(error.headers or {}))
    refused = refusal(error)
    return reply(refused.body, refused.status, refused.headers)
