"""The paper's numbers, with the digits it prints, from `paper_tables.json`; none is computed here."""

import json
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from ddot.evaluation.tables.page import EMPTY

NUMBERS = Path(__file__).with_name("paper_tables.json")


@cache
def paper_tables() -> dict[str, Any]:
    """Table name → columns (sets, steps, λ), metrics and rows. Numbers are `Decimal`, so that 3.40 stays 3.40."""
    tables: dict[str, Any] = json.loads(NUMBERS.read_text(encoding="utf-8"), parse_float=Decimal)
    return tables


def printed(value: Decimal | int | str | None) -> str:
    """A value as the paper prints it; an empty cell if it gives none."""
    return EMPTY if value is None else str(value)


def paper_lines(table: str) -> dict[str, dict[Any, dict[str, Any]]]:
    """Model → column → metric → value."""
    numbers = paper_tables()[table]
    columns, metrics = numbers["columns"], numbers["metrics"]

    def line(values: list[list[Any]]) -> dict[Any, dict[str, Any]]:
        return {x: dict(zip(metrics, cell, strict=True)) for x, cell in zip(columns, values, strict=True)}

    return {row["model"]: line(row["values"]) for row in numbers["rows"]}
