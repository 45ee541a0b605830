"""Tables as Markdown or LaTeX, and their place in a document. Knows nothing about the contents."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from ddot.files import write_whole

EMPTY = "–"  # nothing was measured


_ON, _OFF = "\x02", "\x03"  # around bold text in a cell


def bold(text: str) -> str:
    """A cell, or a part of it, in bold."""
    return f"{_ON}{text}{_OFF}"


def is_bold(cell: str) -> bool:
    return _ON in cell


def joined(parts: Sequence[str]) -> str:
    """A cell of several parts; empty if all of them are."""
    return EMPTY if set(parts) == {EMPTY} else " / ".join(parts)


@dataclass(frozen=True)
class Column:
    """A heading; neighbouring columns of one group share a heading above it."""

    name: str
    group: str = ""


@dataclass(frozen=True)
class Table:
    """Every line has a cell for each column; the first is the line's name."""

    name: str
    title: str
    columns: Sequence[Column]
    lines: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def markdown(table: Table) -> str:
    """GitHub-flavoured Markdown: title, table, notes."""
    heads = [_plain(f"{column.group} {column.name}".strip()) for column in table.columns]
    rows = [heads, ["---", *("---:" for _ in heads[1:])]]
    rows += [[_plain(cell).replace(_ON, "**").replace(_OFF, "**") for cell in line] for line in table.lines]
    parts = [f"**{_plain(table.title)}.**", "\n".join(f"| {' | '.join(row)} |" for row in rows)]
    return "\n\n".join([*parts, *[_plain(" ".join(table.notes))] * bool(table.notes)]) + "\n"


def _plain(text: str) -> str:
    """Escape Markdown's mark-up and cell separators, and join lines."""
    return re.sub(r"([\\|*_`<>\[\]~&])", r"\\\1", " ".join(text.splitlines()))


PACKAGES = "% Needs \\usepackage{booktabs}; wide tables want a wide page: \\usepackage[landscape]{geometry}.\n"


def latex(table: Table) -> str:
    """A table float (booktabs) with title and notes in its caption."""
    notes = " ".join([rf"\textbf{{{escape_latex(table.title)}.}}", *map(escape_latex, table.notes)])
    wide = "*" * (len(table.columns) > 6)
    spec = f"l{'r' * (len(table.columns) - 1)}"
    lines = [rf"\begin{{table{wide}}}[ht]", r"\centering", r"\small", rf"\begin{{tabular}}{{{spec}}}", r"\toprule"]
    if any(column.group for column in table.columns):
        groups = groupby(table.columns, key=lambda column: column.group)
        lines.append(_latex_row(_latex_group(group, len(list(columns))) for group, columns in groups))
    lines += [_latex_row(escape_latex(column.name) for column in table.columns), r"\midrule"]
    lines += [_latex_row(map(escape_latex, line)) for line in table.lines]
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{notes}}}\label{{tab:ddot-{table.name}}}"]
    return "\n".join([*lines, rf"\end{{table{wide}}}", ""])


def _latex_group(group: str, span: int) -> str:
    return rf"\multicolumn{{{span}}}{{c}}{{\textbf{{{escape_latex(group)}}}}}" if group else " & " * (span - 1)


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "&%$#_"},
    "<": "$<$", ">": "$>$", "|": "$|$", "[": "{[}", "]": "{]}",  # a bare bracket after \\ would be its argument
    "–": "--", "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "≤": r"$\leq$", "≥": r"$\geq$",
    "λ": r"$\lambda$", "τ": r"$\tau$", "β": r"$\beta$", "₁": "$_1$", "₂": "$_2$", "→": r"$\to$", "…": r"\ldots{}",
    "↓": r"$\downarrow$", _ON: r"\textbf{", _OFF: "}",
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Text that LaTeX prints verbatim."""
    return "".join(_LATEX.get(character, character) for character in " ".join(text.splitlines()))


def marked(document: Path, names: Sequence[str]) -> list[str]:
    """The names whose markers a document has."""
    text = _text_of(document)
    return [name for name in names if f"<!-- {name} -->" in text]


def insert(document: Path, texts: Mapping[str, str]) -> None:
    """Replace the text between `<!-- name -->` and `<!-- /name -->`, for all texts or for none."""
    old = _text_of(document)
    newline, new = "\r\n" if "\r\n" in old else "\n", old
    for marker, text in texts.items():
        begin, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
        before, opened, rest = new.partition(begin)
        _, closed, after = rest.partition(end)
        if not (opened and closed) or new.count(begin) > 1 or new.count(end) > 1:
            raise ValueError(f"{document} needs {begin} followed by {end}, once each; add them where the table goes")
        if begin in text or end in text:
            raise ValueError(f"the text for {document} itself contains {begin} or {end}; choose another marker")
        new = before + newline.join([begin, "", *text.strip().splitlines(), "", end]) + after
    if new != old:
        write_whole(document.resolve(), new.encode())


def _text_of(document: Path) -> str:
    if not document.is_file():
        raise FileNotFoundError(f"there is no file {document}; give a Markdown file with <!-- name --> markers")
    try:
        with open(document, encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{document} is not UTF-8 text ({error.reason}); give a Markdown file") from None
