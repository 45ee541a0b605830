"""What goes back to a client: JSON, server-sent events, and mistakes as a sentence.

{"error": {"message": "…", "type": "invalid_request_error", "code": "bad_value"}}, as OpenAI's clients read it.
"""

import asyncio
import json
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from ddot.serve.jobs import Full, Job, Stopped

S = TypeVar("S")
R = TypeVar("R")
_END = object()
DONE = b"data: [DONE]\n\n"


class Refused(Exception):
    """A request that is not answered: a status, a sentence, a code for programs."""

    def __init__(self, status: int, message: str, code: str, headers: dict[str, str] | None = None):
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers

    @property
    def kind(self) -> str:
        if self.status == 401:
            return "authentication_error"
        return "server_error" if self.status >= 500 else "invalid_request_error"

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.kind, "code": self.code}}


def refusal(error: Exception) -> Refused:
    """How any mistake is told. What is not the caller's is written to stderr in full, and told in general."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, Full):
        return Refused(503, "too many requests wait already; try again in a moment", "busy", {"Retry-After": "2"})
    if isinstance(error, Stopped):
        return Refused(503, "the work was stopped: the server is shutting down", "stopped", {"Retry-After": "10"})
    if isinstance(error, ValueError):
        return Refused(400, str(error), "bad_value")
    traceback.print_exception(error, file=sys.stderr)
    return Refused(500, "something went wrong here, not in your request; the server's log has it", "internal")


def as_json(value: Any) -> bytes:
    """JSON in UTF-8. Half characters, which UTF-8 has not, are written as escapes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(as_json(value), status, headers, "application/json")


def event(value: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + as_json(value) + b"\n\n"


async def finished(request: Request, job: Job[S, R]) -> R:
    """The result of a job, which stops when the client leaves."""
    leaving = _stop_when_left(request, job)
    try:
        return await job.result()
    finally:
        leaving.cancel()
        job.stop()


async def streamed(
    request: Request, job: Job[S, R], say: Callable[[S], Iterable[bytes]], close: Callable[[R], Iterable[bytes]]
) -> StreamingResponse:
    """What is said of each step and of the result, as it comes. A mistake in the request has a status of its own."""
    leaving = _stop_when_left(request, job)
    steps = job.read()
    try:
        first = await anext(steps, _END)
    except BaseException:
        leaving.cancel()
        job.stop()
        raise

    async def body() -> AsyncIterator[bytes]:
        try:
            if first is not _END:
                for each in say(first):  # type: ignore[arg-type]
                    yield each
            async for step in steps:
                for each in say(step):
                    yield each
            for each in close(await job.result()):
                yield each
        except Exception as error:  # the status has gone out: told as an event
            yield event(refusal(error).body)
        finally:
            leaving.cancel()
            job.stop()

    return StreamingResponse(body(), headers=STREAM_HEADERS, media_type="text/event-stream")


STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def _stop_when_left(request: Request, job: Job[Any, Any]) -> asyncio.Task[None]:
    """Stops the job when the client has closed the connection. Wants the whole body to have been read."""

    async def wait() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        job.stop()

    return asyncio.create_task(wait())
