"""Files that are the old one or the new one at any moment."""

import os
import shutil
from pathlib import Path


def write_whole(path: Path | str, content: bytes) -> None:
    """Write a file under another name, then give it its own: a stop halfway leaves no half file. The mode stays."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into; make it first")
    draft = path.with_name(f"{path.name}.unfinished")  # always the same: one left by a kill is written over
    try:
        draft.write_bytes(content)
        if path.exists():
            shutil.copymode(path, draft)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
