"""The HTTP server: infilling for programs, editors and people with a browser. Needs the extra `serve`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddot.infill.model import Model


def serve(
    load: "Callable[[], Model]",
    host: str = "127.0.0.1",
    port: int = 8012,
    api_key: str | None = None,
    allow_origins: list[str] | None = None,
    queue: int = 16,
) -> None:
    """Serve the model that `load` returns until Ctrl-C. The address is bound first: loading takes seconds."""
    try:
        from ddot.serve.server import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("fastapi", "pydantic", "starlette", "uvicorn"):
            raise
        raise ValueError("serving needs the extra `serve`: pip install -e '.[serve]'") from None
    run(load, host, port, api_key, tuple(allow_origins or ()), queue)
