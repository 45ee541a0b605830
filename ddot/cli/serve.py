"""The command that serves: serve."""

from typing import Annotated

import typer

from ddot.cli.app import Device, ModelName, app, load_model


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 is everywhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="8012 is where editors look; 0: any free one.")] = 8012,
    model: ModelName = None,
    device: Device = None,
    api_key: Annotated[str | None, typer.Option(envvar="DDOT_API_KEY", help="Ask for this key (Bearer).")] = None,
    allow_origin: Annotated[list[str], typer.Option(help="A web origin that may ask, or *.")] = [],  # noqa: B006
    queue: Annotated[int, typer.Option(help="Requests that may wait; more are told to come back.")] = 16,
) -> None:
    """Serve a page, an HTTP API, and llama.cpp's and OpenAI's ways of infilling for editors and programs.

    Example: ddot serve --port 8012
    """
    from ddot.serve import serve as serve_model

    serve_model(lambda: load_model(model, device), host, port, api_key, allow_origin, queue)
