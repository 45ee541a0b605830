"""`ddot tables`: the paper's tables with our measured rows beside its numbers, as Markdown or LaTeX."""

from ddot.evaluation.tables.catalogue import NAMES, render
from ddot.evaluation.tables.document import insert, marked, read_rows

__all__ = ["NAMES", "insert", "marked", "read_rows", "render"]
