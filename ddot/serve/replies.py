"""What goes back to a client: JSON, server-sent events, and errors as a sentence.

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
from ddot.serve.jobs import Full, Job, Late, Stopped

S = TypeVar("S")
R = TypeVar("R")
_END = object()
_AT_ONCE = 0.25  # seconds
DONE = b"data: [DONE]\n\n"


class Refused(Exception):
    """A request that is refused: a status, a sentence, a code for programs."""

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
    """The reply to any error. Errors of the server are also printed to stderr."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, Full):
        return Refused(503, "too many requests are waiting; try again in a moment", "busy", {"Retry-After": "2"})
    if isinstance(error, Stopped):
        return Refused(503, "the work was stopped: the server is shutting down", "stopped", {"Retry-After": "10"})
    if isinstance(error, Late):
        advice = "ask for fewer alternatives (n), steps or blanks, or start the server with a larger --time-limit"
        never = {"x-should-retry": "false"}  # clients of OpenAI's would try twice more
        return Refused(503, f"{error}; {advice}", "time_limit", never)
    if isinstance(error, ValueError):
        return Refused(400, told(error, JSON), "bad_value")
    traceback.print_exception(error, file=sys.stderr)
    return Refused(500, "something went wrong on the server, not in your request; see its log", "internal")


def as_json(value: Any) -> bytes:
    """JSON in UTF-8; lone surrogates, which UTF-8 cannot hold, are escaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(as_json(value), status, headers, "application/json")


def event(value: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + as_json(value) + b"\n\n"


async def finished(request: Request, job: Job[S, R]) -> R:
    """The result of a job, which is cancelled when the client disconnects."""
    leaving = _stop_when_left(request, job)
    try:
        return await job.result()
    finally:
        leaving.cancel()
        job.stop()


# A server-sent comment, which readers skip: it keeps a connection from looking dead.
_WAITING = b": waiting\n\n"


async def streamed(
    request: Request,
    job: Job[S, R],
    say: Callable[[S], Iterable[bytes]],
    close: Callable[[R], Iterable[bytes]],
    wait: Callable[[int], bytes] = lambda ahead: _WAITING,
) -> StreamingResponse:
    """Events while the job waits, for each step and for the result. An immediate error has its own HTTP status."""
    leaving = _stop_when_left(request, job)
    steps = job.read()
    first = asyncio.ensure_future(anext(steps, _END))
    await asyncio.wait([first], timeout=_AT_ONCE)
    if first.done() and first.exception() is not None:
        leaving.cancel()
        job.stop()
        first.result()

    async def body() -> AsyncIterator[bytes]:
        told = -1
        try:
            while not first.done():
                if not job.begun.is_set() and job.ahead != told:
                    told = job.ahead
                    yield wait(told)
                await asyncio.wait([first], timeout=_AT_ONCE)
            if first.result() is not _END:
                for each in say(first.result()):  # type: ignore[arg-type]
                    yield each
                async for step in steps:
                    for each in say(step):
                        yield each
            for each in close(await job.result()):
                yield each
        except Exception as error:  # the status is sent already: report it as an event
            yield event(refusal(error).body)
        finally:
            first.cancel()
            leaving.cancel()
            job.stop()

    return StreamingResponse(body(), headers=STREAM_HEADERS, media_type="text/event-stream")


STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def _stop_when_left(request: Request, job: Job[Any, Any]) -> asyncio.Task[None]:
    """Cancels the job when the client closes the connection. The whole body must have been read."""

    async def wait() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        job.stop()

    return asyncio.create_task(wait())
