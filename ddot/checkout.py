"""Which code this is."""

import shutil
import subprocess
from pathlib import Path


def commit() -> str | None:
    """The commit of this checkout, where it is one."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    found = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, cwd=root)
    return found.stdout.strip() or None
