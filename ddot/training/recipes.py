"""Ready-made runs. A recipe is a function that returns a configuration; `--set a.b=value` overrides parts of it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from ddot.core.absorbing import ScoreEntropy
from ddot.core.coupling import Coupling, couple, couple_independently
from ddot.core.positions import AsText, JitteredGrid, Mixture, Stretched, random_terminal
from ddot.core.records import Vocabulary
from ddot.data.forms import CODE_SLOTS
from ddot.data.masks import Block, Blocks, Independent, Keywords, Mix, Natural, Nothing, Telling
from ddot.data.tokenizer import Tokenizer
from ddot.methods.autoregressive import Autoregressive
from ddot.methods.ddot import DDOT
from ddot.methods.expand_delete import ExpandDelete
from ddot.methods.fixed_length import FixedLength
from ddot.methods.flexible import Flexible
from ddot.methods.insertion import Insertion
from ddot.methods.left_context import LeftContext
from ddot.methods.losses import TokenUnitWeight
from ddot.methods.method import Method, Trainable
from ddot.methods.outline import Outline
from ddot.methods.planning import Planning
from ddot.methods.position_prediction import PositionPrediction
from ddot.network.denoiser import DenoiserConfig
from ddot.network.dit import DiTConfig
from ddot.network.llama import LlamaConfig
from ddot.training.batches import EitherCut, ManySentences, Plan, WholeSentences, Windows
from ddot.training.config import Data, Run, Training

MOST_MASKS = ((4.0, Block(32)), (2.0, Blocks(2, 4, 0.7)), (1.5, Independent(0.1, 0.9)), (0.2, Nothing()))
ALL_MASKS = Mix(*MOST_MASKS, (2.0, Keywords(1, 6)))
# A network trained on random starts only produces texts from 8 words too short (located) to 16 too long (free) when it
# starts from a grid. One trained on grids of a single width mistakes a slightly wider grid for a longer text
# (docs/log.md).
EVEN = Stretched(JitteredGrid(0.5), 0.15)
AS_TEXT = Stretched(AsText(JitteredGrid(0.5)), 0.15)
STARTS = Mixture((1.0, random_terminal), (1.0, EVEN))
EVERY_START = Mixture((1.0, random_terminal), (1.0, EVEN), (1.0, AS_TEXT))
PASSAGES = EitherCut(0.85, ManySentences(0.55), Windows(0.8))


def toy() -> Run:
    """A tiny model on the sentences that ship with the project, trained on a CPU in under a minute."""
    L = 12

    def network(vocabulary: Vocabulary) -> DenoiserConfig:
        trunk = LlamaConfig(
            width=96, blocks=2, heads=4, key_heads=2, inner_width=256, vocabulary=vocabulary.rows, rotary_base=1000.0
        )
        return replace(DenoiserConfig.extended(trunk, vocabulary), slots=L)

    method = DDOT(terminal=random_terminal, position_weight=TokenUnitWeight(), gap_length_factor=0.1)
    masks = Mix((3.0, Block(6)), (1.0, Blocks(2, 3)), (1.0, Keywords(1, 4)))
    training = Training(
        steps=360, slots=720, rate=3e-3, matrix_rate=4e-3, betas=(0.9, 0.98), warmup=20, decay=0.3, average=0.99,
        position_factor=0.02, log_every=20, save_every=180,
    )  # fmt: skip
    return Run(
        name="toy",
        network=network,
        # With 1024 tokens, every word of these sentences is one token.
        data=Data(texts=(str(Path(__file__).parents[1] / "data" / "toy.txt"),), tokens=1024),
        plans=(Plan(method, masks, telling=Telling(located=0.5), lengths=(L,), full_noise=0.2),),
        training=training,
    )


_GPU = Training(bf16=True, compile=True, device="cuda")
_SMOLLM2 = replace(_GPU, slots=65_536, average=0.995, position_factor=0.05, position_warmup=200, save_every=2_000)


def _smollm2(
    name: str,
    start: str,
    sources: tuple[tuple[str, float], ...],
    dev: str | None,
    plans: tuple[Plan, ...],
    training: Training,
    planner: str = "grid",
    order: str = "surest",
) -> Run:
    """SmolLM2-135M made bidirectional, with all of DDOT's additions. `planner`, `order`: how `infill` uses it."""

    def network(vocabulary: Vocabulary) -> DenoiserConfig:
        config = DenoiserConfig.extended(LlamaConfig.smollm2_135m(vocabulary.rows), vocabulary)
        return replace(config, planner=planner, order=order)

    data = Data(folder="runs/data", sources=sources, dev=dev, workers=14)
    return Run(name, network, data, plans, training, start)


# Corpora of the embedded model: varied prose, and text in the form of the benchmarks.
PROSE = (
    ("prose-stories", 1.6), ("prose-blogs", 1.3), ("prose-dialogue", 0.9), ("prose-misc", 1.2),
    ("prose-instructions", 1.0), ("prose-recipes", 0.7), ("prose-email", 0.7), ("prose-qa", 0.4), ("prose-howto", 0.5),
    ("prose-docs", 0.4), ("books", 0.6), ("wikipedia", 0.8), ("news", 0.9), ("imdb", 0.5), ("yelp", 0.7),
    ("europarl", 0.1),
)  # fmt: skip
FORMS = (("news-form", 1.3), ("1bw-real", 0.39), ("review-form", 0.39), ("yelp-form", 0.65), ("review-short", 0.26))
_PROSE, _FORMS = tuple(name for name, _ in PROSE), tuple(name for name, _ in FORMS)


def smollm2() -> Run:
    """The embedded model: varied prose, blanks as people leave them, written from left to right after an outline.

    Reading causally, the trunk builds on what its base model knows: a minute of this gains more than ten minutes of
    masked tokens read both ways (docs/log.md). The rates are low: at three times these, the trunk forgot what it knew
    beyond the corpora. Moving slots, and lengths planned from the prompt read as text, have their own share.
    """
    weight = TokenUnitWeight(at_most=64)
    moving = DDOT(terminal=EVERY_START, position_weight=weight, gap_length_factor=1.0)
    some_told = Telling(located=0.5, gap_lengths=0.1, some_gap_lengths=0.1)
    full = EitherCut(0.5, ManySentences(0.5), Windows(0.8))
    units = Tokenizer.units
    every = _PROSE + _FORMS
    plans = (
        Plan(
            Outline(), Natural(), PASSAGES, Telling(located=1.0, decoys=0.005, gap_lengths=0.3),
            lengths=(64, 64, 128), unit=units, weight=0.56, sources=_PROSE,
        ),
        Plan(
            Outline(2.0), Mix((3.0, Block(32)), (1.0, Keywords(1, 6)), (1.0, Blocks(2, 4, 0.7))),
            EitherCut(0.6, WholeSentences(2), full), Telling(located=0.5, decoys=0.005, gap_lengths=0.1),
            whole_words=0.95, weight=0.15, sources=_FORMS,
        ),
        Plan(Outline(1.0, plain=True), Nothing(), full, lengths=(128,), weight=0.08, sources=every),
        Plan(
            Planning(), Natural(dense=0.15), PASSAGES, Telling(located=1.0),
            lengths=(32, 64, 128), unit=units, weight=0.06, sources=_PROSE,
        ),
        Plan(moving, Mix(*MOST_MASKS), full, some_told, whole_words=0.9, full_noise=0.15, weight=0.09, sources=every),
        # Keywords alone ask for one sentence: with up to three, texts came out 3 to 7 words too long.
        Plan(moving, Keywords(1, 6), WholeSentences(1), some_told, full_noise=0.3, weight=0.03, sources=_FORMS),
        Plan(moving, Natural(), PASSAGES, some_told, unit=units, full_noise=0.15, weight=0.03, sources=_PROSE),
    )  # fmt: skip
    training = replace(
        _SMOLLM2, slots=32_768, seconds=1000.0, rate=2e-4, matrix_rate=4e-4, added_rate=2e-3, warmup=50, decay=0.7
    )
    return _smollm2("smollm2", "runs/base/smollm2", PROSE + FORMS, None, plans, training, "text", "outline")


def smollm2_trunk() -> Run:
    """The start of the compared methods, as SEDD is in the paper: SmolLM2-135M as a masked diffusion model of texts of
    known length. It has seen [pad]s only after a text, has never predicted one, and has seen no moving positions."""
    run = _compared("smollm2_trunk", FixedLength(), start="runs/base/smollm2")
    return replace(run, training=replace(run.training, seconds=1000.0, rate=1e-3, matrix_rate=2e-3))


def _compared(name: str, method: Method, start: str = "runs/smollm2_trunk") -> Run:
    """A method with the same trunk, data, batches and minutes as the others: the paper's free task, both kinds of mask.

    (`smollm2_fixed` continues what the trunk was trained for; `smollm2_ar` does not have the trunk's minutes.)
    A quarter of the batches is Python, so that one run serves the tables of text and of code: lines of a function are
    missing, located or not, at the benchmark's L.
    """
    code = Plan(
        method, Block(12), EitherCut(0.7, WholeSentences(1), Windows(0.6)), Telling(located=0.5), lengths=(CODE_SLOTS,),
        whole_words=0.9, unit=Tokenizer.lines, full_noise=0.1, weight=0.25, sources=("python",),
    )  # fmt: skip
    text = Plan(method, Mix((1.0, Block(32)), (1.0, Keywords(1, 6))), full_noise=0.1, weight=0.75)
    sources = (("news-form", 1.8), ("1bw-real", 0.2), ("review-form", 1.8), ("review-short", 0.2), ("python", 1.0))
    training = replace(
        _SMOLLM2, seconds=300.0, rate=5e-4, matrix_rate=1e-3, added_rate=3e-3, warmup=100, decay=0.5,
        position_warmup=100, accumulate=2,  # to fit LC's rows of 2L slots in memory
    )  # fmt: skip
    return _smollm2(name, start, sources, "dev", (text, code), training)


def _comparison() -> dict[str, Callable[[], Run]]:
    """The methods of the tables. The autoregressive one starts from the language model itself, which also reads from
    left to right."""
    weight = TokenUnitWeight(at_most=64)
    ddot = DDOT(terminal=STARTS, position_weight=weight, gap_length_factor=1.0)
    methods: dict[str, Method] = {
        "smollm2_ddot": ddot,
        "smollm2_ddot_u": replace(ddot, terminal=EVEN),
        "smollm2_ddot_t": replace(ddot, terminal=AS_TEXT),
        "smollm2_ddot_ut": replace(ddot, terminal=Mixture((1.0, EVEN), (1.0, AS_TEXT))),
        "smollm2_no_ot": replace(ddot, couple=couple_independently),
        "smollm2_lc": LeftContext(),
        "smollm2_pop": PositionPrediction(position_weight=weight),
        "smollm2_fixed": FixedLength(),
        "smollm2_insertion": Insertion(),
        "smollm2_flexible": Flexible(),
        "smollm2_expand": ExpandDelete(),
    }
    runs: dict[str, Callable[[], Run]] = {name: partial(_compared, name, method) for name, method in methods.items()}
    return runs | {"smollm2_ar": partial(_compared, "smollm2_ar", Autoregressive(), start="runs/base/smollm2")}


def _everyday(name: str, method: Trainable, start: str = "runs/prose_trunk", rate: float = 5e-4) -> Run:
    """A method on the embedded model's prose, told where the blanks are, which are such as people leave."""
    plan = Plan(
        method, Natural(), PASSAGES, Telling(located=1.0, decoys=0.005),
        lengths=(64, 64, 128), unit=Tokenizer.units, full_noise=0.1,
    )  # fmt: skip
    training = replace(
        _SMOLLM2, slots=32_768, seconds=300.0, rate=rate, matrix_rate=2 * rate, added_rate=min(3e-3, 10 * rate),
        warmup=50, decay=0.5, position_warmup=100,
    )  # fmt: skip
    order = "outline" if isinstance(method, Outline) else "surest"
    return _smollm2(name, start, PROSE, None, (plan,), training, order=order)


def _everyday_methods() -> dict[str, Callable[[], Run]]:
    """The methods of the table of everyday texts. Those that read from left to right start from the language model,
    at a lower rate; one network learns all starts of DDOT."""
    base = "runs/base/smollm2"
    moving = DDOT(terminal=EVERY_START, position_weight=TokenUnitWeight(at_most=64), gap_length_factor=1.0)
    return {
        "prose_trunk": partial(_everyday, "prose_trunk", FixedLength(), base, 1e-3),
        "prose_fixed": partial(_everyday, "prose_fixed", FixedLength()),
        "prose_insertion": partial(_everyday, "prose_insertion", Insertion()),
        "prose_ddot": partial(_everyday, "prose_ddot", moving),
        "prose_ar": partial(_everyday, "prose_ar", Autoregressive(), base, 2e-4),
        "prose_outline": partial(_everyday, "prose_outline", Outline(), base, 2e-4),
    }


def _papers(
    name: str, size: Callable[[int], DiTConfig], source: str, start: str, L: int, couple: Coupling = couple
) -> Run:
    """One stage of the paper's training, as far as described: batch 512, λ = 10, AdamW at 3e-5, no weight decay."""

    def network(vocabulary: Vocabulary) -> DenoiserConfig:
        # 50258, the number of states of the public SEDD checkpoints, defines the shift of the score.
        return DenoiserConfig(
            size(vocabulary.rows), vocabulary, ScoreEntropy(states=vocabulary.base + 1), position_scale=512.0
        )

    method = DDOT(terminal=random_terminal, couple=couple)
    plan = Plan(method, Mix((1.0, Block(L // 2)), (1.0, Keywords(1, 6))), lengths=(L,), whole_words=0.0)
    data = Data(folder="runs/data-gpt2", sources=((source, 1.0),), edges=False, workers=8)
    training = replace(
        _GPU, steps=100_000, slots=512 * L, rate=3e-5, warmup=2_500, decay=0.0, average=0.9999, position_factor=10.0,
        save_every=2_500,
    )  # fmt: skip
    return Run(name, network, data, (plan,), training, start)


def _two_stages(size: str, config: Callable[[int], DiTConfig]) -> dict[str, Callable[[], Run]]:
    """The paper's runs for one size: alignment on general text, then training on each benchmark's own text."""
    align = f"sedd_{size}_align"
    stages = {
        align: ("fineweb-edu", f"runs/base/sedd-{size}", 64),
        f"{align}_code": ("fineweb-edu", f"runs/base/sedd-{size}", 1024),
        f"sedd_{size}_1bw": ("1bw", f"runs/{align}", 64),
        f"sedd_{size}_yelp": ("yelp", f"runs/{align}", 64),
        f"sedd_{size}_code": ("code", f"runs/{align}_code", 1024),
    }
    runs: dict[str, Callable[[], Run]] = {name: partial(_papers, name, config, *rest) for name, rest in stages.items()}
    name = f"sedd_{size}_no_ot"
    return runs | {name: partial(_papers, name, config, "1bw", f"runs/{align}", 64, couple=couple_independently)}


RECIPES: dict[str, Callable[[], Run]] = {
    "toy": toy,
    "smollm2": smollm2,
    "smollm2_trunk": smollm2_trunk,
    **_comparison(),
    **_everyday_methods(),
    **_two_stages("small", DiTConfig.small),
    **_two_stages("medium", DiTConfig.medium),
}


def recipe(name: str) -> Run:
    if name not in RECIPES:
        raise ValueError(f"there is no recipe '{name}'; the recipes are {', '.join(RECIPES)}")
    return RECIPES[name]()
