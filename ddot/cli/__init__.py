"""The command line. Every command parses, calls one library function, and prints or saves.

Results go to stdout, everything else to stderr. A user's mistake is one sentence and exit status 2.
"""

import sys

from ddot.cli import infill  # noqa: F401 (each adds its commands; these are what most people come for)

# isort: split
from ddot.cli import evaluation, figures, serve, speed, training  # noqa: F401
from ddot.cli.app import app


def run() -> None:
    """The `ddot` command."""
    try:
        app()
    except (ValueError, OSError) as error:
        print(f"ddot: {error}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as end:
        cause = end.__context__
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__context__
        if cause is not None:
            print("ddot: interrupted", file=sys.stderr)
        raise
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's; its import takes a second
            raise
        print("ddot: the GPU's memory is full; free some, or use --device cpu", file=sys.stderr)
        sys.exit(2)
