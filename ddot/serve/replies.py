"""Replies to clients: JSON, server-sent events, and errors with a sentence.

{"error": {"message": "…", "type": "invalid_request_error", "code": "bad_value"}}, as OpenAI's clients expect.
"""

import asyncio
import json
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from ddot.infill.mistakes import JSON, told
from ddot.serve.jobs import DeadlineExceeded, Job, JobCancelled, QueueFull

S = TypeVar("S")
R = TypeVar("R")
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
DONE = b"data: [DONE]\n\n"
_KEEP_ALIVE = b": waiting\n\n"  # a comment, which clients skip
_END = object()
_POLL = 0.25  # seconds between looks at the queue


class HTTPError(Exception):
    """An error reply: an HTTP status, a sentence, and a code for programs."""

    def __init__(self, status: int, message: str, code: str, headers: dict[str, str] | None = None):
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers

    @property
    def type(self) -> str:
        if self.status == 401:
            return "authentication_error"
        return "server_error" if self.status >= 500 else "invalid_request_error"

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.type, "code": self.code}}


def http_error(error: Exception) -> HTTPError:
    """The reply to any exception. Internal errors are also printed to stderr."""
    if isinstance(error, HTTPError):
        return error
    if isinstance(error, QueueFull):
        return HTTPError(503, "too many requests are waiting; try again in a moment", "busy", {"Retry-After": "2"})
    if isinstance(error, JobCancelled):
        sentence = "the request was cancelled because the server is shutting down; try again later"
        return HTTPError(503, sentence, "stopped", {"Retry-After": "10"})
    if isinstance(error, DeadlineExceeded):
        advice = "ask for fewer alternatives (n), steps or blanks, or start the server with a larger --time-limit"
        no_retry = {"x-should-retry": "false"}  # OpenAI's clients would retry twice
        return HTTPError(503, f"{error}; {advice}", "time_limit", no_retry)
    if isinstance(error, ValueError):
        return HTTPError(400, told(error, JSON), "bad_value")
    traceback.print_exception(error, file=sys.stderr)
    return HTTPError(500, "something went wrong on the server, not in your request; see its log", "internal")


def as_json(value: Any) -> bytes:
    """JSON in UTF-8; lone surrogates, which UTF-8 cannot hold, are escaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def json_reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(as_json(value), status, headers, "application/json")


def event(value: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + as_json(value) + b"\n\n"


async def wait_for(request: Request, job: Job[S, R]) -> R:
    """The result of a job, which is cancelled when the client disconnects."""
    watch = _cancel_on_disconnect(request, job)
    try:
        return await job.result()
    finally:
        watch.cancel()
        job.cancel()


async def stream(
    request: Request,
    job: Job[S, R],
    step_events: Callable[[S], Iterable[bytes]],
    result_events: Callable[[R], Iterable[bytes]],
    queued_event: Callable[[int], bytes] = lambda ahead: _KEEP_ALIVE,
) -> StreamingResponse:
    """Events while the job waits, for each step and for the result. An immediate error gets its own HTTP status."""
    watch = _cancel_on_disconnect(request, job)
    steps = job.read()
    first = asyncio.ensure_future(anext(steps, _END))
    await asyncio.wait([first], timeout=_POLL)
    if first.done() and first.exception() is not None:
        watch.cancel()
        job.cancel()
        first.result()

    async def body() -> AsyncIterator[bytes]:
        reported = -1
        try:
            while not first.done():
                if not job.started.is_set() and job.ahead != reported:
                    reported = job.ahead
                    yield queued_event(reported)
                await asyncio.wait([first], timeout=_POLL)
            if first.result() is not _END:
                for chunk in step_events(first.result()):  # type: ignore[arg-type]
                    yield chunk
                async for step in steps:
                    for chunk in step_events(step):
                        yield chunk
            for chunk in result_events(await job.result()):
                yield chunk
        except Exception as error:  # the status has been sent: report the error as an event
            yield event(http_error(error).body)
        finally:
            first.cancel()
            watch.cancel()
            job.cancel()

    return StreamingResponse(body(), headers=STREAM_HEADERS, media_type="text/event-stream")


def _cancel_on_disconnect(request: Request, job: Job[Any, Any]) -> asyncio.Task[None]:
    """A task that cancels the job when the client disconnects. The whole request body must have been read."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        job.cancel()

    return asyncio.create_task(watch())
