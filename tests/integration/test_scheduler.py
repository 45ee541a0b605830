"""Batches of a fixed number of rows: an answer has the same bits alone, in a list, and in any order of the list."""

import dataclasses
import itertools
import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import ddot
from ddot.core.absorbing import CleanToken, ScoreEntropy
from ddot.core.chunks import in_chunks
from ddot.data.tokenizer import learn_bpe
from ddot.evaluation.speed.infill import varied
from ddot.infill.engine import Shape
from ddot.infill.jsonl import fill_file
from ddot.infill.model import Model
from ddot.infill.scheduler import chunks, on_threads, one_thread
from ddot.infill.settings import Settings
from ddot.infill.template import parse
from ddot.infill.view import view
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.dit import DiTConfig
from ddot.network.llama import LlamaConfig

pytestmark = pytest.mark.usefixtures("few_candidates")
SENTENCES = [
    "The lamp in the hall was lit, and the door stood open.",
    "Nobody answered at first; then a dog barked.",
    "the door , it stood open .",
]
TEXTS = [
    "The lamp ___ was lit.",
    "Nobody ___{2,5} at first; ___ barked ___{1}.",
    "___",
    "a ___{0} b",
    "the door , it ___ open .",  # marks stand apart here: a group of its own
    " ".join(f"hall{i} ___{{1,2}}" for i in range(9)),  # several windows
    "Nobody ___ the hall ___ open, and ___.",
]
TOKENIZER = learn_bpe(SENTENCES * 4, 360)
V = TOKENIZER.vocabulary
TRUNK = LlamaConfig(width=32, blocks=2, heads=4, key_heads=2, inner_width=64, vocabulary=V.rows)
NETWORKS = {
    "lengths": DenoiserConfig.extended(TRUNK, V),
    "written": dataclasses.replace(DenoiserConfig.extended(TRUNK, V), order="outline"),
    "no lengths": DenoiserConfig(trunk=TRUNK, vocabulary=V, score=CleanToken(), predict_clean=True),
    "scores": DenoiserConfig(
        trunk=DiTConfig(width=32, blocks=1, heads=2, vocabulary=V.size, condition_width=8),
        vocabulary=V,
        score=ScoreEntropy(V.size),
    ),
}
FOUR = Shape(rows=4, multiple=16, logit_chunk=8)


def network(name="lengths", shape=FOUR):
    torch.manual_seed(3)
    denoiser = Denoiser(NETWORKS[name]).eval()
    for parameter in denoiser.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return Model(denoiser, TOKENIZER, name, threads=2, shape=shape)


@pytest.fixture(scope="module", params=NETWORKS)
def model(request):
    return network(request.param)


def bits(found):
    return [(each.text, each.fills, each.score.hex()) for each in found]


@pytest.mark.parametrize(
    "settings",
    [{}, {"n": 2, "temperature": 0.9, "top_p": 0.8}, {"terminal": "random"}, {"terminal": "grid", "temperature": 1.0}],
    ids=str,
)
def test_an_answer_has_the_same_bits_alone_and_in_any_list(model, settings):
    settings = {"steps": 3, "seed": 5, **settings}
    alone = {text: bits(model.infill(text, **settings)) for text in TEXTS}
    for shift, turn in ((0, 1), (3, -1)):
        texts = [*TEXTS[shift:], *TEXTS[:shift]][::turn]
        assert [bits(found) for found in model.infill(texts, **settings)] == [alone[text] for text in texts]


def test_texts_with_settings_of_their_own_share_batches(model):
    asked = [
        {"text": text, "n": 1 + i % 2, "seed": i, "steps": 1 + i % 4, "temperature": (0.0, 0.8)[i % 2]}
        for i, text in enumerate(TEXTS * 2)
    ]
    requests = [model.request(each["text"], Settings().updated(each)) for each in asked]
    found = [[each.infill for each in answers.best] for answers in model.answers(requests)]
    assert [bits(some) for some in found] == [bits(model.infill(**each)) for each in asked]


def test_bounds_and_literals_hold_in_batches(model):
    for text, (found,) in zip(TEXTS, model.infill(TEXTS, steps=2, temperature=1.0), strict=True):
        template = parse(text)
        assert found.text == template.text(found.fills)
        assert math.isfinite(found.score)
        assert all(blank.holds(fill) for blank, fill in zip(template.blanks, found.fills, strict=True))


def test_what_is_watched_is_what_is_got(model):
    for terminal in (None, "grid"):
        (found,) = model.infill(TEXTS[1], steps=3, terminal=terminal)
        *_, last = model.stream(TEXTS[1], steps=3, terminal=terminal)
        assert "".join(found.text.split()) == "".join(last.text.split())


def test_wider_rows_of_one_are_what_a_batch_has():
    """[pad]s at the end change the numbers, other rows do not: the width is what a text itself asks for."""
    one, four = network(shape=Shape(1, 16)), network()
    for a, b in zip(one.infill(TEXTS, steps=3), four.infill(TEXTS, steps=3), strict=True):
        assert a[0].text == b[0].text
        assert a[0].score == pytest.approx(b[0].score, abs=1e-4)


def test_the_denoiser_is_left_as_it_was():
    model = network()
    assert (model.denoiser.chunk, model.engine.model.chunk) == (None, FOUR.logit_chunk)
    assert model.engine.model.trunk is model.denoiser.trunk


def test_batches_are_full_and_always_of_one_size():
    model, rows = network(), []
    forward = model.engine.model.read
    model.engine.model.read = lambda state, *how: rows.append(len(state.x)) or forward(state, *how)
    model.infill([f"The lamp {number} ___{{2}} lit." for number in range(10, 50)], steps=2)
    assert rows == [4] * 30  # ten batches: lengths once, tokens in two steps
    rows.clear()
    model.infill(["The lamp ___{2} lit."] * 40, steps=2)
    assert rows == [4] * (1 + 2)  # the same text is planned and sampled once


def test_few_texts_are_at_work_however_many_wait():
    begun, sizes = [], []

    def texts():
        for number in itertools.count():
            begun.append(number)
            yield number

    for taken, _ in enumerate(itertools.islice(on_threads(texts(), str, 3), 30), 1):
        assert len(begun) <= taken + 4
    for chunk in itertools.islice(chunks(texts(), 6), 3):
        sizes.append(len(chunk))
    assert sizes == [6, 6, 6]


def test_files_are_filled_in_batches_with_bad_lines_in_order(tmp_path):
    model = network()
    lines = [{"id": i, "text": text, "seed": i, "steps": 1 + i % 3} for i, text in enumerate(TEXTS * 3)]
    lines[4] = {"id": 4, "text": "no gap"}
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines) + "{no json\n")
    summary = fill_file(model, source, output)
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert (summary.lines, summary.errors, summary.interrupted) == (22, 2, False)
    assert "there is no blank" in found[4]["error"]
    assert "is not JSON" in found[-1]["error"]
    for line, answer in zip(lines, found, strict=False):
        assert answer["id"] == line["id"]
        if "error" not in answer:
            (alone,) = model.infill(line["text"], seed=line["seed"], steps=line["steps"])
            assert (answer["text"], answer["score"]) == (alone.text, alone.score)
            assert answer["seconds"] >= 0


def test_marks_that_stand_apart_are_a_group_of_their_own():
    model = network()
    tokenised = [model.engine.is_tokenised(view(parse(text), TOKENIZER, located=True)) for text in TEXTS]
    assert {True, False} <= set(tokenised)


def test_a_number_of_threads_is_set_back_whoever_comes_first():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    barrier = threading.Barrier(2)

    def work(_):
        with one_thread:
            barrier.wait()
        barrier.wait()

    try:
        with ThreadPoolExecutor(2) as pool:
            for _ in range(6):
                list(pool.map(work, range(2)))
                with one_thread:
                    assert torch.get_num_threads() == 1
                assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 20])
def test_portions_have_one_size_and_nothing_is_lost(count):
    a, b = torch.arange(3.0 * count).view(count, 3), torch.arange(count)
    sizes = []

    def work(a, b):
        sizes.append(len(a))
        return a.sum(-1) + b, b

    for size in (None, 8):
        sums, same = in_chunks(work, size, a, b)
        assert torch.equal(sums, a.sum(-1) + b)
        assert torch.equal(same, b)
    assert sizes[1:] == [8] * math.ceil(count / 8) or count == 0


def test_compiling_is_refused_where_it_does_not_pay():
    with pytest.raises(ValueError, match="compiling pays on a GPU only, not on cpu"):
        ddot.load(device="cpu", compile=True)


def test_the_sentences_of_the_bench_differ_and_have_blanks():
    texts = varied(54)
    assert len(set(texts)) == 54
    assert all(len(parse(text).blanks) == 1 for text in texts)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="wants a GPU")
def test_on_a_gpu_an_answer_has_the_same_bits_alone_and_in_any_list():
    model = ddot.load(device="cuda")
    texts = varied(100)
    for settings in ({}, {"temperature": 0.9, "top_p": 0.9, "n": 2}, {"terminal": "random", "steps": 4}):
        forth = [bits(found) for found in model.infill(texts, **settings)]
        order = np.random.default_rng(0).permutation(len(texts)).tolist()
        mixed = model.infill([texts[i] for i in order], **settings)
        assert [bits(found) for found in mixed] == [forth[i] for i in order]
        for i in order[:5]:
            assert bits(model.infill(texts[i], **settings)) == forth[i]
