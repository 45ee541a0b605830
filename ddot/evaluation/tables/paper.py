"""The paper's numbers, with the digits it prints. `paper_tables.json` holds them; none is worked out here."""

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
    found: dict[str, Any] = json.loads(NUMBERS.read_text(encoding="utf-8"), parse_float=Decimal)
    return found


def printed(value: Decimal | int | str | None) -> str:
    """A value as the paper prints it; an empty cell where it gives none."""
    return EMPTY if value is None else str(value)


def paper_lines(table: str) -> dict[str, dict[Any, dict[str, Any]]]:
    """Model → column → metric → value."""
    numbers = paper_tables()[table]
    columns, metrics = numbers["columns"], numbers["metrics"]
    lines = {row["model"]: zip(columns, row["values"], strict=True) for row in numbers["rows"]}
    return {
        model: {column: dict(zip(metrics, values, strict=True)) for column, values in line}
        for model, line in lines.items()
    }
