"""Files that tables come from and go to: rows as JSON lines, a Markdown document with a marked place."""

import json
from pathlib import Path
from typing import Any

from ddot.files import write_whole


def read_rows(*files: Path) -> list[dict[str, Any]]:
    """The rows of files of JSON lines, in order."""
    rows = []
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"no rows at {file}; make them with ddot evaluate … --output {file}")
        for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(
                    f"{file}, line {number}: wanted a row as JSON, got '{line[:40]}' ({error.msg})"
                ) from None
            if not isinstance(row, dict):
                raise ValueError(f'{file}, line {number}: wanted a row {{"method": …}}, got a {type(row).__name__}')
            rows.append(row)
    return rows


def insert(document: Path, marker: str, text: str) -> None:
    """Put `text` between `<!-- marker -->` and `<!-- /marker -->` of a Markdown file, in place of what stands there.

    The file is the old one or the new one at any moment; one that says the same already is not touched.
    """
    if not document.is_file():
        raise FileNotFoundError(f"there is no file {document} to put a table into")
    begin, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    with open(document, encoding="utf-8", newline="") as file:
        old = file.read()
    before, found, rest = old.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed) or old.count(begin) > 1 or old.count(end) > 1:
        raise ValueError(f"{document} wants {begin} and after it {end}, once each; add them where the table goes")
    if begin in text or end in text:
        raise ValueError(f"the text for {document} itself holds {begin} or {end}; take another marker")
    newline = "\r\n" if "\r\n" in old else "\n"
    lines = [begin, "", *text.strip().splitlines(), "", end]
    new = before + newline.join(lines) + after
    if new != old:
        write_whole(document.resolve(), new.encode())
