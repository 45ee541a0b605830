"""HTTP connections with timeouts for headers and replies, and a maximum number of them.

uvicorn itself waits indefinitely for headers and for clients that do not read.
"""

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.h11_impl import H11Protocol

from ddot.serve.replies import HTTPError, as_json

MAX_CONNECTIONS = 512
HEADER_TIMEOUT = 5.0  # seconds for the headers of a request
REPLY_TIMEOUT = 600.0  # seconds from the headers to the end of the reply


class LimitedConnection(H11Protocol):
    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            self._refuse(HTTPError(503, f"{MAX_CONNECTIONS} connections are open; try again in a moment", "busy"))
        else:
            self._restart_timer(HEADER_TIMEOUT)

    def data_received(self, data: bytes) -> None:
        previous = self.cycle
        super().data_received(data)
        if self.cycle is not previous and not self.cycle.response_complete:
            self._restart_timer(REPLY_TIMEOUT)

    def on_response_complete(self) -> None:
        self._restart_timer(HEADER_TIMEOUT)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._restart_timer(None)
        super().connection_lost(exc)

    def _restart_timer(self, seconds: float | None) -> None:
        """The next event must come within this time; None stops the timer."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None if seconds is None else self.loop.call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # part of the reply may have been sent
        else:
            sentence = f"no complete request arrived within {HEADER_TIMEOUT:.0f} seconds; send it again"
            self._refuse(HTTPError(408, sentence, "too_slow"))

    def _refuse(self, error: HTTPError) -> None:
        """Reply on the transport itself, since the protocol may be in the middle of a request, and close."""
        body = as_json(error.body)
        head = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nRetry-After: 2\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
