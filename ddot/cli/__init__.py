"""The command line. Every command parses, calls one library function, and prints or saves.

Results go to stdout, everything else to stderr. A user's mistake is one sentence and exit status 2.
"""

import sys

from ddot.cli import measure, research, serving, texts  # noqa: F401 (each adds its commands)
from ddot.cli.app import app


def run() -> None:
    """The `ddot` command."""
    try:
        app()
    except (ValueError, OSError) as error:
        print(f"ddot: {error}", file=sys.stderr)
        sys.exit(2)
