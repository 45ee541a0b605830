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
    """Table name → sets, metrics and rows. Numbers are `Decimal`, so that 3.40 stays 3.40."""
    found: dict[str, Any] = json.loads(NUMBERS.read_text(encoding="utf-8"), parse_float=Decimal)
    return found


def printed(value: Decimal | int | str | None) -> str:
    """A value as the paper prints it; an empty cell where it gives none."""
    return EMPTY if value is None else str(value)


def paper_values(table: str, model: str, dataset: str) -> dict[str, Any]:
    """Metric → value of one of the paper's models on one set; empty where the paper has no such cell."""
    numbers = paper_tables()[table]
    if dataset not in numbers["sets"]:
        return {}
    place = numbers["sets"].index(dataset)
    for row in numbers["rows"]:
        if row["model"] == model:
            return dict(zip(numbers["metrics"], row["values"][place], strict=True))
    return {}
