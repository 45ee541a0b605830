"""Files that tables come from and go to: rows as JSON lines, a Markdown document with a marked place."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddot.evaluation.rows import PlacedRow
from ddot.files import write_whole


def read_rows(*files: Path) -> list[dict[str, Any]]:
    """The rows of files of JSON lines, in order. Each knows where it stood."""
    rows: list[dict[str, Any]] = []
    for file in files:
        if file.is_dir():
            raise ValueError(f"{file} is a folder; give the files of rows in it")
        if not file.is_file():
            raise FileNotFoundError(f"no rows at {file}; make them with ddot evaluate … --output {file}")
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{file} is no text ({error.reason}); wanted rows as JSON lines") from None
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                why = getattr(error, "msg", "nested too deep")
                cut = "; it was cut off: take it out, or go on with what wrote it" * (number == len(lines))
                raise ValueError(
                    f"{file}, line {number}: wanted a row as JSON, got '{line[:40]}' ({why}){cut}"
                ) from None
            if not isinstance(row, dict):
                raise ValueError(f'{file}, line {number}: wanted a row {{"method": …}}, got a {type(row).__name__}')
            rows.append(PlacedRow(row, place=f"{file}, line {number}"))
    return rows


def marked(document: Path, names: Sequence[str]) -> list[str]:
    """Those of the names that a Markdown document has markers for."""
    text = _text_of(document)
    return [name for name in names if f"<!-- {name} -->" in text]


def insert(document: Path, texts: Mapping[str, str]) -> None:
    """Put each text between `<!-- marker -->` and `<!-- /marker -->` of a Markdown file, in place of what stands there.

    All of them or none: the file is the old one or the new one at any moment; one that says the same is not touched.
    """
    old = _text_of(document)
    newline, new = "\r\n" if "\r\n" in old else "\n", old
    for marker, text in texts.items():
        begin, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
        before, found, rest = new.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed) or new.count(begin) > 1 or new.count(end) > 1:
            raise ValueError(f"{document} wants {begin} and after it {end}, once each; add them where the table goes")
        if begin in text or end in text:
            raise ValueError(f"the text for {document} itself holds {begin} or {end}; take another marker")
        new = before + newline.join([begin, "", *text.strip().splitlines(), "", end]) + after
    if new != old:
        write_whole(document.resolve(), new.encode())


def _text_of(document: Path) -> str:
    if not document.is_file():
        raise FileNotFoundError(
            f"there is no file {document} to put a table into; wanted Markdown with <!-- name --> markers"
        )
    try:
        with open(document, encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{document} is no text ({error.reason}); wanted a Markdown file") from None
