"""The HTTP server: infilling for programs, editors and people with a browser. Needs the extra `serve`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddot.version import install_command

if TYPE_CHECKING:
    from ddot.serve.processes import Filling

MOST_PROCESSES = 16  # of one GPU: each fills 4 of the 64 requests


def check_processes(processes: int | None, device: str | None) -> None:
    """Refuse a number of processes that no device has, or this one does not."""
    if processes is None:
        return
    if not 1 <= processes <= MOST_PROCESSES:
        raise ValueError(f"--processes is {processes}; it must be between 1 and {MOST_PROCESSES}")
    if device is not None and device.partition(":")[0] != "cuda":
        raise ValueError(
            f"--processes is for a GPU, and the device is {device}: a CPU has a process for each core; leave it out"
        )


@dataclass(frozen=True)
class ServerSettings:
    """Where to listen, who may ask, and how much is done.

    The key is the content of `api_key_file` or else `api_key`. `origins`, `hosts`: other sites whose pages may ask, and
    other names of this server. `queue`: requests that may wait. `time_limit`: seconds until a request is answered.
    `drain`: seconds for requests that are under way at SIGTERM.
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
                least = "above 0" if name == "time_limit" else "0 or more"
                raise ValueError(f"--{name.replace('_', '-')} is {getattr(self, name):g}; it must be {least}")
        if self.api_key is not None and not self.api_key.strip():
            raise ValueError("the API key in DDOT_API_KEY is empty; give one, or unset the variable")


def serve(open_filling: "Callable[[], Filling]", settings: ServerSettings) -> None:
    """Fill requests there until Ctrl-C. The address is bound first: loading a model takes seconds."""
    try:
        from ddot.serve.server import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("fastapi", "prometheus_client", "pydantic", "starlette", "uvicorn"):
            raise
        raise ValueError(f"serving needs the extra `serve`: {install_command('serve')}") from None
    run(open_filling, settings)
