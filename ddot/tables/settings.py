"""The table of hyper-parameters: the paper's, and what our recipes say."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddot.tables.page import Column, Section, Table, cell
from ddot.tables.paper import paper_tables, printed

if TYPE_CHECKING:
    from ddot.run import Run

RECIPES = ("sedd_medium_1bw", "smollm2", "smollm2_ddot")  # the paper's run, the embedded model's, the comparison's


def settings_table(names: Sequence[str] = RECIPES) -> Table:
    """The paper's table and text, then each recipe as it stands in `recipes`."""
    from ddot.recipes import recipe  # loads torch

    theirs = {row["name"]: row for row in paper_tables()["hyperparameters"]["rows"]}
    ours = [_settings(recipe(name)) for name in names]
    rows = []
    for name in {**theirs, **ours[0]}:
        paper = theirs.get(name, {})
        texts = [name, printed(paper.get("table")), printed(paper.get("text")), *(found[name] for found in ours)]
        rows.append(tuple(cell(text) for text in texts))
    heads = [*(Column(name, "paper") for name in ("table", "text")), *(Column(name, "recipe") for name in names)]
    return Table("hyperparameters", "Hyper-parameters of training", (Column(""), *heads), (Section("", tuple(rows)),))


def _settings(run: "Run") -> dict[str, str]:
    """What a recipe says, under the paper's names and some more."""
    t = run.training
    lengths = sorted({length for plan in run.plans for length in plan.lengths})
    batch = f"{t.slots // lengths[0]} × {lengths[0]} slots" if len(lengths) == 1 else f"{t.slots:,} slots"
    ends = [f"{t.steps:,} steps" if t.steps else "", f"{t.seconds:g} s" if t.seconds else ""]
    return {
        "batch size": batch,
        "λ": _position_factor(run),
        "weight decay": f"{t.weight_decay}",
        "learning rate": _rates(run),
        "optimiser": "AdamW" if t.matrix_rate is None else "AdamW, Muon for matrices",
        "β₁": f"{t.betas[0]:g}",
        "β₂": f"{t.betas[1]:g}",
        "slots, L": ", ".join(str(length) for length in lengths),
        "length of training": " or ".join(end for end in ends if end),
        "warm-up steps": f"{t.warmup:,}",
        "share of training with falling rate": f"{t.decay:g}",
        "largest gradient norm": f"{t.clip:g}",
        "moving average": f"{t.average:g}",
        "precision": "bf16" if t.bf16 else "fp32",
    }


def _rates(run: "Run") -> str:
    t = run.training
    parts = [("", t.rate), ("matrices ", t.matrix_rate), ("added parts ", t.added_rate)]
    return ", ".join(f"{name}{_short(rate)}" for name, rate in parts if rate is not None)


def _short(rate: float) -> str:
    """3e-5 as the paper writes it."""
    mantissa, exponent = f"{rate:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def _position_factor(run: "Run") -> str:
    """λ, with the unit its loss is measured in where that is not the paper's."""
    from ddot.losses import TokenUnitWeight

    weights = [getattr(plan.method, "position_weight", None) for plan in run.plans]
    in_tokens = any(isinstance(weight, TokenUnitWeight) for weight in weights)
    warming = f", rising over {run.training.position_warmup} steps" if run.training.position_warmup else ""
    return f"{run.training.position_factor:g}{' (error in tokens)' if in_tokens else ''}{warming}"
