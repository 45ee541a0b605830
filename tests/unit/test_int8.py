"""8-bit weights: what is stored comes back within half a step; products in int8 agree with float32."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ddot.core.absorbing import ScoreEntropy
from ddot.core.codes import NOT_PROMPT, UNKNOWN
from ddot.core.records import State, Vocabulary
from ddot.data.tokenizer import learn_bpe
from ddot.infill.scheduler import one_thread
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.dit import DiTConfig
from ddot.network.embedded import about, shrink
from ddot.network.folder import load_model, save_model, without_values
from ddot.network.int8 import SCALE, Int8Linear, available, compress, decompress, most_exact, run_in_int8, to_int8
from ddot.network.llama import LlamaConfig
from ddot.network.places import is_compressed

V = Vocabulary(125)
NETWORKS = [
    DenoiserConfig.extended(LlamaConfig(32, 2, 2, 1, 64, V.rows), V),
    DenoiserConfig(DiTConfig(32, 2, 2, V.rows, 16), V, ScoreEntropy(states=126)),
]
needs_kernels = pytest.mark.skipif(not available(), reason="this build of torch has no 8-bit kernels")


def random_network(config: DenoiserConfig) -> Denoiser:
    torch.manual_seed(0)
    model = Denoiser(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return model.eval()


def some_state(L: int = 12) -> State:
    x = torch.randint(0, V.base, (1, L))
    x[0, 3:8] = V.mask
    hint = torch.where(x == V.mask, NOT_PROMPT, UNKNOWN)
    return State(x, torch.linspace(-1, 1, L)[None], hint, torch.full_like(x, -1), torch.tensor([0.5]))


@given(st.integers(1, 6), st.integers(1, 40), st.floats(1e-6, 1e4), st.integers(0, 99))
def test_rows_come_back_within_half_a_step(n, k, size, seed):
    rows = size * torch.randn(n, k, generator=torch.Generator().manual_seed(seed))
    whole, scale = to_int8(rows)
    assert whole.dtype == torch.int8
    assert ((whole * scale[:, None] - rows).abs() <= scale[:, None] * 0.5001).all()


@needs_kernels
@pytest.mark.parametrize("most", [127, None], ids=["7 bits", "what the processor can"])
@pytest.mark.parametrize("fine", [False, True])
@given(st.integers(1, 9), st.sampled_from([16, 64, 96]), st.integers(1, 33), st.integers(0, 99))
def test_products_agree_with_float32(most, fine, rows, k, n, seed):
    chance = torch.Generator().manual_seed(seed)
    x, w = torch.randn(rows, k, generator=chance), torch.randn(n, k, generator=chance)
    x *= torch.logspace(-3, 3, rows)[:, None]  # a large row does not spoil a small one
    whole, scale = to_int8(w)
    layer = Int8Linear(whole, scale, fine=fine)
    layer.most = most or layer.most
    exact = x.double() @ (whole * scale[:, None]).double().T
    # An activation is off by half a step at most, of which there are so many from 0 to the greatest of its row.
    half = layer.most // 2
    step = x.abs().amax(-1, keepdim=True) / half
    bound = 0.51 * step / (2 * half if fine else 1) * (whole.abs() * scale[:, None]).sum(-1)
    bound = bound + 1e-5 * x.abs() @ (whole.abs() * scale[:, None]).T  # sums in float32
    assert ((layer(x) - exact).abs() <= bound).all()


@needs_kernels
def test_what_lies_just_below_a_half_is_rounded_once():
    x = torch.zeros(1, 16)
    x[0, :2] = torch.tensor([63.0, 21.499998])  # as float32, 21.499998 + 64.5 is 86
    layer = Int8Linear(*to_int8(torch.eye(16)), fine=True)
    layer.most = 127
    torch.testing.assert_close(layer(x), x, atol=1 / 126, rtol=0)


@needs_kernels
@pytest.mark.parametrize(("rows", "k", "n"), [(1, 64, 32), (5, 576, 576), (16, 1536, 96), (2, 96, 4000)])
def test_this_processor_adds_products_exactly(rows, k, n):
    """The largest numbers there are, all of one sign: 16 bits hold no two products of 255 and 127."""
    whole, x = torch.full((n, k), 127, dtype=torch.int8), torch.ones(rows, k)
    half = most_exact() // 2
    assert (Int8Linear(whole, torch.ones(n))(x * half) == half * 127 * k).all()


@needs_kernels
@pytest.mark.parametrize(
    "x", [[-1.0, 0.3, 1.0], [0.0, 0.0, 0.0], [2.0, 2.0, 2.0], [-3.0, -1.0, -2.0], [-1e-30, 0, 1e-30]]
)
def test_ends_of_the_range_do_not_wrap(x):
    identity = torch.eye(16)[:, :16]
    row = torch.zeros(1, 16)
    row[0, :3] = torch.tensor(x)
    out = Int8Linear(*to_int8(identity))(row)
    assert torch.allclose(out, row, atol=0.02 * float(row.abs().max()) + 1e-12)


@needs_kernels
@pytest.mark.parametrize("config", NETWORKS, ids=["llama", "dit"])
def test_network_in_int8_stays_close(config):
    model = random_network(config)
    small = without_values(config)
    run_in_int8(small, compress(model.state_dict()))
    state = some_state()
    with torch.inference_mode():
        exact, rough = model(state), small.eval()(state)
    assert torch.isfinite(rough.log_score[:, : V.base]).all()
    agree = (exact.log_score.softmax(-1) - rough.log_score.softmax(-1)).abs().sum(-1) / 2
    assert float(agree.max()) < 0.1
    assert torch.allclose(exact.velocity, rough.velocity, atol=0.2 * float(exact.velocity.abs().max()))


@needs_kernels
def test_a_row_has_the_same_bits_however_many_there_are():
    config = DenoiserConfig.extended(LlamaConfig(192, 2, 3, 1, 256, V.rows), V)
    small = without_values(config)
    run_in_int8(small, compress(random_network(config).state_dict()))
    torch.manual_seed(1)
    x = torch.randint(0, V.base, (20, 1))
    hint = torch.full_like(x, NOT_PROMPT)
    state = State(x, torch.rand(20, 1), hint, torch.full_like(x, -1), torch.rand(20))
    with torch.inference_mode(), one_thread:
        together = small.eval().read(state)[0]
        for rows in ([4], [0, 15], [1, 2, 6], [0, 2, 3, 5], list(range(3, 20))):
            some = State(*(each[rows] for each in (x, state.z, hint, state.gap_length, state.t)))
            assert torch.equal(small.read(some)[0], together[rows])


def test_storage_round_trip():
    weights = random_network(NETWORKS[0]).state_dict()
    stored = compress(weights)
    back = decompress(stored)
    assert back.keys() == weights.keys()
    for name, weight in weights.items():
        step = stored[name + SCALE][:, None] if name + SCALE in stored else weight.abs() / 512 + 1e-4
        assert ((back[name] - weight).abs() <= step).all(), name


def test_shrunk_folder_loads_and_says_so(tmp_path):
    tokenizer = learn_bpe(["a small boat", "a green garden"], 300)
    v = tokenizer.vocabulary
    config = DenoiserConfig.extended(LlamaConfig(32, 1, 2, 1, 64, v.rows), v)
    (tmp_path / "big").mkdir()
    save_model(Denoiser(config).state_dict(), config, tokenizer, {"recipe": "none"}, tmp_path / "big")
    shrink(tmp_path / "big", tmp_path / "small", shard_bytes=20_000)
    assert len(list((tmp_path / "small").glob("model-*.safetensors"))) > 1
    assert is_compressed(tmp_path / "small")
    assert not is_compressed(tmp_path / "big")
    assert about(tmp_path / "small")["stored"] == "int8"
    again, _ = load_model(tmp_path / "small")
    assert again.config == config
    with pytest.raises(ValueError, match="exists already"):
        shrink(tmp_path / "big", tmp_path / "small")


@pytest.mark.parametrize("config", NETWORKS, ids=["llama", "dit"])
def test_velocity_is_float32_under_autocast(config):
    """bf16 has 8 bits: among 1024 slots the positions would be whole slots off."""
    model = random_network(config)
    state = some_state()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        h, velocity = model.read(state)
    assert velocity.dtype == torch.float32
    exact = (h.float() @ model.velocity.weight[0] + model.velocity.bias).detach()
    if config.predict_clean:
        exact = exact / (model.scale(state.z.shape[1]) * 0.5)
    assert torch.allclose(velocity, exact, rtol=1e-4, atol=1e-6)
