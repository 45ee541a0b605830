"""Speed is not tested; what is measured is."""

import pytest

from ddot.data.tokenizer import learn_bpe
from ddot.evaluation.speed import infill
from ddot.evaluation.tables import render
from ddot.infill.model import Model
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig


def test_methods_are_measured_on_the_same_texts_and_left_context_reads_as_many_slots_again(monkeypatch):
    tokenizer = learn_bpe(infill.SENTENCES, 400)
    config = DenoiserConfig.extended(LlamaConfig(32, 1, 2, 1, 64, tokenizer.vocabulary.rows), tokenizer.vocabulary)
    model, looked = Model(Denoiser(config), tokenizer), []
    model.denoiser.register_forward_pre_hook(lambda _, given: looked.append(tuple(given[0].x.shape)))
    monkeypatch.setattr(infill, "load", lambda *_: model)
    rows = infill.measure_methods(steps=(1, 3), texts=2, rounds=1)
    assert [(row["steps"], row["sampler"]) for row in rows] == [(K, name) for K in (1, 3) for name in infill.METHODS]
    assert {row["times_lc"] for row in rows if row["sampler"] == "lc"} == {1.0}
    assert set(looked) == {(2, 64), (2, 128)}
    assert "| ddot-u | cpu | 2 |" in render(rows, "speed")
    with pytest.raises(ValueError, match="steps is 0; at least 1 is wanted"):
        infill.measure_methods(steps=(0,))
