"""The paper's two diffusion baselines: what their rows hold, what is fixed, what their losses are by hand."""

import dataclasses
import pickle

import numpy as np
import pytest
import torch

from ddot.core.absorbing import CleanToken
from ddot.core.annealing import Tempered
from ddot.core.codes import BOTH, GLUED, NOT_PROMPT, PAD, PROMPT, RESPONSE, UNKNOWN, UNKNOWN_LENGTH
from ddot.core.positions import random_terminal
from ddot.core.records import Example, State, Vocabulary
from ddot.core.rng import row_keys, spread_times
from ddot.core.sampling import Leap, MostCertainFirst
from ddot.data.masks import Independent, Telling
from ddot.data.shards import Corpus, pack
from ddot.data.tokenizer import learn_bpe
from ddot.methods.ddot import DDOT
from ddot.methods.left_context import LeftContext
from ddot.methods.losses import TokenUnitWeight
from ddot.methods.method import Method
from ddot.methods.position_prediction import PositionPrediction
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.dit import DiTConfig
from ddot.training.batches import Batches, Plan, Windows

V = Vocabulary(30)
L = 10
METHODS = [LeftContext(), PositionPrediction(), PositionPrediction(terminal=random_terminal)]


def examples(count=12, seed=0):
    """Texts of 0 to L tokens, some of them given; the last one full and all given."""
    rng = np.random.default_rng(seed)
    for n in rng.integers(0, L + 1, count - 1):
        yield Example(rng.integers(0, V.base, n), rng.random(n) < 0.5)
    yield Example(rng.integers(0, V.base, L), np.ones(L, bool))


def located(example):
    """The same text with its gaps told (anything will do)."""
    hint = np.where(example.is_prompt, BOTH, NOT_PROMPT)
    return dataclasses.replace(example, hint=hint, gap_length=np.where(example.is_prompt, 2, UNKNOWN_LENGTH))


def batch(method, texts=None):
    texts = list(examples()) if texts is None else texts
    return method.prepare(texts, L, spread_times(1, len(texts)), row_keys(2, len(texts)), V)


def network(**changes):
    trunk = DiTConfig(width=16, blocks=2, heads=2, vocabulary=V.rows, condition_width=8)
    config = DenoiserConfig(trunk, V, CleanToken(elbo=False), surroundings=True, gap_lengths=True, **changes)
    net = Denoiser(config)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return net.eval()


def states(method, net, prompts, steps=4, keys=None):
    with torch.no_grad():
        return list(method.sample(net, prompts, L, steps, row_keys(4, len(prompts)) if keys is None else keys))


def test_ddot_leaves_the_start_in_one_long_step():
    for method, second in ((DDOT(), 7 / 8), (LeftContext(), 31 / 32), (PositionPrediction(), 31 / 32)):
        times = [float(state.t[0]) for state in states(method, network(), list(examples())[:2], steps=32)]
        assert (times[0], times[1], times[-1], len(times)) == (1, second, 0, 33)


def equal(a, b):
    return all(torch.equal(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a))


@pytest.mark.parametrize("method", METHODS)
def test_they_are_methods_that_workers_can_be_sent(method):
    assert isinstance(method, Method)
    assert equal(batch(pickle.loads(pickle.dumps(method))), batch(method))


@pytest.mark.parametrize("method", METHODS)
def test_prompts_are_never_changed_and_nothing_moves(method):
    prompts, net = list(examples()), network()
    seen = states(method, net, prompts)
    assert len(seen) == 5
    assert [state.t[0].item() for state in seen] == [1, 0.75, 0.5, 0.25, 0]
    given = seen[0].is_prompt
    assert (seen[0].x[~given] == V.mask).all()
    assert (seen[-1].x != V.mask).all()
    for state in seen:
        assert torch.equal(state.z, seen[0].z)
        assert torch.equal(state.hint, seen[0].hint)
        assert torch.equal(state.x[given], seen[0].x[given])


@pytest.mark.parametrize("method", METHODS)
def test_sampling_reads_the_prompt_and_nothing_else(method):
    net, prompts = network(), list(examples())
    hidden = [Example(np.where(p.is_prompt, p.tokens, 0), p.is_prompt) for p in prompts]
    bare = [Example(p.tokens[p.is_prompt], p.is_prompt[p.is_prompt]) for p in prompts]
    first, *others = (states(method, net, some)[-1] for some in (prompts, hidden, bare))
    assert all(equal(first, other) for other in others)


@pytest.mark.parametrize("reveal", [Leap(Tempered(1.0)), MostCertainFirst(Tempered(1.0))])
@pytest.mark.parametrize("method", METHODS)
def test_a_row_is_the_same_in_any_batch(method, reveal):
    method, net, prompts = dataclasses.replace(method, reveal=reveal), network(), list(examples())
    keys = row_keys(8, len(prompts))
    whole = states(method, net, prompts, keys=keys)[-1]
    order = np.random.default_rng(3).permutation(len(prompts))
    mixed = states(method, net, [prompts[i] for i in order], keys=keys[order])[-1]
    assert torch.equal(mixed.x, whole.x[torch.from_numpy(order)])
    for row in range(0, len(prompts), 3):
        alone = states(method, net, prompts[row : row + 1], keys=keys[row : row + 1])[-1]
        assert torch.equal(alone.x[0], whole.x[row])
        torch.testing.assert_close(alone.z[0], whole.z[row])
    other = states(method, net, prompts, keys=row_keys(9, len(prompts)))[-1]
    assert not torch.equal(other.x, whole.x)


@pytest.mark.parametrize("method", METHODS)
def test_a_text_beyond_L_is_refused(method):
    long = [Example(np.zeros(L + 1, np.int64), np.ones(L + 1, bool))]
    with pytest.raises(ValueError, match=f"does not fit into L = {L}"):
        batch(method, long)
    with pytest.raises(ValueError, match="raise L"):
        states(method, network(), long)


@pytest.mark.parametrize("method", METHODS)
def test_the_loader_makes_batches_of_them(method, tmp_path):
    sentences = ["The ferry was late.", "Our tent leaks whenever the wind turns north.", "Nine geese!"]
    tokenizer = learn_bpe(sentences, 300)
    pack([sentences], tokenizer, tmp_path / "corpus")
    plan = Plan(method, Independent(), Windows(), Telling(located=0.5, gap_lengths=0.5), lengths=(16,), full_noise=0.2)
    _, slots = Batches([(1.0, Corpus(tmp_path / "corpus"))], [plan], tokenizer, slots=16 * 64, seed=0)[0]
    trunk = DiTConfig(width=16, blocks=1, heads=2, vocabulary=tokenizer.vocabulary.rows, condition_width=8)
    net = Denoiser(DenoiserConfig(trunk, tokenizer.vocabulary, CleanToken(), predict_clean=True, gap_lengths=True))
    method.loss(net, slots, 10.0).total.backward()
    # Data-parallel training waits for a gradient of every parameter that is used; finite, even where nothing is asked.
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_left_context_rows_are_prompt_separator_sentence_pads():
    slots = batch(LeftContext())
    assert slots.x_0.shape == (12, 2 * L)
    for row, example in enumerate(list(examples())[:-1]):
        prompt, sentence = example.tokens[example.is_prompt].tolist(), example.tokens.tolist()
        pads = 2 * L - len(prompt) - 1 - len(sentence)
        assert slots.x_0[row].tolist() == [*prompt, V.sep, *sentence, *[V.pad] * pads]
        kinds = [PROMPT] * (len(prompt) + 1) + [RESPONSE] * len(sentence) + [PAD] * pads
        assert slots.kind[row].tolist() == kinds


def test_left_context_full_text_given_as_a_whole_loses_one_token_and_trains_on():
    full = list(examples())[-1]
    slots = batch(LeftContext(), [full])
    assert slots.x_0[0].tolist() == [*full.tokens, V.sep, *full.tokens[:-1]]
    assert LeftContext().loss(network(), slots, 1.0).total.isfinite()
    one_less = Example(full.tokens, np.arange(L) > 0)  # the longest text of which something is missing fits whole
    assert batch(LeftContext(), [one_less]).x_0[0].tolist() == [*full.tokens[1:], V.sep, *full.tokens]


def test_left_context_is_told_nothing_of_gaps():
    method, texts = LeftContext(), list(examples())
    assert equal(batch(method, [located(example) for example in texts]), batch(method, texts))
    start = method.start([located(example) for example in texts], L, row_keys(0, 12), V)
    assert equal(start, method.start(texts, L, row_keys(0, 12), V))
    assert (start.gap_length == UNKNOWN_LENGTH).all()
    assert set(start.hint.unique().tolist()) == {NOT_PROMPT, UNKNOWN}


@pytest.mark.parametrize("width", [1, 2, 7, 64, 1000])
def test_left_context_neighbours_are_one_token_unit_apart_at_any_length(width):
    method, texts = LeftContext(), [Example(np.array([3]), np.array([True]))]
    slots = method.prepare(texts, width, spread_times(0, 1), row_keys(0, 1), V)
    start = method.start(texts, width, row_keys(0, 1), V)
    units = slots.z_0[0].double() * network().scale(2 * width)
    torch.testing.assert_close(units.diff(), torch.ones(2 * width - 1, dtype=torch.double), atol=1e-4, rtol=0)
    assert torch.equal(slots.z_0, slots.z_T)
    assert torch.equal(slots.z_0, start.z)
    assert slots.z_0.abs().max() < 1


def test_left_context_loss_is_the_token_loss_of_everything_after_the_separator():
    net, slots = network(), batch(LeftContext())
    losses = LeftContext().loss(net, slots, 1.0)
    masked = (slots.u < net.noise.masked_share(slots.t)[:, None]) & (slots.kind != PROMPT)
    state = State(torch.where(masked, V.mask, slots.x_0), slots.z_0, slots.hint, slots.gap_length, slots.t)
    log_p = torch.log_softmax(net.logits(net.read(state)[0][masked])[:, : V.size].index_fill(1, _mask(), -1e9), -1)
    by_hand = -log_p.gather(1, slots.x_0[masked][:, None]).sum() / slots.x_0.numel()
    torch.testing.assert_close(losses.total, by_hand)
    torch.testing.assert_close(losses.total, LeftContext().loss(net, slots, 300.0).total)  # λ weighs nothing
    losses.total.backward()
    assert not net.velocity.weight.grad.any()


def test_left_context_text_is_what_follows_the_separator_up_to_the_pads():
    method, tokens = LeftContext(), np.array([V.sep, 4, V.sep])  # [sep] also marks the edge of a text that was cut
    start = method.start([Example(tokens, np.ones(3, bool))] * 4, 4, row_keys(0, 4), V)
    assert start.x[0].tolist() == [V.sep, 4, V.sep, V.sep, *[V.mask] * 4]
    x = start.x.clone()
    x[:, 4:] = torch.tensor(
        [[V.sep, 4, 9, V.sep], [4, V.pad, V.pad, V.pad], [V.pad, 5, 6, V.pad], [5, V.mask, 6, V.pad]]
    )
    found = method.texts(dataclasses.replace(start, x=x), V)
    assert [text.tolist() for text in found] == [[V.sep, 4, 9, V.sep], [4], [], [5, 6]]


def test_position_prediction_has_the_batches_and_the_start_of_ddot():
    for method in METHODS[1:]:
        same = DDOT(terminal=method.terminal)
        for texts in (list(examples()), [located(example) for example in examples()]):
            assert equal(batch(method, texts), batch(same, texts))
            assert equal(method.start(texts, L, row_keys(0, 12), V), same.start(texts, L, row_keys(0, 12), V))


def _mask():
    return torch.tensor([V.mask])


def first_look(net, slots):
    """The velocity seen at t = 1 with nothing but the prompt, by hand."""
    x = torch.where(slots.kind == PROMPT, slots.x_0, V.mask)
    return net.read(State(x, slots.z_T, slots.hint, slots.gap_length, torch.ones_like(slots.t)))[1]


@pytest.mark.parametrize("predict_clean", [True, False])
def test_position_prediction_loss_is_lpos_at_one_plus_tokens_at_the_predicted_positions(predict_clean):
    net, method = network(predict_clean=predict_clean), PositionPrediction(position_weight=TokenUnitWeight(0.3))
    slots = batch(method, [located(example) for example in examples()])
    losses = method.loss(net, slots, 0.7)
    velocity = first_look(net, slots)
    lpos = ((velocity - (slots.z_0 - slots.z_T)) ** 2).mean() * (L / 2) ** 2 / 1.09
    torch.testing.assert_close(losses.position, lpos.detach())

    masked = (slots.u < net.noise.masked_share(slots.t)[:, None]) & (slots.kind != PROMPT)
    x, z = torch.where(masked, V.mask, slots.x_0), (slots.z_T + velocity).detach()
    hidden = net.read(State(x, z, slots.hint, slots.gap_length, slots.t))[0][masked]
    log_p = torch.log_softmax(net.logits(hidden)[:, : V.size].index_fill(1, _mask(), -1e9), -1)
    token = -log_p.gather(1, slots.x_0[masked][:, None]).sum() / slots.x_0.numel()
    torch.testing.assert_close(losses.token, token.detach())
    torch.testing.assert_close(losses.total, token + 0.7 * lpos)

    later = method.loss(net, dataclasses.replace(slots, t=slots.t / 2), 0.7)
    assert later.position == losses.position  # one look, whatever t
    assert later.token != losses.token


def test_position_prediction_tokens_do_not_pull_at_positions():
    net, method = network(), PositionPrediction()
    method.loss(net, batch(method), 0.0).total.backward()
    assert not net.velocity.weight.grad.any()
    net.zero_grad()
    method.loss(net, batch(method), 1.0).total.backward()
    assert net.velocity.weight.grad.any()


def test_position_prediction_goes_where_the_first_look_says():
    net, method, prompts = network(), PositionPrediction(), list(examples())
    start = method.start(prompts, L, row_keys(4, 12), V)
    with torch.no_grad():
        expected = start.z + net(start).velocity
    seen = states(method, net, prompts)
    torch.testing.assert_close(seen[0].z, expected)
    assert not torch.equal(seen[0].z, start.z)
    assert [text.tolist() for text in method.texts(seen[-1], V)] == [
        [token for _, token in sorted(zip(z, x, strict=True), key=lambda pair: pair[0]) if token != V.pad]
        for z, x in zip(seen[-1].z.tolist(), seen[-1].x.tolist(), strict=True)
    ]


def test_position_prediction_hears_what_is_told_of_gaps():
    net, method, prompts = network(), PositionPrediction(), list(examples())
    glued = [dataclasses.replace(p, hint=np.where(p.is_prompt, GLUED, NOT_PROMPT)) for p in prompts]
    free, told = (states(method, net, some)[0] for some in (prompts, glued))
    assert (told.hint[told.is_prompt] == GLUED).all()
    assert not torch.allclose(told.z, free.z)
