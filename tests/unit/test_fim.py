"""Fill in the middle over HTTP, with a model whose answers are known: what is asked of it, and what becomes of them."""

import dataclasses

import pytest

pytest.importorskip("fastapi", reason="serving needs the extra `serve`")
from ddot.data.tokenizer import learn_bpe
from ddot.infill.answers import Answer, Answers, Infill
from ddot.infill.model import Model
from ddot.infill.scheduler import result_of
from ddot.infill.template import Blank
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.llama import LlamaConfig
from ddot.serve import llama_cpp, openai
from ddot.serve.requests import CompletionRequest, EditorRequest

TOKENIZER = learn_bpe(["The lamp in the hall was lit, and the door stood open."] * 4, 320)


class Scripted(Model):
    """Gives known fills to every request, one for each of n, and remembers what it was asked."""

    def __init__(self, *fills):
        trunk = LlamaConfig(16, 0, 2, 1, 32, TOKENIZER.vocabulary.rows)
        super().__init__(Denoiser(DenoiserConfig.extended(trunk, TOKENIZER.vocabulary)), TOKENIZER, "scripted")
        self.fills, self.asked = fills, []

    def steps(self, request):
        self.asked.append(request)
        answers = []
        for number, fill in enumerate(self.fills[: request.settings.n]):
            tokens = len(TOKENIZER.encode(fill))
            answers.append(Answer(Infill(request.template.text([fill]), [fill], -1.0), number, tokens))
        yield from ()
        return Answers(answers, prompt_tokens=7, prefill_seconds=0.5, seconds=2.0)


def edited(model, **asked):
    request = EditorRequest(**{"input_prefix": "The ", "input_suffix": " hall", **asked})
    return llama_cpp.reply(model, request, result_of(llama_cpp.fill(model, request)))


def completed(model, **asked):
    request = CompletionRequest(**asked)
    return openai.reply(model, request, result_of(openai.fill(model, request)))


def test_an_editor_gets_the_fill_between_prefix_and_suffix():
    model = Scripted("lamp in the")
    found = edited(
        model,
        prompt="old",
        input_extra=[{"text": "a\n\n"}, {"text": "b"}],
        n_predict=9,
        t_max_predict_ms=250,
        seed=3,
    )
    (request,) = model.asked
    assert request.template.literals == ("a\nb\nThe old", " hall")
    assert (request.template.blanks, request.max_tokens) == ((Blank(0),), 9)
    assert request.seconds == 0.25
    assert (request.settings.seed, request.settings.n) == (3, 1)  # an editor shows one
    assert (found["content"], found["stop_type"], found["truncated"]) == ("lamp in the", "eos", False)
    assert found["tokens_predicted"] == len(TOKENIZER.encode("lamp in the"))
    assert (found["timings"]["prompt_ms"], found["timings"]["predicted_ms"]) == (500, 1500)
    assert found["timings"]["predicted_per_second"] == round(found["tokens_predicted"] / 1.5, 3)


@pytest.mark.parametrize("n_predict", [None, -1, 128, 5000])
def test_no_bound_and_one_beyond_the_slots_are_none(n_predict):
    model = Scripted("lamp")
    edited(model, n_predict=n_predict, t_max_predict_ms=-1)
    assert model.asked[0].max_tokens is None
    assert model.asked[0].seconds is None


def test_a_long_text_is_told_to_be_cut():
    assert edited(Scripted("lamp"), input_prefix="the lamp " * 400)["truncated"] is True
    assert edited(Scripted("lamp"), input_suffix=" the lamp" * 400)["truncated"] is True


def test_more_tokens_than_allowed_are_cut_off_between_tokens():
    text = "lamp in the hall"
    ends, count = TOKENIZER.ends(text), len(TOKENIZER.encode(text))
    for most in range(1, count + 2):
        found = edited(Scripted(text), n_predict=most)
        assert found["content"] == text[: ends[min(most, count) - 1]]
        assert found["tokens_predicted"] == min(most, count)
        assert found["stop_type"] == ("limit" if most <= count else "eos")


@pytest.mark.parametrize(
    ("stop", "text", "word"),
    [
        ("in", "lamp ", "in"),
        (["hall", "in the", "in"], "lamp ", "in"),  # the first in the text; of two at one place the shorter
        (["nowhere", ""], "lamp in the hall", ""),
        (["lamp"], "", "lamp"),
    ],
)
def test_text_ends_at_the_first_stop_string(stop, text, word):
    found = edited(Scripted("lamp in the hall"), stop=stop)
    assert (found["content"], found["stopping_word"]) == (text, word)
    assert found["stop_type"] == ("word" if word else "eos")
    assert found["tokens_predicted"] == len(TOKENIZER.encode(text))


def test_completions_have_n_choices_for_every_prompt_and_count_tokens():
    model = Scripted("lamp", "door")
    found = completed(model, prompt=["The", "Our old"], suffix=" hall", n=3, echo=True, max_tokens=40)
    assert [choice["text"] for choice in found["choices"]] == [
        prompt + fill for prompt in ("The", "Our old") for fill in ("lamp", "door", "lamp")
    ]
    assert [choice["index"] for choice in found["choices"]] == list(range(6))
    assert {choice["finish_reason"] for choice in found["choices"]} == {"stop"}
    count = {text: len(TOKENIZER.encode(text)) for text in ("lamp", "door")}
    usage = found["usage"]
    assert usage["prompt_tokens"] == 2 * 7  # tokens read
    assert usage["completion_tokens"] == 2 * (2 * count["lamp"] + count["door"])
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_completions_that_reach_their_bound_end_by_length():
    count = len(TOKENIZER.encode("lamp in"))
    assert completed(Scripted("lamp in"), prompt="a", max_tokens=count)["choices"][0]["finish_reason"] == "length"
    assert completed(Scripted("lamp in"), prompt="a", max_tokens=count + 1)["choices"][0]["finish_reason"] == "stop"
    model = Scripted("lamp in")
    (choice,) = completed(model, prompt="a", max_tokens=0)["choices"]
    assert (choice["text"], choice["finish_reason"], model.asked) == ("", "length", [])  # nobody asked the model


def test_more_answers_than_allowed_are_refused():
    with pytest.raises(ValueError, match="16"):
        openai.fill(Scripted("x"), CompletionRequest(prompt=["a"] * 6, n=3))
    with pytest.raises(ValueError, match="input_prefix"):
        llama_cpp.fill(Scripted("x"), EditorRequest())
    for settings in ({"n": 17}, {"steps": 129}, {"n": 0}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            dataclasses.asdict(EditorRequest(**settings).settings)


@pytest.mark.parametrize("asked", [{"n_cmpl": 2}, {"n_cmpl": 5}, {"n_cmpl": 2, "n": 7}, {"n": 3}])
def test_several_completions_are_a_list(asked):
    found = edited(Scripted("lamp", "door"), **asked, response_fields=["index", "content"])
    count = asked.get("n_cmpl", asked.get("n"))
    assert found == [{"index": i, "content": ("lamp", "door")[i % 2]} for i in range(count)]
