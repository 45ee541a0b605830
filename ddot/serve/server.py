"""The process: an address, a model, a server that shuts down cleanly."""

import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import uvicorn

from ddot.infill.model import Model
from ddot.serve.app import Access, make_app
from ddot.serve.jobs import Work

_PATIENCE = 5  # seconds for replies that are being sent when the server stops


class _Server(uvicorn.Server):
    """Stops the work as soon as a signal comes, not after it."""

    def __init__(self, config: uvicorn.Config, work: Work):
        super().__init__(config)
        self.work = work

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.work.stop()
        super().handle_exit(sig, frame)


def run(
    load: Callable[[], Model], host: str, port: int, api_key: str | None, allow_origins: tuple[str, ...], queue: int
) -> None:
    """Serve until Ctrl-C."""
    if api_key is not None and not api_key.strip():
        raise ValueError("the API key is empty; give one, or leave --api-key out")
    if queue < 0:
        raise ValueError(f"--queue is {queue}; it must be 0 or more")
    with listening(host, port) as listener:
        model = load()
        model.name = Path(model.name).name if Path(model.name).is_dir() else model.name  # no paths
        work = Work(model.threads if model.device.type == "cpu" else 1, queue)
        config = uvicorn.Config(
            make_app(model, work, Access(api_key, allow_origins)),
            log_level="critical",  # errors are reported by `replies`
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_PATIENCE,
        )
        print(f"ddot: {model.name} is at {address(listener)} (Ctrl-C stops it)", file=sys.stderr, flush=True)
        with suppress(KeyboardInterrupt):
            _Server(config, work).run(sockets=[listener])
        print("ddot: stopped", file=sys.stderr)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any free one."""
    if not 0 <= port <= 65535:
        raise ValueError(f"--port is {port}; it must be between 0 (any free port) and 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise OSError(
            f"cannot listen at {host}, port {port}: {error.strerror}; choose another --host or --port"
        ) from None


def address(listener: socket.socket) -> str:
    """The address to open in a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
