"""The application: its routes, which of them need the API key, and how errors are reported."""

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
from ddot.serve.fim import EMPTY
from ddot.serve.guard import Guard, Metrics
from ddot.serve.jobs import DeadlineExceeded, JobCancelled, JobQueue, QueueFull
from ddot.serve.processes import WorkerPool
from ddot.serve.replies import STREAM_HEADERS, HTTPError, event, http_error, json_reply, stream, wait_for
from ddot.serve.requests import CompletionRequest, EditorRequest, InfillRequest, validation_error

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


def _success(*media_types: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": "Success", "content": {media_type: {} for media_type in media_types}}}


_JSON_OR_STREAM = _success("application/json", "text/event-stream")


class ErrorText(BaseModel):
    message: str
    type: str
    code: str


class ErrorReply(BaseModel):
    """The body of every reply that is not a success."""

    error: ErrorText


def make_app(pool: WorkerPool, queue: JobQueue, access: Access, log: bool = False) -> ASGIApp:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(queue.close)

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
    handled = (HTTPError, QueueFull, DeadlineExceeded, JobCancelled, HTTPException, RequestValidationError)
    for error in (Exception, ValueError, *handled):
        app.add_exception_handler(error, _error_reply)
    metrics = Metrics(queue)
    app.include_router(_public_routes(pool.model.name, queue))
    app.include_router(_routes(pool, queue, metrics), dependencies=[Depends(check_key)])
    return Guard(app, access, metrics, log)


def _public_routes(model: str, queue: JobQueue) -> APIRouter:
    """Routes that need no key: the health check, and the page, which asks for the key itself."""
    routes = APIRouter()
    for file, media_type in _PAGE.items():
        path = "/" if file == "page.html" else f"/{file}"
        routes.add_api_route(path, _send_file(file, media_type), include_in_schema=False)

    @routes.get("/health")
    async def health() -> Response:
        return json_reply({"status": "ok", "model": model, "at_work": queue.running, "waiting": queue.waiting})

    return routes


def _send_file(name: str, media_type: str) -> Callable[[], Response]:
    """A handler that sends a file of the page."""
    content = Path(__file__).with_name(name).read_bytes()
    return lambda: Response(content, headers=_PAGE_HEADERS, media_type=media_type)


def _routes(pool: WorkerPool, queue: JobQueue, metrics: Metrics) -> APIRouter:
    routes, model = APIRouter(), pool.model
    entry = {"id": model.name, "object": "model", "created": int(time.time()), "owned_by": "ddot"}

    @routes.get("/v1/models")
    async def models() -> Response:
        return json_reply({"object": "list", "data": [entry]})

    @routes.get("/v1/models/{name:path}")
    async def one_model(name: str) -> Response:
        if name != model.name:
            raise HTTPError(404, f"there is no model {name!r}; this server has {model.name!r}", "not_found")
        return json_reply(entry)

    @routes.get("/metrics", responses=_success("text/plain"))
    async def show_metrics() -> Response:
        return Response(metrics.text, media_type="text/plain; version=0.0.4")

    @routes.post("/v1/infill", responses=_JSON_OR_STREAM)
    async def fill_text(request: Request, body: InfillRequest) -> Response:
        job = queue.submit(pool.steps(infill.fill, body))
        if body.stream:
            return await stream(
                request, job, partial(map, event), lambda result: [event({"type": "result", **result})],
                lambda ahead: event({"type": "queued", "ahead": ahead}),
            )  # fmt: skip
        return json_reply(await wait_for(request, job))

    @routes.post("/infill", responses=_JSON_OR_STREAM)
    async def fill_for_an_editor(request: Request, body: EditorRequest) -> Response:
        if body.n_predict == 0:  # editors do this to warm up a cache; this server has none
            if body.stream:
                events = b"".join(llama_cpp.events(model, body, EMPTY))
                return Response(events, headers=STREAM_HEADERS, media_type="text/event-stream")
            return json_reply(llama_cpp.reply(model, body, EMPTY))
        job = queue.submit(pool.steps(llama_cpp.fill, body))
        if body.stream:
            return await stream(request, job, lambda _: [], lambda result: llama_cpp.events(model, body, result))
        return json_reply(llama_cpp.reply(model, body, await wait_for(request, job)))

    @routes.post("/v1/completions", responses=_JSON_OR_STREAM)
    async def complete(request: Request, body: CompletionRequest) -> Response:
        job = queue.submit(pool.steps(openai.fill, body))
        if body.stream:
            return await stream(request, job, lambda _: [], lambda result: openai.events(model, body, result))
        return json_reply(openai.reply(model, body, await wait_for(request, job)))

    return routes


async def _error_reply(request: Request, error: Exception) -> Response:
    """Every error as JSON with a sentence."""
    if isinstance(error, RequestValidationError):
        error = validation_error(error, request.url.path)
    elif isinstance(error, HTTPException) and error.status_code == 400:  # nested too deep, or a number too long
        error = HTTPError(400, "the body is not JSON that can be read; wanted a JSON object", "bad_json")
    elif isinstance(error, HTTPException):
        problem = "does not accept" if error.status_code == 405 else "is not a route for"
        sentence = f"{request.url.path} {problem} {request.method}; the routes are {_ROUTES}"
        code = "not_found" if error.status_code == 404 else "not_allowed"
        error = HTTPError(error.status_code, sentence, code, dict(error.headers or {}))
    found = http_error(error)
    return json_reply(found.body, found.status, found.headers)
