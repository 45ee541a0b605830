"""A table on the page: Markdown or LaTeX. Knows nothing about what stands in it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

EMPTY = "–"  # a cell nothing was measured for


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
    """A heading; neighbouring columns of one group stand under a heading of their own."""

    name: str
    group: str = ""


@dataclass(frozen=True)
class Section:
    """Lines under a title of their own; no title, no title line."""

    title: str
    lines: tuple[tuple[Cell, ...], ...]


def no_rows(columns: int) -> Section:
    """What stands where nothing of ours was measured."""
    return Section("ours", ((cell("no rows"), *(cell(EMPTY) for _ in range(columns - 1))),))


@dataclass(frozen=True)
class Table:
    """Every line of `sections` has a cell for each of `columns`, the first of which holds the line's name."""

    name: str
    title: str
    columns: tuple[Column, ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()


def markdown(table: Table) -> str:
    """The table as GitHub-flavoured Markdown: title, table, notes."""
    heads = [" ".join(part for part in (column.group, column.name) if part) for column in table.columns]
    rows = [[_plain(head) for head in heads], ["---", *("---:" for _ in heads[1:])]]
    for section in table.sections:
        if section.title:
            rows.append([f"*{_plain(section.title)}*", *("" for _ in heads[1:])])
        rows += [["".join(_marked(piece) for piece in one) for one in line] for line in section.lines]
    parts = [f"**{_plain(table.title)}.**", "\n".join(f"| {' | '.join(row)} |" for row in rows)]
    if table.notes:
        parts.append(_plain(" ".join(table.notes)))
    return "\n\n".join(parts) + "\n"


def _marked(piece: Piece) -> str:
    return f"**{_plain(piece.text)}**" if piece.bold else _plain(piece.text)


def _plain(text: str) -> str:
    """Text that Markdown shows as it is: no mark-up, no end of cell, one line."""
    return re.sub(r"([\\|*_`<>\[\]~&])", r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


_PAGE, _CAPTION = 45, 80  # lines of a table and its caption that a page holds; characters in one of the caption's
PACKAGES = r"""% Needs \usepackage{booktabs} and \usepackage{longtable}.
% Long tables want a document of one column, wide ones a wide page: \usepackage[landscape, margin=1cm]{geometry}.
"""


def latex(table: Table) -> str:
    """The table for booktabs, its title and notes as the caption: a float, or a longtable where a page would not do."""
    width = len(table.columns)
    rows: list[str] = []
    for section in table.sections:
        rows += [r"\midrule"] * bool(rows)
        if section.title:
            rows.append(_latex_row([rf"\multicolumn{{{width}}}{{l}}{{\textit{{{escape_latex(section.title)}}}}}"]))
        rows += [_latex_row(["".join(_latex_piece(piece) for piece in one) for one in line]) for line in section.lines]
    notes = " ".join([rf"\textbf{{{escape_latex(table.title)}.}}", *(escape_latex(note) for note in table.notes)])
    caption = rf"\caption{{{notes}}}\label{{tab:ddot-{table.name}}}"
    head = [r"\toprule", *_latex_heads(table.columns), r"\midrule"]
    columns = f"l{'r' * (width - 1)}"
    if len(rows) + len(notes) / _CAPTION > _PAGE:
        begin = [
            r"\begingroup",
            r"\small",
            r"\setlength{\LTcapwidth}{\linewidth}",
            rf"\begin{{longtable}}{{{columns}}}",
        ]
        begin += [rf"{caption} \\", *head, r"\endfirsthead", *head, r"\endhead", r"\bottomrule", r"\endfoot"]
        end = [r"\end{longtable}", r"\endgroup"]
    else:
        float_name = "table*" if width > 6 else "table"
        begin = [rf"\begin{{{float_name}}}[ht]", r"\centering", r"\small", rf"\begin{{tabular}}{{{columns}}}", *head]
        end = [r"\bottomrule", r"\end{tabular}", caption, rf"\end{{{float_name}}}"]
    return "\n".join([*begin, *rows, *end, ""])


def _latex_heads(columns: Sequence[Column]) -> list[str]:
    rows = []
    if any(column.group for column in columns):
        spans = [(group, len(list(some))) for group, some in groupby(columns, key=lambda column: column.group)]
        rows.append(_latex_row([_latex_group(group, span) for group, span in spans]))
    return [*rows, _latex_row([escape_latex(column.name) for column in columns])]


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
    return "".join(_LATEX.get(character, character) for character in _one_line(text))
