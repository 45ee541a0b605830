"""The HTTP server: infilling for programs, editors and browsers. Needs the extra `serve`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddot.version import install_command

if TYPE_CHECKING:
    from ddot.serve.processes import WorkerPool

MAX_PROCESSES = 16  # on one GPU: each fills 4 of the 64 requests


def check_processes(processes: int | None, device: str | None) -> None:
    """Refuse a number of processes that is out of range, or any for a CPU."""
    if processes is None:
        return
    if not 1 <= processes <= MAX_PROCESSES:
        raise ValueError(f"--processes is {processes}; it must be between 1 and {MAX_PROCESSES}")
    if device is not None and device.partition(":")[0] != "cuda":
        raise ValueError(
            f"--processes is for a GPU, and the device is {device}: a CPU gets one process per core; leave it out"
        )


@dataclass(frozen=True)
class ServerSettings:
    """Where to listen, who may connect, and the limits.

    `api_key_file` takes precedence over `api_key`. `origins`: other sites whose pages may send requests. `hosts`: other
    names of this server. `queue`: requests that may wait. `time_limit`: seconds until every request is answered.
    `drain`: seconds to finish requests after SIGTERM.
    """

    host: str = "127.0.0.1"
    port: int = 8012
    api_key: str | None = None
    api_key_file: Path | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    queue: int = 64
    time_limit: float = 60.0
    drain: float = 30.0
    access_log: bool = False

    def __post_init__(self) -> None:
        for name in ("queue", "time_limit", "drain"):
            if not getattr(self, name) >= 0 or (name == "time_limit" and not self.time_limit > 0):
                wanted = "above 0" if name == "time_limit" else "0 or more"
                raise ValueError(f"--{name.replace('_', '-')} is {getattr(self, name):g}; it must be {wanted}")
        if self.api_key is not None and not self.api_key.strip():
            raise ValueError("the API key in DDOT_API_KEY is empty; give one, or unset the variable")


def serve(open_pool: "Callable[[], WorkerPool]", settings: ServerSettings) -> None:
    """Serve until Ctrl-C. The address is bound first: loading a model takes seconds."""
    try:
        from ddot.serve.server import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("fastapi", "prometheus_client", "pydantic", "starlette", "uvicorn"):
            raise
        raise ValueError(f"serving needs the extra `serve`: {install_command('serve')}") from None
    run(open_pool, settings)
