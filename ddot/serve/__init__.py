"""The HTTP server: infilling for programs, editors and people with a browser. Needs the extra `serve`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddot.infill.model import Model
    from ddot.serve.settings import ServerSettings


def serve(load: "Callable[[], Model]", settings: "ServerSettings") -> None:
    """Serve the model that `load` returns until Ctrl-C. The address is bound first: loading takes seconds."""
    try:
        from ddot.serve.server import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("fastapi", "prometheus_client", "pydantic", "starlette", "uvicorn"):
            raise
        raise ValueError("serving needs the extra `serve`: pip install -e '.[serve]'") from None
    run(load, settings)
