"""Process the rows of a table in chunks of a fixed size.

A GPU picks its kernel, and thus the order of summation, by the shape of its input. In chunks of one size, the result
for a row does not depend on which other rows the table has.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def in_chunks(work: Callable[..., tuple[Tensor, ...]], size: int | None, *rows: Tensor) -> tuple[Tensor, ...]:
    """work(*rows), `size` rows at a time (None: all at once); the last chunk is padded by repeating its last row.

    `work` maps tensors to tensors, row by row.
    """
    count = len(rows[0])
    if size is None or count == 0:
        return work(*rows)
    parts = [work(*(_chunk(tensor, start, size) for tensor in rows)) for start in range(0, count, size)]
    return tuple(torch.cat(column)[:count] for column in zip(*parts, strict=True))


def _chunk(rows: Tensor, start: int, size: int) -> Tensor:
    chunk = rows[start : start + size]
    missing = size - len(chunk)
    return torch.cat([chunk, chunk[-1:].expand(missing, *chunk.shape[1:])]) if missing else chunk
