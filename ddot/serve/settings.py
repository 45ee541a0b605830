"""How a server is run."""

from dataclasses import dataclass
from pathlib import Path


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
