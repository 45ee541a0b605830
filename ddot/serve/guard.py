"""ASGI middleware around the application: checks the origin and size of every request, counts and logs it."""

import asyncio
import sys
import time
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ddot.serve.access import Access
from ddot.serve.jobs import JobQueue
from ddot.serve.replies import HTTPError, as_json, json_reply

MAX_BYTES = 1 << 20
_BODY_TIMEOUT = 30.0  # seconds
_MAX_DISCARDED = 64 << 20  # bytes read of a body that is too large: a client cut off while sending misses the reply
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cross-origin-resource-policy", b"same-origin")]


class Metrics:
    """Prometheus metrics: requests, their durations, how many are running and waiting."""

    def __init__(self, queue: JobQueue):
        self.registry = CollectorRegistry()
        labels = ("route", "status")
        self.requests = Counter("ddot_requests", "Requests answered.", labels, registry=self.registry)
        self.seconds = Histogram(
            "ddot_request_seconds", "Seconds from a request to the end of its reply.", ("route",),
            registry=self.registry, buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
        )  # fmt: skip
        running = Gauge("ddot_requests_running", "Requests running.", registry=self.registry)
        waiting = Gauge("ddot_requests_waiting", "Requests in the queue.", registry=self.registry)
        running.set_function(lambda: queue.running)
        waiting.set_function(lambda: queue.waiting)

    def count(self, route: str, status: int, seconds: float) -> None:
        self.requests.labels(route, status).inc()
        self.seconds.labels(route).observe(seconds)

    @property
    def text(self) -> bytes:
        return generate_latest(self.registry)


class Guard:
    """The middleware. A request body is read completely, within a limit, before the application runs."""

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics, log: bool = False):
        self.app, self.access, self.metrics, self.log = app, access, metrics, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, status = time.perf_counter(), 499  # the status if the client disconnects before the reply

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", []), *_HEADERS]}
            await send(message)

        try:
            self.access.check_site(Headers(scope=scope))
            if scope["method"] == "POST":
                receive = await _buffer_body(scope, receive)
            await self.app(scope, receive, send_with_headers)
        except HTTPError as error:
            await json_reply(error.body, error.status, error.headers)(scope, receive, send_with_headers)
        except ClientDisconnect:
            pass  # there is no client to answer
        finally:
            self._record(scope, status, time.perf_counter() - start)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        self.metrics.count(getattr(scope.get("route"), "path", "other"), status, seconds)
        if self.log:
            client = (scope.get("client") or ["-"])[0]
            entry = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"), "client": client,
                "method": scope["method"], "path": scope["path"], "status": status, "seconds": round(seconds, 3),
            }  # fmt: skip
            print(as_json(entry).decode(), file=sys.stderr, flush=True)


async def _buffer_body(scope: Scope, receive: Receive) -> Receive:
    """Read the body; returns a `receive` that delivers it. It is parsed as JSON, whatever its content type."""
    body = await _read_body(Request(scope, receive))
    replaced = (b"content-type", b"content-length", b"transfer-encoding")
    kept = [(name, value) for name, value in scope["headers"] if name not in replaced]
    scope["headers"] = [*kept, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    delivered = False

    async def receive_buffered() -> Message:
        nonlocal delivered
        if delivered:
            return await receive()
        delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_buffered


async def _read_body(request: Request) -> bytes:
    """The body, if it is within the size limit and arrives in time."""
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= MAX_BYTES:
                    body += chunk
                elif size > _MAX_DISCARDED:
                    break
    except TimeoutError:
        raise HTTPError(408, f"the body did not arrive within {_BODY_TIMEOUT:.0f} seconds", "too_slow") from None
    if size > MAX_BYTES:
        raise HTTPError(413, f"the body is too large; send up to {MAX_BYTES:,} bytes", "too_large")
    return bytes(body)
