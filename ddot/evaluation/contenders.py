"""The registry of contenders: every way of filling a benchmark, with its name, label and look.

To add a method, write a module in `ddot.methods` and one entry here, and a recipe if it has a model of its own.

ddot-u, ddot-r   grid or random terminal; pads decide the length, only the network keeps the prompt in order
ddot-t           like ddot-u, but the prompt starts as contiguous text
no-ot, no-ot-u   ddot-r and ddot-u without optimal transport
lc, pop          the paper's baselines; lc takes no hints about where words are missing
flexible         inserts and unmasks jointly, with learned counts (FlexMDM)
expand           a [mask] becomes a token, two [mask]s or nothing (DreamOn)
…-leap           with the paper's τ-leaps, which leave too many pads (docs/log.md)
…-drawn          with [pad]s drawn from the model's distribution: the likeliest words, but not the likeliest length
…-kept           the prompt's words and their order kept by projection
…-planned        like -kept, and the network first predicts the length of each gap
planned          predicted lengths, slots that stay in place: `ddot infill` without its word rules and length policy
fixed-…          plain masked diffusion with a guessed length or the true one
infill           the product, `ddot infill` as it ships; infill-told is given the true number of words
base             a language model that continues the text before each blank, given the true number of tokens
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ddot.core.annealing import greedy, greedy_words
from ddot.core.coupling import couple_independently
from ddot.core.positions import AsText, Terminal, grid_terminal, random_terminal
from ddot.core.sampling import Leap, MostCertainFirst, Reveal
from ddot.evaluation.filling import LENGTHS, Continued, Filling, Kept, Product, Written, learnt_from
from ddot.evaluation.items import TASKS
from ddot.evaluation.rows import BASE, UNFILLED
from ddot.methods.autoregressive import Autoregressive
from ddot.methods.ddot import DDOT
from ddot.methods.expand_delete import ExpandDelete
from ddot.methods.fixed_length import FixedLength
from ddot.methods.flexible import Flexible
from ddot.methods.insertion import Insertion
from ddot.methods.left_context import LeftContext
from ddot.methods.position_prediction import PositionPrediction


class Look(NamedTuple):
    """Colour and marker in charts."""

    colour: str
    marker: str


_UNKNOWN = Look("#332288", "d")


@dataclass(frozen=True)
class Contender:
    """One way of filling: its name in rows, its label in tables and legends, how it fills, what trains it."""

    name: str
    label: str
    look: Look = _UNKNOWN
    filling: Filling | None = None  # None: blanks stay empty
    recipe: str | None = None  # trains a model for this contender
    variant: str = ""  # the table this variant of another contender appears in, instead of the main ones
    reference: bool = False  # knows the answer, or fills nothing: never marked as best
    stepless: bool = False  # does not depend on the number of steps
    tasks: Sequence[str] = TASKS  # located: with hints about gaps; free: without


# Suffix of the name → suffix of the label, the table of the variant, the reveal.
_REVEALS: dict[str, tuple[str, str, Reveal]] = {
    "": ("", "", MostCertainFirst(greedy)),
    "-leap": (", τ-leaps", "leaps", Leap(greedy)),
    "-drawn": (", pads drawn", "drawn", MostCertainFirst(greedy_words)),
}
_STARTS: dict[str, Terminal] = {"ddot-u": grid_terminal, "ddot-r": random_terminal, "ddot-t": AsText()}
_STILL = FixedLength(reveal=MostCertainFirst())


def _moving(start: str, couple: bool = True) -> Written:
    method = DDOT(terminal=_STARTS[start], projections=())
    return Written(method if couple else replace(method, couple=couple_independently))


_NO_OT = Contender("no-ot", "without OT", Look("#000000", "X"), _moving("ddot-r", couple=False), "smollm2_no_ot")
_BY_PADS = (
    Contender("lc", "LC", Look("#CC79A7", "D"), Written(LeftContext()), "smollm2_lc", tasks=("free",)),
    Contender("pop", "PoP", Look("#E69F00", "v"), Written(PositionPrediction()), "smollm2_pop"),
    _NO_OT,
    replace(_NO_OT, name="no-ot-u", label="without OT, grid start", filling=_moving("ddot-u", False), variant="ot"),
    Contender("ddot-r", "DDOT-R", Look("#56B4E9", "o"), _moving("ddot-r"), "smollm2_ddot"),
    Contender("ddot-u", "DDOT-U", Look("#0072B2", "s"), _moving("ddot-u"), "smollm2_ddot_u"),
    Contender("ddot-t", "DDOT-T", Look("#D55E00", "^"), _moving("ddot-t"), "smollm2_ddot_t"),
)


def _variant(base: Contender, suffix: str, remark: str, filling: Filling, table: str) -> Contender:
    return replace(base, name=base.name + suffix, label=base.label + remark, filling=filling, variant=table)


def _revealed() -> Iterator[Contender]:
    """The contenders whose length is decided by pads, with each reveal."""
    for suffix, (remark, table, reveal) in _REVEALS.items():
        for base in _BY_PADS:
            assert isinstance(base.filling, Written)
            filling = Written(replace(base.filling.method, reveal=reveal))  # type: ignore[type-var]
            yield _variant(base, suffix, remark, filling, table or base.variant)


def _kept() -> Iterator[Contender]:
    """DDOT with the prompt kept by projection."""
    bases = [base for base in _BY_PADS if base.name in _STARTS]
    for suffix in ("", "-drawn"):
        remark, _, reveal = _REVEALS[suffix]
        for base in bases:
            filling = Kept(DDOT(terminal=_STARTS[base.name], reveal=reveal))
            yield _variant(base, f"-kept{suffix}", f", words kept{remark}", filling, "kept")
    for base in bases[:2]:
        filling = Kept(DDOT(terminal=_STARTS[base.name], reveal=MostCertainFirst()), LENGTHS["planned"])
        yield _variant(base, "-planned", ", planned lengths", filling, "kept")


_FIXED, _PRODUCT = Look("#999933", "h"), Look("#117733", "*")
_ENTRIES: Iterable[Contender] = (
    Contender(UNFILLED, "prompt, unfilled", Look("#AAAAAA", ""), reference=True, stepless=True),
    Contender(
        "autoregressive", "autoregressive", Look("#882255", "p"), Written(Autoregressive()), "smollm2_ar", stepless=True
    ),
    Contender("insertion", "insertion", Look("#009E73", "P"), Written(Insertion()), "smollm2_insertion"),
    Contender("flexible", "insertion, learned counts", Look("#44AA99", "<"), Written(Flexible()), "smollm2_flexible"),
    Contender("expand", "expand / delete", Look("#661100", ">"), Written(ExpandDelete()), "smollm2_expand"),
    *_revealed(),
    *_kept(),
    Contender("planned", "planned lengths, still slots", Look("#7A7A7A", "*"), Kept(_STILL, LENGTHS["planned"])),
    Contender("fixed-guessed", "fixed length, guessed", _FIXED, Kept(_STILL, LENGTHS["guessed"]), "smollm2_fixed"),
    Contender(
        "fixed-oracle", "fixed length, oracle", _FIXED, Kept(_STILL, LENGTHS["true"]), "smollm2_fixed", reference=True
    ),
    Contender("infill", "ddot infill", _PRODUCT, Product()),
    Contender(
        "infill-told", "ddot infill, told lengths", _PRODUCT, Product(told=True), reference=True, tasks=("located",)
    ),
    Contender(
        BASE,
        "base language model, text before the blank",
        filling=Continued(),
        reference=True,
        stepless=True,
        tasks=("located",),
    ),
)
CONTENDERS: dict[str, Contender] = {entry.name: entry for entry in _ENTRIES}


def contender(name: str) -> Contender:
    """Look up a contender; an unknown method gets an entry with just its name."""
    return CONTENDERS.get(name) or Contender(name, name)


# Short tables show the most important lines.
_IMPORTANCE = (
    *("infill", "lc", "ddot-u", "ddot-t", UNFILLED, "autoregressive", "insertion", "flexible", "expand"),
    *("pop", "no-ot", "ddot-r", "planned"),
)


def importance(name: str) -> int:
    """Sort key: the rank in short tables; a variant ranks with its base."""
    ranks = (rank for rank, base in enumerate(_IMPORTANCE) if f"{name}-".startswith(f"{base}-"))
    return next(ranks, len(_IMPORTANCE))


def order(name: str) -> tuple[int, str]:
    """Sort key: the registry's order, then unknown methods by name."""
    names = list(CONTENDERS)
    return (names.index(name) if name in names else len(names), name)


def learnt(name: str, recipe: str | None) -> bool:
    """Whether this recipe trains a model to fill as the contender does; True if unknown."""
    from ddot.training.recipes import RECIPES

    filling = contender(name).filling
    if recipe not in RECIPES or filling is None:
        return True
    return any(learnt_from(filling, plan.method) for plan in RECIPES[recipe]().plans)
