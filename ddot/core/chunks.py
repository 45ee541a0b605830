"""Work on the rows of a table in portions of one fixed size.

A GPU picks its kernel, and with it the order in which a sum is taken, by the shape of its input. Rows that are always
worked on so many at a time get the same numbers whoever shares the table with them.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def in_portions(work: Callable[..., tuple[Tensor, ...]], size: int | None, *rows: Tensor) -> tuple[Tensor, ...]:
    """work(*rows), `size` rows at a time; the last portion is filled up by repeating its last row. None: all at once.

    `work` takes and returns tensors with a row for each row.
    """
    count = len(rows[0])
    if size is None or count == 0:
        return work(*rows)
    parts = [work(*(_portion(each, start, size) for each in rows)) for start in range(0, count, size)]
    return tuple(torch.cat(column)[:count] for column in zip(*parts, strict=True))


def _portion(rows: Tensor, start: int, size: int) -> Tensor:
    some = rows[start : start + size]
    short = size - len(some)
    return torch.cat([some, some[-1:].expand(short, *some.shape[1:])]) if short else some
