"""The table of hyper-parameters: the paper's, our recipes', and those the embedded model was trained with."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddot.evaluation.tables.page import EMPTY, Column, Table
from ddot.evaluation.tables.paper import paper_tables, printed
from ddot.network.places import EMBEDDED

RECIPES = ("sedd_medium_1bw", "smollm2", "smollm2_ddot")  # the paper's run, the embedded model's, the comparison's
Facts = Mapping[str, Any]  # the fields of `Training`, and what `_facts` adds


def settings_table(meta: Path = EMBEDDED / "meta.json", limit: int | None = None) -> Table:
    """The paper's table and text, our recipes, and the settings in a model's meta.json if it exists."""
    from ddot.training.recipes import recipe  # loads torch

    runs = [recipe(name) for name in RECIPES]
    metas = [{"training": asdict(run.training), "plans": [repr(plan) for plan in run.plans]} for run in runs]
    heads = [*(Column(name, "paper") for name in ("table", "text")), *(Column(name, "recipe") for name in RECIPES)]
    if meta.is_file():
        metas.append(json.loads(meta.read_text(encoding="utf-8")))
        heads.append(Column("embedded, as trained"))
    theirs, facts = {row["name"]: row for row in paper_tables()["hyperparameters"]["rows"]}, [*map(_facts, metas)]
    body = []
    for name in {**theirs, **_SETTINGS}:
        paper = theirs.get(name, {})
        ours = (_setting(name, settings) for settings in facts)
        body.append((name, printed(paper.get("table")), printed(paper.get("text")), *ours))
    notes = ("Recipes are as they stand today; as trained: ddot/model/meta.json.",)
    return Table("hyperparameters", "Hyper-parameters of training", (Column(""), *heads), body[:limit], notes)


def _facts(meta: Mapping[str, Any]) -> Facts:
    """The training settings of a model's meta.json, or of a recipe in that form; plans are strings."""
    facts, plans = dict(meta.get("training") or {}), " ".join(meta.get("plans") or ())
    if plans:
        lengths = " ".join(re.findall(r"lengths=\(([^)]*)\)", plans))
        facts |= {"lengths": {*map(int, re.findall(r"\d+", lengths))}, "in_tokens": "TokenUnitWeight" in plans}
    runs = [run for run in (*(meta.get("before") or ()), meta) if "step" in run and "seconds" in run]
    limits = {"steps": "{:,} steps", "seconds": "{:g} s"}
    planned = " or ".join(form.format(facts[name]) for name, form in limits.items() if facts.get(name))
    ran = ", then ".join(f"{run['step']:,} steps in {run['seconds']:,.0f} s" for run in runs) or planned
    return facts | ({"ran": ran} if ran else {})


def _setting(name: str, facts: Facts) -> str:
    """A cell of the table; empty if its setting is unknown."""
    try:
        return _SETTINGS[name](facts)
    except KeyError:
        return EMPTY


def _batch(t: Facts) -> str:
    lengths = sorted(t["lengths"])
    return f"{t['slots'] // lengths[0]} × {lengths[0]} slots" if len(lengths) == 1 else f"{t['slots']:,} slots"


def _rates(t: Facts) -> str:
    parts = [("", t["rate"]), ("matrices ", t["matrix_rate"]), ("added parts ", t["added_rate"])]
    return ", ".join(f"{name}{rate:.0e}".replace("e-0", "e-") for name, rate in parts if rate is not None)


def _position_factor(t: Facts) -> str:
    """λ, and the unit of its loss if it is not the paper's."""
    warming = f", rising over {t['position_warmup']} steps" if t["position_warmup"] else ""
    return f"{t['position_factor']:g}{' (error in tokens)' if t['in_tokens'] else ''}{warming}"


# The paper's names and more, the most important first.
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
