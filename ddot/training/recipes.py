"""Ready runs. A recipe is a function that returns the whole configuration; `--set a.b=value` changes a part of it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from ddot.core.absorbing import ScoreEntropy
from ddot.core.coupling import couple_independently
from ddot.core.positions import AsText, JitteredGrid, Mixture, Stretched, random_terminal
from ddot.core.records import Vocabulary
from ddot.data.forms import CODE_SLOTS
from ddot.data.masks import Block, Blocks, Independent, Keywords, Mix, Nothing, Telling
from ddot.data.tokenizer import Tokenizer
from ddot.methods.autoregressive import Autoregressive
from ddot.methods.ddot import DDOT
from ddot.methods.fixed_length import FixedLength
from ddot.methods.insertion import Insertion
from ddot.methods.left_context import LeftContext
from ddot.methods.losses import TokenUnitWeight
from ddot.methods.method import Method
from ddot.methods.position_prediction import PositionPrediction
from ddot.network.denoiser import DenoiserConfig
from ddot.network.dit import DiTConfig
from ddot.network.llama import LlamaConfig
from ddot.training.batches import EitherCut, Plan, WholeSentences, Windows
from ddot.training.config import Data, Run, Training

MOST_MASKS = ((4.0, Block(32)), (2.0, Blocks(2, 4, 0.7)), (1.5, Independent(0.1, 0.9)), (0.2, Nothing()))
ALL_MASKS = Mix(*MOST_MASKS, (2.0, Keywords(1, 6)))
# Trained from random starts alone, a grid start made texts 8 words too short (located) to 16 too long (free). Trained
# from grids of one width too, a network takes a grid that is a little wider for a longer text (docs/log.md).
EVEN = Stretched(JitteredGrid(0.5), 0.15)
STARTS = Mixture((1.0, random_terminal), (1.0, EVEN))


def toy() -> Run:
    """A tiny model on the sentences that ship with the project: CPU, under a minute."""
    L = 12

    def network(vocabulary: Vocabulary) -> DenoiserConfig:
        trunk = LlamaConfig(
            width=96, blocks=2, heads=4, key_heads=2, inner_width=256, vocabulary=vocabulary.rows, rotary_base=1000.0
        )
        return replace(DenoiserConfig.extended(trunk, vocabulary), slots=L)

    method = DDOT(terminal=random_terminal, position_weight=TokenUnitWeight(), gap_length_factor=0.1)
    masks = Mix((3.0, Block(6)), (1.0, Blocks(2, 3)), (1.0, Keywords(1, 4)))
    return Run(
        name="toy",
        network=network,
        # 1024 tokens: every word of these sentences is one.
        data=Data(texts=(str(Path(__file__).parents[1] / "data" / "toy.txt"),), tokens=1024),
        plans=(Plan(method, masks, telling=Telling(located=0.5), lengths=(L,), full_noise=0.2),),
        training=Training(
            steps=360,
            slots=720,
            rate=3e-3,
            matrix_rate=4e-3,
            betas=(0.9, 0.98),
            warmup=20,
            decay=0.3,
            average=0.99,
            position_factor=0.02,
            log_every=20,
            save_every=180,
        ),
    )


def smollm2() -> Run:
    """The embedded model: SmolLM2-135M made bidirectional, all masks, free and located, told and untold lengths."""
    about = {"position_weight": TokenUnitWeight(), "gap_length_factor": 1.0}
    moving = DDOT(terminal=STARTS, **about)  # type: ignore[arg-type]
    still = FixedLength(**about)  # type: ignore[arg-type]
    passages = EitherCut(0.7, WholeSentences(3), Windows(0.5))
    full = EitherCut(0.3, WholeSentences(4), Windows(0.8))
    some_told = Telling(located=0.5, gap_lengths=0.1, some_gap_lengths=0.1)
    told = Telling(located=1.0, gap_lengths=1.0)
    return Run(
        name="smollm2",
        network=lambda v: DenoiserConfig.extended(LlamaConfig.smollm2_135m(v.rows), v),
        start="runs/base/smollm2",
        data=Data(
            folder="runs/data",
            sources=(
                ("news", 3.0),
                ("wikipedia", 1.0),
                ("imdb", 0.8),
                ("europarl", 0.4),
                ("books", 1.0),
                ("yelp", 0.4),
                ("news-form", 1.8),
                ("1bw-real", 0.15),
                ("review-form", 0.5),
                ("yelp-form", 0.6),
                ("review-short", 0.15),
            ),
            dev="dev",
            workers=14,
        ),
        plans=(
            Plan(moving, Mix(*MOST_MASKS), passages, some_told, (32, 64, 64), 0.9, full_noise=0.15, weight=0.25),
            # A few words and nothing else ask for one sentence: with up to three, texts came out 3 to 7 words too long.
            Plan(moving, Keywords(1, 6), WholeSentences(1), some_told, (64,), full_noise=0.3, weight=0.1),
            Plan(moving, ALL_MASKS, full, told, (32, 64, 128), 0.9, full_noise=0.05, weight=0.15),
            Plan(still, ALL_MASKS, full, told, (32, 64, 128), 0.9, full_noise=0.05, weight=0.5),
        ),
        training=Training(
            seconds=1000.0,
            slots=65_536,
            rate=1e-3,
            matrix_rate=2e-3,
            added_rate=3e-3,
            warmup=100,
            decay=0.5,
            average=0.995,
            position_factor=0.05,
            position_warmup=200,
            bf16=True,
            compile=True,
            device="cuda",
            save_every=2_000,
            dev_every=1_000,
        ),
    )


def smollm2_trunk() -> Run:
    """What the compared methods start from, as the paper's start from SEDD: SmolLM2-135M as a masked diffusion model of
    texts whose lengths are known. It has seen [pad]s only behind a text, and no positions that move."""
    run = _compared("smollm2_trunk", FixedLength(), start="runs/base/smollm2")
    fast = replace(run.training, seconds=1000.0, rate=1e-3, matrix_rate=2e-3)
    return replace(run, training=fast)


def _compared(name: str, method: Method, start: str = "runs/smollm2_trunk") -> Run:
    """A method on the same trunk, data, batch and minutes as the others: the paper's free task, both kinds of mask.

    (`smollm2_fixed` goes on with what the trunk learnt; `smollm2_ar` has not had the trunk's minutes.)
    A quarter of the batches is Python, so that one training serves the tables of text and of code: lines of a function
    are missing, told where or not, at the L of the benchmark.
    """
    base = smollm2()
    masks = Mix((1.0, Block(32)), (1.0, Keywords(1, 6)))
    code = Plan(
        method,
        Block(12),
        EitherCut(0.7, WholeSentences(1), Windows(0.6)),
        Telling(located=0.5),
        lengths=(CODE_SLOTS,),
        whole_words=0.9,
        unit=Tokenizer.lines,
        full_noise=0.1,
        weight=0.25,
        sources=("python",),
    )
    sources = (("news-form", 1.8), ("1bw-real", 0.2), ("review-form", 1.8), ("review-short", 0.2), ("python", 1.0))
    return replace(
        base,
        name=name,
        start=start,
        data=replace(base.data, sources=sources),
        plans=(Plan(method, masks, lengths=(64,), full_noise=0.1, weight=0.75), code),
        # accumulate: memory for LC's rows of 2L
        training=replace(
            base.training, seconds=300.0, rate=5e-4, matrix_rate=1e-3, position_warmup=100, accumulate=2, dev_every=0
        ),
    )


def _comparison() -> dict[str, Callable[[], Run]]:
    """The methods of the tables, each with its own training. The autoregressive one starts from the language model
    itself, which reads from left to right as it does."""
    weight = TokenUnitWeight(at_most=64)
    ddot = DDOT(terminal=STARTS, position_weight=weight, gap_length_factor=1.0)
    methods: dict[str, Method] = {
        "smollm2_ddot": ddot,
        "smollm2_ddot_u": replace(ddot, terminal=EVEN),
        "smollm2_ddot_t": replace(ddot, terminal=Stretched(AsText(JitteredGrid(0.5)), 0.15)),
        "smollm2_no_ot": replace(ddot, couple=couple_independently),
        "smollm2_lc": LeftContext(),
        "smollm2_pop": PositionPrediction(position_weight=weight),
        "smollm2_fixed": FixedLength(),
        "smollm2_insertion": Insertion(),
    }
    made: dict[str, Callable[[], Run]] = {name: partial(_compared, name, method) for name, method in methods.items()}
    return made | {"smollm2_ar": partial(_compared, "smollm2_ar", Autoregressive(), start="runs/base/smollm2")}


def _papers(name: str, size: Callable[[int], DiTConfig], source: str, start: str, L: int, couple: bool = True) -> Run:
    """One stage of the paper's training, as far as it says: batch 512, λ = 10, AdamW at 3e-5, weight decay 0."""

    def network(vocabulary: Vocabulary) -> DenoiserConfig:
        # 50258: the states of the public SEDD checkpoints, which the shift of the score is defined with.
        return DenoiserConfig(
            size(vocabulary.rows), vocabulary, ScoreEntropy(states=vocabulary.base + 1), position_scale=512.0
        )

    method = DDOT(terminal=random_terminal)
    if not couple:
        method = DDOT(terminal=random_terminal, couple=couple_independently)
    masks = Mix((1.0, Block(L // 2)), (1.0, Keywords(1, 6)))
    return Run(
        name=name,
        network=network,
        start=start,
        data=Data(folder="runs/data-gpt2", sources=((source, 1.0),), edges=False, workers=8),
        plans=(Plan(method, masks, lengths=(L,), whole_words=0.0),),
        training=Training(
            steps=100_000,
            slots=512 * L,
            rate=3e-5,
            warmup=2_500,
            decay=0.0,
            average=0.9999,
            position_factor=10.0,
            bf16=True,
            compile=True,
            device="cuda",
            save_every=2_500,
        ),
    )


def _two_stages(size: str, config: Callable[[int], DiTConfig]) -> dict[str, Callable[[], Run]]:
    """The paper's runs for one size: alignment on general text, then each benchmark's own text."""
    align = f"sedd_{size}_align"
    stages = {
        align: ("fineweb-edu", f"runs/base/sedd-{size}", 64),
        f"{align}_code": ("fineweb-edu", f"runs/base/sedd-{size}", 1024),
        f"sedd_{size}_1bw": ("1bw", f"runs/{align}", 64),
        f"sedd_{size}_yelp": ("yelp", f"runs/{align}", 64),
        f"sedd_{size}_code": ("code", f"runs/{align}_code", 1024),
    }
    made = {name: _stage(name, config, *stage) for name, stage in stages.items()}
    no_ot = f"sedd_{size}_no_ot"
    return made | {no_ot: lambda: _papers(no_ot, config, "1bw", f"runs/{align}", 64, couple=False)}


def _stage(name: str, config: Callable[[int], DiTConfig], source: str, start: str, L: int) -> Callable[[], Run]:
    return lambda: _papers(name, config, source, start, L)


RECIPES: dict[str, Callable[[], Run]] = {
    "toy": toy,
    "smollm2": smollm2,
    "smollm2_trunk": smollm2_trunk,
    **_comparison(),
    **_two_stages("small", DiTConfig.small),
    **_two_stages("medium", DiTConfig.medium),
}


def recipe(name: str) -> Run:
    """The run of that name."""
    if name not in RECIPES:
        raise ValueError(f"there is no recipe '{name}'; there are {', '.join(RECIPES)}")
    return RECIPES[name]()
