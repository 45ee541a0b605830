"""Commands that measure speed: bench coupling, cost, infill, methods, serve and train."""

from typing import Annotated

import typer

from ddot.cli.app import AsJson, Device, ModelName, Steps, bench, flag, numbers, show
from ddot.cli.serve import Processes, opener

Rounds = Annotated[int, typer.Option(min=1, help="Rounds to measure.")]


@bench.command("coupling")
def bench_coupling(
    as_json: AsJson = False,
    seconds: Annotated[float, typer.Option(min=0.01, help="Seconds to time each contender for.")] = 1.0,
) -> None:
    """Time the linear-time coupling against the paper's dynamic program, and SciPy and POT if installed, on one core.

    The last row only sorts positions, which every coupling must do.

    Example: ddot bench coupling --json
    """
    from ddot.evaluation.speed.coupling import measure

    show(measure(seconds=seconds), as_json)


@bench.command("infill")
def bench_infill(
    model: ModelName = None,
    steps: Steps = 16,
    rounds: Rounds = 3,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Milliseconds per sentence: as shipped, float32, plain, moving slots, left to right; one run, one core.

    On a GPU also long lists, plain and compiled.

    Example: ddot bench infill --json

    Example: ddot bench infill --device cuda
    """
    from ddot.evaluation.speed.infill import measure

    show(measure(model, steps, rounds, device), as_json)


@bench.command("cost")
def bench_cost(
    words: Annotated[str, typer.Option(help="Comma-separated counts of words around a blank.")] = "8,16,32,64,128,512",
    blanks: Annotated[str, typer.Option(help="Comma-separated numbers of blanks among 64 words.")] = "1,2,4,8",
    model: ModelName = None,
    rounds: Rounds = 3,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Milliseconds per text as shipped (wall clock and CPU time) against the words around a blank, and against the
    number of blanks; one run, one core.

    Example: ddot bench cost --words 16,128 --blanks 1,4 --json > cost.jsonl
    """
    from ddot.evaluation.speed.infill import measure_cost

    show(measure_cost(numbers(words, "--words"), numbers(blanks, "--blanks"), model, rounds, device), as_json)


@bench.command("methods")
def bench_methods(
    model: ModelName = None,
    steps: Annotated[str, typer.Option(help="Comma-separated numbers of steps.")] = "2,4,8,16",
    texts: Annotated[int | None, typer.Option(min=1, help="Batch size. Default: 1, or 512 on a GPU.")] = None,
    rounds: Rounds = 3,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Milliseconds per text of left context, PoP and DDOT-U by number of steps, and the speed-up over left context; one
    run, one core.

    Example: ddot bench methods --steps 2,16

    Example: ddot bench methods --device cuda --json
    """
    from ddot.evaluation.speed.infill import measure_methods

    show(measure_methods(model, numbers(steps, "--steps"), texts, rounds, device), as_json)


@bench.command("train")
def bench_train(
    networks: Annotated[list[str], typer.Argument(help="sedd-small, sedd-medium, smollm2, toy.")] = ["toy"],  # noqa: B006
    length: Annotated[list[int], typer.Option(help="L; may be repeated.")] = [64],  # noqa: B006
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    slots: Annotated[int, typer.Option(help="Slots per batch, B times L.")] = 2048,
    steps: Annotated[int, typer.Option(help="Steps; the second half is timed.")] = 20,
    workers: Annotated[int, typer.Option(help="Loader processes.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Training speed: slots per second, share of the measured bf16 matrix peak, share of time spent waiting for data,
    with and without couplings.

    Example: ddot bench train smollm2 sedd-small --device cuda --slots 131072 --steps 60 --workers 14
    """
    from ddot.evaluation.speed.train import measure

    show(measure(networks, length, device, slots, steps, workers), as_json)


@bench.command("serve")
def bench_serve(
    model: ModelName = None,
    device: Device = None,
    processes: Processes = None,
    clients: Annotated[str, typer.Option(help="Comma-separated numbers of clients.")] = "1,4,16,64",
    requests: Annotated[int, typer.Option(min=1, help="Requests per client.")] = 8,
    seconds: Annotated[float, typer.Option(min=1, help="Stop sending requests after this many seconds.")] = 120.0,
    no_http: Annotated[bool, flag("--no-http", "Use the queue without HTTP; needs no web framework.")] = False,
    as_json: AsJson = False,
) -> None:
    """Requests per second, p50 and p95 latency of a server with 1, 4, 16 and 64 clients; errors, and answers that
    differ from those of a single request.

    Example: ddot bench serve --clients 1,4 --requests 4

    Example: ddot bench serve --no-http --device cuda --processes 2 --clients 1,64
    """
    open_pool, counts = opener(model, device, processes), numbers(clients, "--clients")
    if min(counts) < 1:
        raise ValueError(f"--clients is {clients}; each must be at least 1")
    from ddot.serve.bench import http_server, in_process, measure

    most = max(counts)
    server = in_process(open_pool, most) if no_http else http_server(model, device, most, processes)
    show(measure(server, counts, requests, seconds), as_json)
