"""The command `serve`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddot.cli.app import Device, ModelName, app, check_model, flag, load_model

if TYPE_CHECKING:
    from ddot.serve.processes import WorkerPool

Processes = Annotated[int | None, typer.Option(help="Processes that share a GPU. Default: 2.")]


def opener(model: str | None, device: str | None, processes: int | None) -> "Callable[[], WorkerPool]":
    """A function that loads the model and starts the workers; torch is not imported until it is called."""
    from ddot.serve import check_processes

    check_model(model)
    check_processes(processes, device)

    def load_and_start() -> "WorkerPool":
        from ddot.serve.processes import open_pool

        return open_pool(load_model, model, device, processes)

    return load_and_start


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; editors expect 8012, 0 takes any free one.")] = 8012,
    model: ModelName = None,
    device: Device = None,
    processes: Processes = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with the Bearer key to require; or DDOT_API_KEY.")
    ] = None,
    allow_origin: Annotated[list[str], typer.Option(metavar="ORIGIN", help="Another web origin to allow, or *.")] = [],  # noqa: B006
    allow_host: Annotated[list[str], typer.Option(metavar="NAME", help="Another host name of this server, or *.")] = [],  # noqa: B006
    queue: Annotated[int, typer.Option(help="Maximum number of waiting requests; further ones get 503.")] = 64,
    time_limit: Annotated[float, typer.Option(help="Seconds within which a request is answered.")] = 60.0,
    drain: Annotated[float, typer.Option(help="Seconds to finish running requests at SIGTERM.")] = 30.0,
    access_log: Annotated[bool, flag("--access-log", "Log a JSON line per request to stderr.")] = False,
) -> None:
    """Serve a page, an HTTP API, and the infilling endpoints of llama.cpp and OpenAI.

    Example: ddot serve --port 8012
    """
    from ddot.serve import ServerSettings
    from ddot.serve import serve as serve_model

    settings = ServerSettings(
        host, port, os.environ.get("DDOT_API_KEY"), api_key_file, tuple(allow_origin), tuple(allow_host),
        queue, time_limit, drain, access_log,
    )  # fmt: skip
    serve_model(opener(model, device, processes), settings)
