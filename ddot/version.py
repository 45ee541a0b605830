"""The running code: its commit, a checksum of its source, how to install more of it."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path


def commit() -> str | None:
    """The commit of this checkout, with a + if files changed since; None outside a checkout."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    head = _git(root, "rev-parse", "--short=10", "HEAD").strip()
    return head + "+" * bool(_git(root, "status", "--porcelain", "--untracked-files=no")) if head else None


def source() -> str:
    """A checksum of the code: a commit does not identify uncommitted changes."""
    root, digest = Path(__file__).parent, sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def install_command(name: str) -> str:
    """The command that installs an extra beside the running code, whatever the current folder is."""
    root, pip = Path(__file__).parents[1], f"{shlex.quote(sys.executable)} -m pip install"
    if not (root / "pyproject.toml").is_file():
        return f"{pip} 'ddot-infill[{name}]'"
    constraints, package = shlex.quote(str(root / "constraints.txt")), shlex.quote(f"{root}[{name}]")
    return f"{pip} -c {constraints} --config-settings editable_mode=compat -e {package}"


@contextmanager
def extra(what: str, name: str) -> Iterator[None]:
    """Turn a failed import into a sentence that names the extra to install."""
    try:
        yield
    except ImportError:
        raise ValueError(f"{what} needs the extra `{name}`: {install_command(name)}") from None


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=root).stdout
