"""Left to right: what is asked and answered, against cross entropies by hand; what sampling may never do."""

import dataclasses
import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch

from ddot.core.absorbing import CleanToken, ScoreEntropy
from ddot.core.annealing import Tempered, greedy
from ddot.core.codes import NOT_PROMPT, UNKNOWN
from ddot.core.gaps import gap_hints, open_gaps
from ddot.core.records import Example, State, Vocabulary
from ddot.core.rng import fold, row_keys, spread_times, uniform
from ddot.methods.autoregressive import Autoregressive, targets
from ddot.methods.method import Method
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.dit import DiTConfig
from ddot.network.llama import LlamaConfig
from ddot.network.trunk import Cache, left_to_right

V = Vocabulary(30)
L = 10
LLAMA = LlamaConfig(width=16, blocks=2, heads=2, key_heads=1, inner_width=24, vocabulary=V.rows)
DIT = DiTConfig(width=16, blocks=2, heads=2, vocabulary=V.rows, condition_width=8)
DRAWN = Autoregressive(Tempered(1.0, pad_apart=False))


def examples(count=12, seed=0, told=False):
    """Texts of 0 to L tokens, some of them given; the last one full and all given."""
    rng = np.random.default_rng(seed)
    for n in [*rng.integers(0, L + 1, count - 1).tolist(), L]:
        is_prompt = rng.random(n) < 0.5 if n < L else np.ones(L, bool)
        hint = gap_hints(is_prompt, open_gaps(is_prompt)) if told else None
        yield Example(rng.integers(0, V.base, n), is_prompt, hint)


def network(trunk=LLAMA, **changes):
    config = DenoiserConfig(trunk, V, CleanToken(), time=True, surroundings=True, gap_lengths=True)
    net = Denoiser(dataclasses.replace(config, **changes))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return net.eval()


def batch(texts):
    return Autoregressive().prepare(texts, L, spread_times(1, len(texts)), row_keys(2, len(texts)), V)


def states(method, net, prompts, keys=None):
    with torch.no_grad():
        return list(method.sample(net, prompts, L, 3, row_keys(4, len(prompts)) if keys is None else keys))


def by_hand(example):
    """(what is read, what is answered after each token from [sep] on)."""
    given = example.tokens[example.is_prompt].tolist()
    said = [V.sep if p else t for t, p in zip(example.tokens.tolist(), example.is_prompt, strict=True)]
    return given, [*given, V.sep, *example.tokens.tolist()], [*said, V.pad]


def test_it_is_a_method_that_workers_can_be_sent():
    assert isinstance(Autoregressive(), Method)
    assert pickle.loads(pickle.dumps(Autoregressive())) == Autoregressive()


def test_rows_and_answers_are_the_template():
    texts = list(examples())
    slots = batch(texts)
    asked, answer = targets(slots, V)
    for row, example in enumerate(texts):
        given, read, said = by_hand(example)
        assert slots.x_0[row, : len(read)].tolist() == read[: 2 * L]
        # The last slot of a full row is asked nothing: what follows lies outside.
        assert asked[row].nonzero()[:, 0].tolist() == list(range(len(given), min(len(read), 2 * L - 1)))
        assert answer[row, asked[row]].tolist() == said[: 2 * L - 1 - len(given)]


@pytest.mark.parametrize("trunk", [LLAMA, DIT], ids=["llama", "dit"])
def test_the_loss_is_the_sum_of_next_token_cross_entropies(trunk):
    net, texts = network(trunk), list(examples(told=True))[:-1]
    losses = Autoregressive().loss(net, batch(texts), 7.0)
    total, count = 0.0, 0
    for example in texts:
        given, read, said = by_hand(example)
        for end, token in enumerate(said, len(given) + 1):
            # Read anew up to here: nothing to the right of it exists.
            hint = torch.full((1, end), NOT_PROMPT)
            hint[0, : len(given)] = torch.from_numpy(example.hint[example.is_prompt])
            hint[0, len(given)] = UNKNOWN
            z = (2 * torch.arange(float(end))[None] - end + 1) / end
            seen = State(torch.tensor(read[:end])[None], z, hint, torch.full((1, end), -1), torch.zeros(1))
            h, _ = net.read(seen, left_to_right)
            logits = net.logits(h[0, -1:])[:, : V.size].index_fill(1, torch.tensor([V.mask]), -torch.inf)
            total += torch.nn.functional.cross_entropy(logits, torch.tensor([token])).item()
            count += 1
    assert losses.nats.item() == pytest.approx(total / count, rel=1e-4)
    assert losses.token.item() == pytest.approx(total / (len(texts) * 2 * L), rel=1e-4)
    assert losses.total.item() == pytest.approx(losses.token.item())  # λ weighs nothing
    losses.total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_a_network_of_scores_is_refused():
    net = network(score=ScoreEntropy(states=31))
    with pytest.raises(ValueError, match=r"ScoreEntropy.*score=CleanToken"):
        Autoregressive().loss(net, batch(list(examples())), 1.0)


@pytest.mark.parametrize("trunk", [LLAMA, DIT], ids=["llama", "dit"])
def test_nothing_is_seen_of_what_comes_later(trunk):
    net, slots = network(trunk), batch(list(examples()))
    state = State(slots.x_0, slots.z_0, torch.zeros_like(slots.kind), slots.gap_length, torch.zeros(len(slots.t)))
    for i in (0, 3, 2 * L - 1):
        x = slots.x_0.clone()
        x[:, i] = (x[:, i] + 1) % V.base
        a, b = (net.read(s, left_to_right)[0] for s in (state, dataclasses.replace(state, x=x)))
        torch.testing.assert_close(a[:, :i], b[:, :i], rtol=0, atol=0)
        assert not torch.allclose(a[:, i:], b[:, i:])


@pytest.mark.parametrize("trunk", [LLAMA, DIT], ids=["llama", "dit"])
def test_reading_with_a_cache_is_reading_it_all(trunk):
    net, slots = network(trunk), batch(list(examples(told=True)))
    state = State(slots.x_0, slots.z_0, slots.hint, slots.gap_length, torch.zeros(len(slots.t)))
    whole, _ = net.read(state, left_to_right)
    cache, pieces = Cache(len(slots.x_0)), []
    for part in (slice(0, 7), slice(7, 8), slice(8, 9), slice(9, 14), slice(14, 2 * L)):
        cache.grow(torch.ones_like(slots.x_0[:, part], dtype=torch.bool))
        pieces.append(net.read(state, cache, part)[0])
    pieces = torch.cat(pieces, 1)
    torch.testing.assert_close(pieces, whole, rtol=1e-4, atol=1e-5)


def naive(net, example):
    """The likeliest answers one by one, everything read anew each time."""
    given = example.tokens[example.is_prompt].tolist()
    read, used = [*given, V.sep], 0
    while len(read) - len(given) - 1 < L:
        n = len(read)
        hint = torch.where(torch.arange(n)[None] <= len(given), UNKNOWN, NOT_PROMPT)
        z = (2 * torch.arange(float(n))[None] - n + 1) / n
        h, _ = net.read(State(torch.tensor(read)[None], z, hint, torch.full((1, n), -1), torch.zeros(1)), left_to_right)
        logits = net.logits(h[:, -1])[0]
        left, room = len(given) - used, L - (n - len(given) - 1)
        fits = [*(range(V.base) if room > left else ()), V.sep if left else V.pad]
        token = max(fits, key=lambda column: logits[column].item())
        if token == V.pad:
            break
        read.append(given[used] if token == V.sep else token)
        used += token == V.sep
    return read[len(given) + 1 :]


def test_sampling_is_the_plain_loop():
    for seed in range(3):
        torch.manual_seed(seed)
        net, prompts = network(), list(examples(seed=seed))
        found = Autoregressive().texts(states(Autoregressive(), net, prompts)[-1], V)
        assert [text.tolist() for text in found] == [naive(net, example) for example in prompts]


@pytest.mark.parametrize("told", [False, True], ids=["free", "located"])
@pytest.mark.parametrize("method", [Autoregressive(), DRAWN], ids=["likeliest", "drawn"])
def test_the_prompt_is_kept_in_order_for_any_weights(method, told):
    for seed in range(4):
        torch.manual_seed(seed)
        prompts = list(examples(seed=seed, told=told))
        seen = states(method, network(), prompts)
        assert (seen[0].t == 1).all()
        assert (seen[-1].t == 0).all()
        assert all((a.t > b.t).all() for a, b in pairwise(seen))
        assert (seen[-1].x != V.mask).all()
        for text, example in zip(method.texts(seen[-1], V), prompts, strict=True):
            assert len(text) <= L
            rest = iter(text.tolist())
            assert all(token in rest for token in example.tokens[example.is_prompt].tolist())


@pytest.mark.parametrize("told", [False, True], ids=["free", "located"])
def test_nothing_is_written_after_the_end(told):
    """Rows that end early wait for the others: from the first [pad] on there are [pad]s alone."""
    early = 0
    for seed in range(4):
        torch.manual_seed(seed)
        prompts = list(examples(24, seed=seed, told=told))
        for state in states(DRAWN, network(), prompts)[1:]:
            for sentence in state.x[:, -L:].tolist():
                if V.pad in sentence:
                    rest = sentence[sentence.index(V.pad) :]
                    assert set(rest) <= {V.pad, V.mask}
                    early += len(rest) > 1 and rest[1] == V.pad
    assert early > 10


def drawn_by_hand(net, example, key):
    """One answer after another by inverting the chances of what is allowed, everything read anew at t = 0."""
    given = example.tokens[example.is_prompt].tolist()
    hints = (np.full(len(example.tokens), UNKNOWN) if example.hint is None else example.hint)[example.is_prompt]
    is_open = open_gaps(example.is_prompt)
    gaps = [is_open[0], *(is_open[place + 1] for place in np.flatnonzero(example.is_prompt))] if given else [True]
    read, used = [*given, V.sep], 0
    for place in range(L):
        n, left = len(read), len(given) - used
        hint = torch.full((1, n), NOT_PROMPT)
        hint[0, : len(given)], hint[0, len(given)] = torch.from_numpy(hints), UNKNOWN
        z = (2 * torch.arange(float(n))[None] - n + 1) / n
        h, _ = net.read(State(torch.tensor(read)[None], z, hint, torch.full((1, n), -1), torch.zeros(1)), left_to_right)
        open_here = example.hint is None or bool(gaps[used])
        fits = [*(range(V.base) if L - place > left and open_here else ()), V.sep if left else V.pad]
        chances = torch.softmax(net.logits(h[:, -1])[0, fits].double(), -1)
        by_chance = sorted(zip(chances.tolist(), fits, strict=True), key=lambda pair: -pair[0])  # as `Tempered` sorts
        below = np.cumsum([chance for chance, _ in by_chance])
        _, token = by_chance[int(np.searchsorted(below[:-1], uniform(fold(key, place), 1)[0, 0], side="right"))]
        if token == V.pad:
            break
        read.append(given[used] if token == V.sep else token)
        used += token == V.sep
    return read[len(given) + 1 :]


@pytest.mark.parametrize("told", [False, True], ids=["free", "located"])
@torch.no_grad()
def test_drawing_is_the_plain_loop_with_a_number_of_its_own_for_every_place(told):
    net, prompts, keys = network(), list(examples(told=told)), row_keys(4, 12)
    found = DRAWN.texts(states(DRAWN, net, prompts, keys)[-1], V)
    wanted = [drawn_by_hand(net, example, keys[row : row + 1]) for row, example in enumerate(prompts)]
    assert [text.tolist() for text in found] == wanted


def test_closed_gaps_stay_closed():
    """Given tokens are told from written ones by their ids."""
    rng = np.random.default_rng(0)
    prompts = []
    for n in rng.integers(1, L, 20).tolist():
        is_prompt = rng.random(n) < 0.6
        tokens = np.where(is_prompt, V.sep, 0)  # no written token is [sep]
        prompts.append(Example(tokens, is_prompt, gap_hints(is_prompt, open_gaps(is_prompt))))
    for text, example in zip(DRAWN.texts(states(DRAWN, network(), prompts)[-1], V), prompts, strict=True):
        if not example.is_prompt.any():
            continue
        is_open = open_gaps(example.is_prompt)
        wanted = [bool(is_open[0])]  # of the gaps before each given token and after the last: may it hold text?
        for place in np.flatnonzero(example.is_prompt):
            wanted.append(bool(is_open[place + 1]))
        gaps = np.bincount(np.cumsum(text == V.sep)[text != V.sep], minlength=len(wanted))
        assert all(may or not count for may, count in zip(wanted, gaps.tolist(), strict=True))


def test_a_row_is_the_same_in_any_batch_and_drawn_from_its_key():
    net, prompts = network(), list(examples())
    keys = row_keys(8, len(prompts))
    whole = DRAWN.texts(states(DRAWN, net, prompts, keys)[-1], V)
    for row in range(len(prompts)):
        alone = DRAWN.texts(states(DRAWN, net, prompts[row : row + 1], keys[row : row + 1])[-1], V)
        assert alone[0].tolist() == whole[row].tolist()
    other = DRAWN.texts(states(DRAWN, net, prompts, row_keys(9, len(prompts)))[-1], V)
    assert [a.tolist() for a in other] != [b.tolist() for b in whole]


def test_sampling_reads_the_prompt_and_nothing_else():
    net, prompts = network(), list(examples())
    bare = [Example(p.tokens[p.is_prompt], p.is_prompt[p.is_prompt]) for p in prompts]
    first, second = (states(Autoregressive(greedy), net, some)[-1] for some in (prompts, bare))
    assert torch.equal(first.x, second.x)


def test_a_text_beyond_L_is_refused():
    long = [Example(np.zeros(L + 1, np.int64), np.ones(L + 1, bool))]
    with pytest.raises(ValueError, match=f"does not fit into L = {L}"):
        batch(long)
    with pytest.raises(ValueError, match="raise L"):
        states(Autoregressive(), network(), long)
