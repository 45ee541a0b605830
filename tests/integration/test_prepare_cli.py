"""`ddot prepare` and `ddot convert` as a user meets them: a corpus, a model folder, or one sentence and status 2."""

import json
import lzma
import os
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import torch
from safetensors.torch import save_file

from ddot.data.prepare import prepare
from ddot.data.shards import Corpus
from ddot.data.tokenizer import Tokenizer, learn_bpe
from ddot.network.folder import load_model

ROOT = Path(__file__).parents[2]
TEXTS = [
    "Dr. Varga keeps goats. They eat her letters.",
    "The tide won't wait, and neither will Ann's brother.",
    "Snow fell on the quay. Nobody swept it. By noon it had gone.",
]


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    learn_bpe(TEXTS, 320).save(file)
    return file


def ddot(*arguments, **environment):
    command = [sys.executable, "-m", "ddot", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}, timeout=120
    )


def documents(folder):
    """The texts of a packed corpus: a list of sentences for each document."""
    corpus, tokenizer = Corpus(folder), Tokenizer.load(folder)
    found, sentence = [], 0
    while sentence < len(corpus):
        tokens, ends = corpus.passage(sentence, 1 << 30)
        starts = [0, *ends[:-1].tolist()]
        found.append([tokenizer.decode(tokens[a:b]) for a, b in zip(starts, ends.tolist(), strict=True)])
        sentence += len(ends)
    return found


def test_sources_of_every_kind_become_one_corpus(tmp_path, tokenizer_file):
    (tmp_path / "a.txt").write_text(TEXTS[0] + "\n")
    (tmp_path / "b.jsonl.xz").write_bytes(lzma.compress(json.dumps({"text": TEXTS[1]}).encode()))
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS[2:]}), tmp_path / "c.parquet")
    sources = [tmp_path / name for name in ("a.txt", "b.jsonl.xz", "c.parquet")]
    done = ddot("prepare", *sources, "--tokenizer", tokenizer_file, "--output", tmp_path / "packed")
    assert done.returncode == 0, done.stderr
    meta = json.loads(done.stdout)
    assert (meta["documents"], meta["sentences"]) == (3, 6)
    assert documents(tmp_path / "packed") == [
        [" Dr. Varga keeps goats.", " They eat her letters."],
        [" The tide won't wait, and neither will Ann's brother."],
        [" Snow fell on the quay.", " Nobody swept it.", " By noon it had gone."],
    ]


def test_forms_limits_and_texts_that_are_left_out(tmp_path, tokenizer_file):
    (tmp_path / "some.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in TEXTS * 2))
    # In the benchmark's tokenised form, as the held-out items have it.
    held_out = ["the tide won 't wait , and neither will ann 's brother .", "Nobody swept it"]
    (tmp_path / "held.jsonl").write_text("\n".join(json.dumps({"words": item.split(" ")}) for item in held_out))
    sources = [str(tmp_path / "some.jsonl")]
    more = {"form": "news", "field": "body", "without": [tmp_path / "held.jsonl"], "limit": 3}
    prepare(sources, tokenizer_file, tmp_path / "news", **more)
    assert documents(tmp_path / "news") == [
        [" Dr. Varga keeps goats .", " They eat her letters ."],
        [" Snow fell on the quay .", " By noon it had gone ."],
    ]
    prepare(sources, tokenizer_file, tmp_path / "apart", form="reviews", field="body", limit=1, apart=True)
    assert documents(tmp_path / "apart") == [[" dr. varga keeps goats ."], [" they eat her letters ."]]
    prepare(sources, tokenizer_file, tmp_path / "lines", split="lines", field="body", limit=2)
    assert documents(tmp_path / "lines") == [[" " + TEXTS[0]], [" " + TEXTS[1]]]


@pytest.fixture
def closed_port():
    """A local address where nobody answers."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def assert_one_sentence(done, *parts):
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for part in parts:
        assert part in done.stderr


def test_a_hub_that_cannot_be_reached_is_one_sentence(tmp_path, tokenizer_file, closed_port):
    done = ddot(
        *("prepare", "hub:yelp", "--tokenizer", tokenizer_file, "--output", tmp_path / "packed"),
        HF_ENDPOINT=closed_port,
        NO_PROXY="127.0.0.1",
    )
    assert_one_sentence(done, "hub:yelp", closed_port, "cannot be read")
    assert list(tmp_path.iterdir()) == []


def test_a_bad_line_is_named_and_nothing_is_left(tmp_path, tokenizer_file):
    (tmp_path / "bad.jsonl").write_text('{"text": "fine"}\n{"text": oops}\n')
    done = ddot("prepare", tmp_path / "bad.jsonl", "--tokenizer", tokenizer_file, "--output", tmp_path / "packed")
    assert_one_sentence(done, "bad.jsonl, line 2")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]


@pytest.mark.parametrize(
    ("change", "kind", "sentence"),
    [
        ({"split": "words"}, ValueError, "--split is 'words'.* sentences, lines"),
        ({"form": "old"}, ValueError, "--form is 'old'.* natural, news, reviews"),
        ({"limit": 0}, ValueError, "--limit is 0.*at least 1"),
        ({"shard_bytes": 0}, ValueError, "--shard-mb is 0"),
        ({"without": [Path("no.jsonl")]}, FileNotFoundError, r"no benchmark file at no\.jsonl"),
        ({"without": ["lines"]}, ValueError, r'some\.txt, line 1: expected a JSON object with "words"'),
        ({"tokenizer": Path("no.json")}, FileNotFoundError, r"no tokenizer at no\.json"),
        ({"sources": ["some", "no.txt"]}, FileNotFoundError, r"no text at no\.txt"),
    ],
)
def test_mistakes_are_told_before_anything_is_packed(tmp_path, tokenizer_file, change, kind, sentence):
    text = tmp_path / "some.txt"
    text.write_text(TEXTS[0])
    options = {"sources": [str(text)], "tokenizer": tokenizer_file, "output": tmp_path / "packed"} | change
    options["sources"] = [str(text) if source == "some" else source for source in options["sources"]]
    if options.get("without") == ["lines"]:
        options["without"] = [text]
    with pytest.raises(kind, match=sentence):
        prepare(**options)
    assert [path.name for path in tmp_path.iterdir()] == ["some.txt"]


@pytest.mark.slow
def test_checkpoint_to_model_folder(tmp_path, tokenizer_file):
    """A Llama folder, pruned to a corpus, and what is said of one that is incomplete."""
    tokenizer = Tokenizer.load(tokenizer_file)
    source = tmp_path / "llama"
    source.mkdir()
    tokenizer.save(source / "tokenizer.json")
    about = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    about |= {"intermediate_size": 48, "tie_word_embeddings": True}
    (source / "config.json").write_text(json.dumps(about))
    shapes = {"embed_tokens": (tokenizer.vocabulary.base, 32), "norm": (32,), "layers.0.input_layernorm": (32,)}
    shapes |= {f"layers.0.self_attn.{part}_proj": (32, 32) for part in "qkvo"}
    shapes |= {"layers.0.mlp.gate_proj": (48, 32), "layers.0.mlp.up_proj": (48, 32)}
    shapes |= {"layers.0.mlp.down_proj": (32, 48), "layers.0.post_attention_layernorm": (32,)}
    weights = {f"model.{name}.weight": torch.randn(shape) for name, shape in shapes.items()}
    save_file(weights, source / "model.safetensors")
    (tmp_path / "some.txt").write_text(TEXTS[0])
    prepare([str(tmp_path / "some.txt")], tokenizer_file, tmp_path / "packed")

    done = ddot("convert", source, tmp_path / "ours", "--keep", tmp_path / "packed")
    assert done.returncode == 0, done.stderr
    model, encoder = load_model(tmp_path / "ours")
    assert encoder.vocabulary.base < tokenizer.vocabulary.base
    goats = tokenizer.encoder.encode(" goats").ids
    kept = torch.tensor([encoder.encoder.token_to_id(tokenizer.encoder.id_to_token(token)) for token in goats])
    torch.testing.assert_close(model.trunk.embed(kept[None])[0], weights["model.embed_tokens.weight"][goats])

    done = ddot("convert", source, tmp_path / "alike", "--keep", tmp_path / "ours")  # to the vocabulary of a model
    assert done.returncode == 0, done.stderr
    alike, words = load_model(tmp_path / "alike")
    assert words.encoder.to_str() == encoder.encoder.to_str()
    torch.testing.assert_close(alike.trunk.embed(kept[None]), model.trunk.embed(kept[None]), rtol=0, atol=0)

    del weights["model.layers.0.mlp.up_proj.weight"]
    save_file(weights, source / "model.safetensors")
    done = ddot("convert", source, tmp_path / "broken")
    assert_one_sentence(done, "'layers.0.mlp.up_proj.weight'")
    assert not list(tmp_path.glob("broken*"))
