"""Connections with time limits for headers and replies, and a maximum number of them.

uvicorn itself waits indefinitely for headers and for clients that do not read.
"""

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.h11_impl import H11Protocol

from ddot.serve.replies import Refused, as_json

MOST = 512
HEADERS = 5.0  # seconds for the headers of a request
REPLY = 600.0  # seconds for a request, its work and its reply


class Connection(H11Protocol):
    due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST:
            self._refuse(Refused(503, f"{MOST} connections are open; try again in a moment", "busy"))
        else:
            self._expect(HEADERS)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before and not self.cycle.response_complete:
            self._expect(REPLY)

    def on_response_complete(self) -> None:
        self._expect(HEADERS)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        super().connection_lost(exc)

    def _expect(self, seconds: float | None) -> None:
        """Restart the timer: the next event must come within this time."""
        if self.due is not None:
            self.due.cancel()
        self.due = None if seconds is None else self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # half a reply may have been sent
        else:
            self._refuse(Refused(408, f"no whole request came within {HEADERS:.0f} seconds", "too_slow"))

    def _refuse(self, refused: Refused) -> None:
        """Reply on the transport itself, since the protocol may be in the middle of a request, and close."""
        body = as_json(refused.body)
        head = (
            f"HTTP/1.1 {refused.status} {HTTPStatus(refused.status).phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nRetry-After: 2\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
