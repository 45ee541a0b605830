"""The table of hyper-parameters: the paper's, what our recipes say, and what the embedded model was trained with."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddot.evaluation.tables.page import EMPTY, Column, Section, Table, cell
from ddot.evaluation.tables.paper import paper_tables, printed

if TYPE_CHECKING:
    from ddot.training.config import Run

RECIPES = ("sedd_medium_1bw", "smollm2", "smollm2_ddot")  # the paper's run, the embedded model's, the comparison's
EMBEDDED = Path(__file__).parents[2] / "model" / "meta.json"  # of `network.embedded.EMBEDDED`; that module loads torch
Facts = Mapping[str, Any]  # the fields of `Training`, and what `_of_recipe` and `_as_trained` add


def settings_table(names: Sequence[str] = RECIPES, model: Path = EMBEDDED) -> Table:
    """The paper's table and text, each recipe as it stands in `recipes`, and a model's own settings if it is there."""
    from ddot.training.recipes import recipe  # loads torch

    theirs = {row["name"]: row for row in paper_tables()["hyperparameters"]["rows"]}
    ours = [_of_recipe(recipe(name)) for name in names]
    heads = [*(Column(name, "paper") for name in ("table", "text")), *(Column(name, "recipe") for name in names)]
    notes = ["Recipes are as they stand today."]
    if model.is_file():
        ours.append(_as_trained(json.loads(model.read_text(encoding="utf-8"))))
        heads.append(Column("embedded, as trained"))
        notes.append(
            "As trained: the model's last run, by ddot/model/meta.json; of runs before it the length alone is known."
        )
    rows = []
    for name in {**theirs, **_SETTINGS}:
        paper = theirs.get(name, {})
        texts = [printed(paper.get("table")), printed(paper.get("text")), *(_setting(name, facts) for facts in ours)]
        rows.append((cell(name), *map(cell, texts)))
    sections = (Section("", tuple(rows)),)
    return Table("hyperparameters", "Hyper-parameters of training", (Column(""), *heads), sections, tuple(notes))


def _of_recipe(run: "Run") -> Facts:
    from ddot.methods.losses import TokenUnitWeight

    t = run.training
    ends = [f"{t.steps:,} steps" if t.steps else "", f"{t.seconds:g} s" if t.seconds else ""]
    weights = [getattr(plan.method, "position_weight", None) for plan in run.plans]
    return asdict(t) | {
        "lengths": {length for plan in run.plans for length in plan.lengths},
        "in_tokens": any(isinstance(weight, TokenUnitWeight) for weight in weights),
        "ran": " or ".join(end for end in ends if end),
    }


def _as_trained(meta: Mapping[str, Any]) -> Facts:
    """What a model says of its training; its plans are text there."""
    facts = dict(meta.get("training") or {})
    if plans := " ".join(meta.get("plans") or ()):
        told = re.findall(r"lengths=\(([^)]*)\)", plans)
        facts["lengths"] = {int(length) for some in told for length in re.findall(r"\d+", some)}
        facts["in_tokens"] = "TokenUnitWeight" in plans
    runs = [run for run in (*(meta.get("before") or ()), meta) if "step" in run and "seconds" in run]
    if runs:
        facts["ran"] = ", then ".join(f"{run['step']:,} steps in {run['seconds']:,.0f} s" for run in runs)
    return facts


def _setting(name: str, facts: Facts) -> str:
    """A line of the table, empty where what it says is not known."""
    try:
        return _SETTINGS[name](facts)
    except KeyError:
        return EMPTY


def _batch(t: Facts) -> str:
    lengths = sorted(t["lengths"])
    return f"{t['slots'] // lengths[0]} × {lengths[0]} slots" if len(lengths) == 1 else f"{t['slots']:,} slots"


def _rates(t: Facts) -> str:
    parts = [("", t["rate"]), ("matrices ", t["matrix_rate"]), ("added parts ", t["added_rate"])]
    return ", ".join(f"{name}{_short(rate)}" for name, rate in parts if rate is not None)


def _short(rate: float) -> str:
    """3e-5 as the paper writes it."""
    mantissa, exponent = f"{rate:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def _position_factor(t: Facts) -> str:
    """λ, with the unit its loss is measured in where that is not the paper's."""
    warming = f", rising over {t['position_warmup']} steps" if t["position_warmup"] else ""
    return f"{t['position_factor']:g}{' (error in tokens)' if t['in_tokens'] else ''}{warming}"


# The paper's names, and some more.
_SETTINGS: dict[str, Callable[[Facts], str]] = {
    "batch size": _batch,
    "λ": _position_factor,
    "weight decay": lambda t: f"{t['weight_decay']}",
    "learning rate": _rates,
    "optimiser": lambda t: "AdamW" if t["matrix_rate"] is None else "AdamW, Muon for matrices",
    "β₁": lambda t: f"{t['betas'][0]:g}",
    "β₂": lambda t: f"{t['betas'][1]:g}",
    "slots, L": lambda t: ", ".join(str(length) for length in sorted(t["lengths"])),
    "length of training": lambda t: str(t["ran"]),
    "warm-up steps": lambda t: f"{t['warmup']:,}",
    "share of training with falling rate": lambda t: f"{t['decay']:g}",
    "largest gradient norm": lambda t: f"{t['clip']:g}",
    "moving average": lambda t: f"{t['average']:g}",
    "precision": lambda t: "bf16" if t["bf16"] else "fp32",
}
