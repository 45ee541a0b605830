"""The command `serve`."""

from typing import Annotated

import typer

from ddot.cli.app import Device, ModelName, app, load_model


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 8012 is what editors expect, 0 is any free one.")] = 8012,
    model: ModelName = None,
    device: Device = None,
    api_key: Annotated[str | None, typer.Option(envvar="DDOT_API_KEY", help="Require this key (Bearer).")] = None,
    allow_origin: Annotated[list[str], typer.Option(help="Another web origin that is allowed, or *.")] = [],  # noqa: B006
    queue: Annotated[int, typer.Option(help="Requests that may wait; more are answered 503.")] = 16,
) -> None:
    """Serve a page, an HTTP API, and the infilling endpoints of llama.cpp and OpenAI.

    Example: ddot serve --port 8012
    """
    from ddot.serve import serve as serve_model

    serve_model(lambda: load_model(model, device), host, port, api_key, allow_origin, queue)
