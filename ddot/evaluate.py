"""`ddot evaluate`: fill benchmark items with a model and score the texts. One row for each way of filling."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ddot.annealing import greedy, greedy_words
from ddot.benchmarks import Item, WordPrompt, word_prompt
from ddot.chance import row_keys
from ddot.denoiser import Denoiser
from ddot.filling import Prompt, Settings, fill, gap_tokens, mean_length, roomy
from ddot.metrics import score as score
from ddot.positions import grid_terminal, random_terminal
from ddot.sampling import Leap, MostCertainFirst
from ddot.tokens import Tokenizer


@dataclass(frozen=True)
class Way:
    """A way of filling, under the name its rows carry."""

    name: str
    settings: Settings
    oracle: bool = False  # told the true length of every gap


def ways() -> dict[str, Way]:
    """The ways there are, by name."""
    leap = Leap(greedy)
    made = [
        Way("ddot-u", Settings(terminal=grid_terminal, reveal=leap)),
        Way("ddot-r", Settings(terminal=random_terminal, reveal=leap)),
        Way("ddot-u-words", Settings(terminal=grid_terminal, reveal=Leap(greedy_words))),
        Way("ddot-r-words", Settings(terminal=random_terminal, reveal=Leap(greedy_words))),
        Way("ddot-u-sure", Settings(terminal=grid_terminal, reveal=MostCertainFirst(greedy_words))),
        Way("ddot-r-sure", Settings(terminal=random_terminal, reveal=MostCertainFirst(greedy_words))),
        Way("planned", Settings(choose_length=mean_length)),
        Way("planned-still", Settings(choose_length=mean_length, still=True)),
        Way("oracle", Settings(), oracle=True),
        Way("oracle-still", Settings(still=True), oracle=True),
    ]
    return {way.name: way for way in made}


def generate(
    model: Denoiser,
    tokenizer: Tokenizer,
    items: Sequence[Item],
    way: Way,
    located: bool,
    steps: int,
    seed: int = 0,
    batch: int = 128,
) -> tuple[list[list[str]], float]:
    """(the filled texts as words, seconds a text)."""
    prompts = [word_prompt(item, tokenizer, located) for item in items]
    keys = row_keys(seed, len(items))
    settings = replace(way.settings, steps=steps)
    found: dict[int, list[str]] = {}
    # Prompts of like size together: a batch is as wide as its widest row.
    order = sorted(
        range(len(items)), key=lambda i: len(prompts[i].prompt) + (prompts[i].rooms.sum() if way.oracle else 0)
    )
    start = time.monotonic()
    for first in range(0, len(order), batch):
        rows = order[first : first + batch]
        some = [_told(prompts[i], way) for i in rows]
        with torch.inference_mode():
            *_, last = fill(model, some, keys[rows], _wide_enough(settings, some, way))
        for i, gaps in zip(rows, gap_tokens(last, some, model.vocabulary), strict=True):
            found[i] = prompts[i].words(gaps, tokenizer)
    seconds = (time.monotonic() - start) / max(1, len(items))
    return [found[i] for i in range(len(items))], seconds


def _told(prompt: WordPrompt, way: Way) -> Prompt:
    return prompt.prompt.with_rooms(prompt.rooms) if way.oracle else prompt.prompt


def _wide_enough(settings: Settings, prompts: Sequence[Prompt], way: Way) -> Settings:
    """L for this batch: what the oracle says, or the usual one, or more where a prompt leaves no room in it."""
    if way.oracle:
        return replace(settings, slots=max(len(p) + int(p.example.room.sum()) for p in prompts))  # type: ignore[union-attr]
    return replace(settings, slots=roomy(max(len(prompt) for prompt in prompts)))
