"""The server process: binds an address, loads a model, and shuts down gracefully."""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from ddot.serve import ServerSettings
from ddot.serve.access import Access, is_public, read_api_key
from ddot.serve.connections import LimitedConnection
from ddot.serve.jobs import JobQueue

if TYPE_CHECKING:
    from ddot.serve.processes import WorkerPool

_SEND_TIMEOUT = 5  # seconds to finish sending replies after the drain time


class _Server(uvicorn.Server):
    """SIGTERM drains: requests may finish within the drain time. Ctrl-C or a second signal stops at the next step."""

    def __init__(self, config: uvicorn.Config, queue: JobQueue, drain: float):
        super().__init__(config)
        self.queue, self.drain = queue, drain

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig != signal.SIGTERM or self.queue.draining:
            self.queue.stop()
        self.queue.drain()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(self.drain, self.queue.stop)
        await super().shutdown(sockets)


def run(open_pool: "Callable[[], WorkerPool]", settings: ServerSettings) -> None:
    key = settings.api_key if settings.api_key_file is None else read_api_key(settings.api_key_file)
    access = Access(key, settings.origins, (*(name.lower() for name in settings.hosts), settings.host.lower()))
    with listen(settings.host, settings.port) as listener:
        if key is None and is_public(settings.host):
            print(
                f"ddot: warning: anyone who can reach {settings.host} may use this server; set DDOT_API_KEY or "
                "--api-key-file to require a key",
                file=sys.stderr,
            )
        with closing(open_pool()) as pool:  # torch is imported only now: mistakes in the options are reported at once
            from ddot.serve.app import make_app

            queue = JobQueue(pool.capacity, settings.queue, settings.time_limit)
            config = uvicorn.Config(
                make_app(pool, queue, access, settings.access_log),
                http=LimitedConnection,
                ws="none",
                log_level="critical",  # errors are reported by `replies`
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=int(settings.drain) + _SEND_TIMEOUT,
            )
            print(f"ddot: {pool.model.name} is at {url(listener)} (Ctrl-C stops it)", file=sys.stderr, flush=True)
            with suppress(KeyboardInterrupt):
                _Server(config, queue, settings.drain).run(sockets=[listener])
        print("ddot: stopped", file=sys.stderr)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free one."""
    if not 0 <= port <= 65535:
        raise ValueError(f"--port is {port}; it must be between 0 (any free port) and 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise OSError(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose another --host or --port"
        ) from None


def url(listener: socket.socket) -> str:
    """The URL to open in a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
