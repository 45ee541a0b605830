"""The command `serve`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from ddot.cli.app import Device, ModelName, app, flag, load_model


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; editors expect 8012, 0 takes any free one.")] = 8012,
    model: ModelName = None,
    device: Device = None,
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
    serve_model(lambda: load_model(model, device), settings)
