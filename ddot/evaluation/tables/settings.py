"""The table of hyper-parameters: the paper's, what our recipes say, and what the embedded model was trained with."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddot.evaluation.tables.page import EMPTY, Column, Table
from ddot.evaluation.tables.paper import paper_tables, printed

RECIPES = ("sedd_medium_1bw", "smollm2", "smollm2_ddot")  # the paper's run, the embedded model's, the comparison's
EMBEDDED = Path(__file__).parents[2] / "model" / "meta.json"  # of `network.embedded.EMBEDDED`; that module loads torch
Facts = Mapping[str, Any]  # the fields of `Training`, and what `_facts` adds


def settings_table(names: Sequence[str] = RECIPES, model: Path = EMBEDDED, room: int | None = None) -> Table:
    """The paper's table and text, recipes as they stand in `recipes`, and a model's own settings if it is there."""
    from ddot.training.recipes import recipe  # loads torch

    runs = [recipe(name) for name in names]
    metas = [{"training": asdict(run.training), "plans": [repr(plan) for plan in run.plans]} for run in runs]
    heads = [*(Column(name, "paper") for name in ("table", "text")), *(Column(name, "recipe") for name in names)]
    if model.is_file():
        metas.append(json.loads(model.read_text(encoding="utf-8")))
        heads.append(Column("embedded, as trained"))
    theirs = {row["name"]: row for row in paper_tables()["hyperparameters"]["rows"]}
    body = []
    for name in {**theirs, **_SETTINGS}:
        paper = theirs.get(name, {})
        ours = [_setting(name, _facts(meta)) for meta in metas]
        body.append((name, printed(paper.get("table")), printed(paper.get("text")), *ours))
    notes = ("Recipes are as they stand today; as trained: ddot/model/meta.json.",)
    return Table("hyperparameters", "Hyper-parameters of training", (Column(""), *heads), body[:room], notes)


def _facts(meta: Mapping[str, Any]) -> Facts:
    """What a model, or a recipe in that form, says of its training; plans are text there."""
    facts, plans = dict(meta.get("training") or {}), " ".join(meta.get("plans") or ())
    if plans:
        lengths = " ".join(re.findall(r"lengths=\(([^)]*)\)", plans))
        facts |= {"lengths": {*map(int, re.findall(r"\d+", lengths))}, "in_tokens": "TokenUnitWeight" in plans}
    runs = [run for run in (*(meta.get("before") or ()), meta) if "step" in run and "seconds" in run]
    ends = [form.format(facts[name]) for name, form in _ENDS.items() if facts.get(name)]
    told = ", then ".join(f"{run['step']:,} steps in {run['seconds']:,.0f} s" for run in runs) or " or ".join(ends)
    return facts | ({"ran": told} if told else {})


def _setting(name: str, facts: Facts) -> str:
    """A line of the table, empty where what it says is not known."""
    try:
        return _SETTINGS[name](facts)
    except KeyError:
        return EMPTY


_ENDS = {"steps": "{:,} steps", "seconds": "{:g} s"}


def _batch(t: Facts) -> str:
    lengths = sorted(t["lengths"])
    return f"{t['slots'] // lengths[0]} × {lengths[0]} slots" if len(lengths) == 1 else f"{t['slots']:,} slots"


def _rates(t: Facts) -> str:
    parts = [("", t["rate"]), ("matrices ", t["matrix_rate"]), ("added parts ", t["added_rate"])]
    return ", ".join(f"{name}{rate:.0e}".replace("e-0", "e-") for name, rate in parts if rate is not None)


def _position_factor(t: Facts) -> str:
    """λ, with the unit its loss is measured in where that is not the paper's."""
    warming = f", rising over {t['position_warmup']} steps" if t["position_warmup"] else ""
    return f"{t['position_factor']:g}{' (error in tokens)' if t['in_tokens'] else ''}{warming}"


# The paper's names, and some more; the most important first.
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
