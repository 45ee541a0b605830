"""Markdown documents with marked places for tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ddot.files import write_whole


def marked(document: Path, names: Sequence[str]) -> list[str]:
    """The names that a document has markers for."""
    text = _text_of(document)
    return [name for name in names if f"<!-- {name} -->" in text]


def insert(document: Path, texts: Mapping[str, str]) -> None:
    """Replace the text between `<!-- name -->` and `<!-- /name -->`, for all texts or for none."""
    old = _text_of(document)
    newline, new = "\r\n" if "\r\n" in old else "\n", old
    for marker, text in texts.items():
        begin, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
        before, found, rest = new.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed) or new.count(begin) > 1 or new.count(end) > 1:
            raise ValueError(f"{document} wants {begin} and after it {end}, once each; add them where the table goes")
        if begin in text or end in text:
            raise ValueError(f"the text for {document} itself contains {begin} or {end}; take another marker")
        new = before + newline.join([begin, "", *text.strip().splitlines(), "", end]) + after
    if new != old:
        write_whole(document.resolve(), new.encode())


def _text_of(document: Path) -> str:
    if not document.is_file():
        raise FileNotFoundError(f"there is no file {document}; wanted Markdown with <!-- name --> markers")
    try:
        with open(document, encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{document} is not UTF-8 text ({error.reason}); wanted a Markdown file") from None
