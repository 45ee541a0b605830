"""A table on the page: Markdown or LaTeX. Knows nothing about the contents."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

EMPTY = "–"  # nothing was measured


@dataclass(frozen=True)
class Piece:
    """A run of text inside a cell."""

    text: str
    bold: bool = False


Cell = tuple[Piece, ...]


def cell(text: str) -> Cell:
    """A cell of plain text."""
    return (Piece(text),)


@dataclass(frozen=True)
class Column:
    """A heading; neighbouring columns of one group share a heading above theirs."""

    name: str
    group: str = ""


@dataclass(frozen=True)
class Table:
    """Every line has a cell for each column; the first holds the line's name."""

    name: str
    title: str
    columns: Sequence[Column]
    lines: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


def markdown(table: Table) -> str:
    """GitHub-flavoured Markdown: title, table, notes."""
    heads = [_plain(f"{column.group} {column.name}".strip()) for column in table.columns]
    rows = [heads, ["---", *("---:" for _ in heads[1:])]]
    rows += [["".join(_marked(piece) for piece in one) for one in line] for line in table.lines]
    parts = [f"**{_plain(table.title)}.**", "\n".join(f"| {' | '.join(row)} |" for row in rows)]
    return "\n\n".join([*parts, *[_plain(" ".join(table.notes))] * bool(table.notes)]) + "\n"


def _marked(piece: Piece) -> str:
    return f"**{_plain(piece.text)}**" if piece.bold else _plain(piece.text)


def _plain(text: str) -> str:
    """Text that Markdown shows as it is: no mark-up, no end of cell, one line."""
    return re.sub(r"([\\|*_`<>\[\]~&])", r"\\\1", " ".join(text.splitlines()))


PACKAGES = "% Needs \\usepackage{booktabs}; wide tables want a wide page: \\usepackage[landscape]{geometry}.\n"


def latex(table: Table) -> str:
    """A float for booktabs, title and notes in its caption."""
    notes = " ".join([rf"\textbf{{{escape_latex(table.title)}.}}", *map(escape_latex, table.notes)])
    wide = "*" * (len(table.columns) > 6)
    spec = f"l{'r' * (len(table.columns) - 1)}"
    lines = [rf"\begin{{table{wide}}}[ht]", r"\centering", r"\small", rf"\begin{{tabular}}{{{spec}}}", r"\toprule"]
    if any(column.group for column in table.columns):
        spans = [(group, len(list(some))) for group, some in groupby(table.columns, key=lambda column: column.group)]
        lines.append(_latex_row([_latex_group(group, span) for group, span in spans]))
    lines += [_latex_row([escape_latex(column.name) for column in table.columns]), r"\midrule"]
    lines += [_latex_row(["".join(_latex_piece(piece) for piece in one) for one in line]) for line in table.lines]
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{notes}}}\label{{tab:ddot-{table.name}}}"]
    return "\n".join([*lines, rf"\end{{table{wide}}}", ""])


def _latex_group(group: str, span: int) -> str:
    return rf"\multicolumn{{{span}}}{{c}}{{\textbf{{{escape_latex(group)}}}}}" if group else " & " * (span - 1)


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_piece(piece: Piece) -> str:
    return rf"\textbf{{{escape_latex(piece.text)}}}" if piece.bold else escape_latex(piece.text)


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "&%$#_"},
    "<": "$<$", ">": "$>$", "|": "$|$", "[": "{[}", "]": "{]}",  # a bare bracket after \\ would be its argument
    "–": "--", "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "≤": r"$\leq$", "≥": r"$\geq$",
    "λ": r"$\lambda$", "τ": r"$\tau$", "β": r"$\beta$", "₁": "$_1$", "₂": "$_2$", "→": r"$\to$", "…": r"\ldots{}",
    "↓": r"$\downarrow$",
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Text that LaTeX sets as it is."""
    return "".join(_LATEX.get(character, character) for character in " ".join(text.splitlines()))
