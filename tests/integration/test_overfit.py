"""A tiny network learns eight sentences by heart and fills the blanks in them, lengths included."""

import numpy as np
import pytest
import torch

from ddot.absorbing import CleanToken
from ddot.backbones.llama import LlamaConfig
from ddot.chance import fold, generator, row_keys, spread_times
from ddot.denoiser import Denoiser, DenoiserConfig
from ddot.losses import TokenUnitWeight
from ddot.masking import Block, Independent, Mix
from ddot.methods.ddot import DDOT
from ddot.positions import grid_terminal, random_terminal
from ddot.records import Example
from ddot.sampling import MostCertainFirst
from ddot.tokens import Vocabulary

SENTENCES = [
    "my neighbour grows tomatoes on a very small balcony",
    "rain fell",
    "the last train to the coast leaves at nine",
    "she painted both doors green",
    "nobody remembered where we buried it",
    "two owls live behind that barn",
    "please bring your own cup",
    "grandfather once crossed the frozen lake",
]
WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
TEXTS = [np.array([WORDS.index(word) for word in sentence.split()]) for sentence in SENTENCES]
V = Vocabulary(len(WORDS))
L = 12


def train(steps, rows=48):
    trunk = LlamaConfig(width=96, blocks=3, heads=4, key_heads=2, inner_width=256, vocabulary=V.rows)
    config = DenoiserConfig(
        trunk=trunk, vocabulary=V, score=CleanToken(elbo=False), time=True, surroundings=True, predict_clean=True
    )
    model = Denoiser(config)
    method = DDOT(terminal=random_terminal, position_weight=TokenUnitWeight())
    optimiser = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps, pct_start=0.1)
    mask = Mix((2.0, Block(8)), (1.0, Independent(0.3, 0.9)))
    for step in range(steps):
        keys = row_keys(step, rows)
        examples = []
        for key in fold(keys, 9).tolist():
            rng = generator(key)
            tokens = TEXTS[rng.integers(len(TEXTS))]
            examples.append(Example(tokens, mask(np.ones(len(tokens)), rng)))
        losses = method.loss(model, method.prepare(examples, L, spread_times(step, rows), keys, V), 0.05)
        optimiser.zero_grad()
        losses.total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return model.eval()


def every_blank():
    """Each sentence with each span of up to five words missing, as long as two words are left to know it by."""
    for tokens in TEXTS:
        for start in range(len(tokens)):
            for length in range(min(5, len(tokens) - start) + 1):
                is_prompt = np.ones(len(tokens), bool)
                is_prompt[start : start + length] = False
                if is_prompt.sum() >= 2:
                    yield Example(tokens, is_prompt)


@pytest.mark.slow
def test_a_tiny_model_overfits_eight_sentences_and_infills_them():
    model = train(1400)
    prompts = list(every_blank())
    for terminal, bar in ((grid_terminal, 0.75), (random_terminal, 0.5)):
        method = DDOT(terminal=terminal, reveal=MostCertainFirst())
        with torch.no_grad():
            *_, last = method.sample(model, prompts, L, 16, row_keys(1, len(prompts)))
        found = [text.tolist() for text in method.texts(last, V)]
        right = np.mean([text == prompt.tokens.tolist() for text, prompt in zip(found, prompts, strict=True)])
        assert right >= bar, f"{right:.2f} of {len(prompts)} blanks filled with the one text that fits"
