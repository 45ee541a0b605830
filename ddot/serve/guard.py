"""Wraps the application: checks the site and the size of every request, counts and logs it."""

import asyncio
import sys
import time
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ddot.serve.access import Access
from ddot.serve.jobs import Work
from ddot.serve.replies import Refused, as_json, reply

MOST_BYTES = 1 << 20
_PATIENCE = 30.0  # seconds for a body to arrive
_DRAINED = 64 << 20  # bytes read of a body that is too large: a client cut off while sending would miss the reply
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cross-origin-resource-policy", b"same-origin")]


class Metrics:
    """Prometheus metrics: requests, their durations, how many are running and waiting."""

    def __init__(self, work: Work):
        self.registry = CollectorRegistry()
        labels = ("route", "status")
        self.requests = Counter("ddot_requests", "Requests answered.", labels, registry=self.registry)
        self.seconds = Histogram(
            "ddot_request_seconds", "Seconds from a request to the end of its reply.", ("route",),
            registry=self.registry, buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
        )  # fmt: skip
        running = Gauge("ddot_requests_running", "Requests at work.", registry=self.registry)
        waiting = Gauge("ddot_requests_waiting", "Requests in the queue.", registry=self.registry)
        running.set_function(lambda: work.at_work)
        waiting.set_function(lambda: work.waiting)

    def count(self, route: str, status: int, seconds: float) -> None:
        self.requests.labels(route, status).inc()
        self.seconds.labels(route).observe(seconds)

    @property
    def text(self) -> bytes:
        return generate_latest(self.registry)


class Guard:
    """ASGI middleware. A body is read completely, within a limit, before the application runs."""

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics, log: bool = False):
        self.app, self.access, self.metrics, self.log = app, access, metrics, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, status = time.perf_counter(), 499  # of a client that disconnects before the reply

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", []), *_HEADERS]}
            await send(message)

        try:
            self.access.check_site(Headers(scope=scope))
            if scope["method"] == "POST":
                receive = await _with_body(scope, receive)
            await self.app(scope, receive, sending)
        except Refused as refused:
            await reply(refused.body, refused.status, refused.headers)(scope, receive, sending)
        except ClientDisconnect:
            pass  # there is no client to answer
        finally:
            self._count(scope, status, time.perf_counter() - start)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        self.metrics.count(getattr(scope.get("route"), "path", "other"), status, seconds)
        if self.log:
            client = (scope.get("client") or ["-"])[0]
            line = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"), "client": client,
                "method": scope["method"], "path": scope["path"], "status": status, "seconds": round(seconds, 3),
            }  # fmt: skip
            print(as_json(line).decode(), file=sys.stderr, flush=True)


async def _with_body(scope: Scope, receive: Receive) -> Receive:
    """A `receive` that returns the complete body first. It is read as JSON, whatever its content type."""
    body = await _body(Request(scope, receive))
    names = (b"content-type", b"content-length", b"transfer-encoding")
    kept = [(name, value) for name, value in scope["headers"] if name not in names]
    scope["headers"] = [*kept, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    handed = False

    async def receiving() -> Message:
        nonlocal handed
        if handed:
            return await receive()
        handed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving


async def _body(request: Request) -> bytes:
    """The body, if it is within the size limit and arrives in time."""
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(_PATIENCE):
            async for part in request.stream():
                size += len(part)
                if size <= MOST_BYTES:
                    body += part
                elif size > _DRAINED:
                    break
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {_PATIENCE:.0f} seconds", "too_slow") from None
    if size > MOST_BYTES:
        raise Refused(413, f"the body is too large; up to {MOST_BYTES:,} bytes are read", "too_large")
    return bytes(body)
