"""Tables of texts on many machines: Ray Data with actors that load the model once. Needs the extra `ray`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ddot.infill.jsonl import answer_lines, output_of, read_object
from ddot.infill.mistakes import PYTHON
from ddot.infill.model import load
from ddot.infill.settings import Options, Settings, whole_number
from ddot.version import install_command

if TYPE_CHECKING:
    import pyarrow
    from ray.data import Dataset


def on_ray(
    dataset: "Dataset",
    batch_size: int = 512,
    concurrency: int = 4,
    model: str | Path | None = None,
    **settings: Unpack[Options],
) -> "Dataset":
    """Fill a dataset whose rows have `text` (or `free`), on up to `concurrency` actors; a GPU each where there are any.

    All columns are carried; `text` is filled, and `fills`, `score`, `steps`, `seed`, `seconds` and `error` are added,
    with `alternatives` for n > 1. A bad row keeps its text and has an `error`. Columns named as settings are a row's
    own. Ray may return rows in any order.
    """
    try:
        import ray
        from ray.data import ActorPoolStrategy, Dataset
    except ImportError:
        raise ValueError(f"on_ray needs the extra `ray`: {install_command('ray')}") from None
    if not isinstance(dataset, Dataset):
        raise ValueError(f"dataset is {PYTHON.value(dataset)}; wanted a ray.data.Dataset, as ray.data.read_json gives")
    whole_number("batch_size", batch_size, 1)
    whole_number("concurrency", concurrency, 1)
    names = set(dataset.columns() or ())
    if not names & {"text", "free"}:
        raise ValueError(
            f"the dataset has the columns {', '.join(sorted(names))}; wanted text, with ___ in it, or free"
        )
    where = None if model is None else str(model)
    return dataset.map_batches(
        Filler,
        fn_constructor_kwargs={"model": where, "settings": Settings.of(settings)},
        batch_size=batch_size,
        batch_format="pyarrow",
        compute=ActorPoolStrategy(min_size=1, max_size=concurrency),
        num_gpus=1 if ray.cluster_resources().get("GPU") else None,
    )


class Filler:
    """An actor: fills batches of rows."""

    def __init__(self, model: str | None, settings: Settings):
        self.model, self.settings = load(model), settings

    def __call__(self, table: "pyarrow.Table") -> "pyarrow.Table":
        import pyarrow

        rows = list(self._filled(table.to_pylist()))
        for name, kind in _kinds(self.settings.n > 1).items():
            column = [row.get(name) for row in rows]
            if name in table.column_names:
                table = table.drop_columns([name])
            table = table.append_column(name, pyarrow.array(column, kind))
        return table

    def _filled(self, inputs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        lines = (read_object(number, row, self.settings) for number, row in enumerate(inputs, 1))
        for row, (line, answers) in zip(inputs, answer_lines(self.model, lines), strict=True):
            output = output_of(self.model.name, line, answers)
            yield {"text": row.get("text"), **output} if "error" in output else output


def _kinds(alternatives: bool) -> "dict[str, pyarrow.DataType]":
    import pyarrow

    text, fills, score = pyarrow.string(), pyarrow.list_(pyarrow.string()), pyarrow.float64()
    kinds = {"text": text, "fills": fills, "score": score, "steps": pyarrow.int64(), "seed": pyarrow.int64()}
    kinds |= {"seconds": pyarrow.float64(), "error": text}
    if alternatives:
        kinds["alternatives"] = pyarrow.list_(pyarrow.struct({"text": text, "fills": fills, "score": score}))
    return kinds
