"""The process: an address, a model, a server that shuts down cleanly."""

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
from ddot.serve.access import Access, api_key_in, is_public
from ddot.serve.connections import Connection
from ddot.serve.jobs import Work

if TYPE_CHECKING:
    from ddot.serve.processes import Filling

_PATIENCE = 5  # seconds to finish sending replies after the drain time


class _Server(uvicorn.Server):
    """SIGTERM: finish running requests within the drain time. Ctrl-C or a second signal: stop before the next step."""

    def __init__(self, config: uvicorn.Config, work: Work, drain: float):
        super().__init__(config)
        self.work, self.drain = work, drain

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig != signal.SIGTERM or self.work.draining:
            self.work.stop()
        self.work.drain()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(self.drain, self.work.stop)
        await super().shutdown(sockets)


def run(open_filling: "Callable[[], Filling]", settings: ServerSettings) -> None:
    key = settings.api_key if settings.api_key_file is None else api_key_in(settings.api_key_file)
    access = Access(key, settings.origins, (*(name.lower() for name in settings.hosts), settings.host.lower()))
    with listening(settings.host, settings.port) as listener:
        if key is None and is_public(settings.host):
            print(
                f"ddot: warning: whoever can reach {settings.host} may use this server; set DDOT_API_KEY or "
                "--api-key-file to ask for a key",
                file=sys.stderr,
            )
        with closing(open_filling()) as filling:  # only now is torch imported: mistakes in the options are told at once
            from ddot.serve.app import make_app

            work = Work(filling.at_once, settings.queue, settings.time_limit)
            config = uvicorn.Config(
                make_app(filling, work, access, settings.access_log),
                http=Connection,
                ws="none",
                log_level="critical",  # errors are reported by `replies`
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=int(settings.drain) + _PATIENCE,
            )
            there = f"{filling.model.name} is at {address(listener)}"
            print(f"ddot: {there} (Ctrl-C stops it)", file=sys.stderr, flush=True)
            with suppress(KeyboardInterrupt):
                _Server(config, work, settings.drain).run(sockets=[listener])
        print("ddot: stopped", file=sys.stderr)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any free one."""
    if not 0 <= port <= 65535:
        raise ValueError(f"--port is {port}; it must be between 0 (any free port) and 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise OSError(
            f"cannot listen at {host}, port {port}: {error.strerror}; choose another --host or --port"
        ) from None


def address(listener: socket.socket) -> str:
    """The address to open in a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
