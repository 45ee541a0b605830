"""Four hundred mistakes over all commands: each is told in a sentence, at once, and nothing is written."""

import gzip
import json
import os
import re
import shutil
import signal
import sys

import jaxtyping
import pytest

from ddot.cli import status

PYTHON = {"None", "True", "False", "str", "int", "float", "dict", "tuple", "fills=", "precision=", "top_p"}
INFILL = ("infill", "--model", "{model}")
FILE = (*INFILL, "--output", "out.jsonl", "--input")
TO = (*INFILL, "--input", "good.jsonl", "--output")
TEXT = "The boat ___ at dawn."

TEMPLATES = [
    "", " ", "\n", "\t\r", "no blank", "__", r"\___", r"\\\___", "___{", "___{3", "___{}", "___{,}", "___{a}",
    "___{-1}", "___{1,2,3}", "___{65}", "___{0,65}", "___{9,2}", "___{1.5}", "___{ }", "___{999999999999}",
    "a [Mask] b", "<MASK>", "[ blank ]", "<extra_id_>", "\udc80 ___",
]  # fmt: skip
VALUES = {
    "--n": ["0", "-1", "101", "1.5", "x", ""],
    "--steps": ["0", "-3", "1001", "x", "1e3"],
    "--seed": ["1.5", "x", ""],
    "--temperature": ["-1", "10.5", "nan", "inf", "x"],
    "--top-p": ["0", "-0.1", "1.5", "nan", "x"],
    "--terminal": ["left", "", "GRID"],
    "--device": ["tpu", "", "cuda:99", "gpu"],
    "--precision": ["int4", "", "fp16", "INT8"],
    "--threads": ["0", "-1", "x"],
    "--avoid": ["", " ", "!?"],
    "--model": [
        "nowhere",
        "good.jsonl",
        ".",
        "no/such/model",
        "meta_list",
        "meta_text",
        "no_weights",
        "cut",
        "~nobody/x",
    ],
    "--trace": [".", "no/folder/trace.json", "folder"],
    "--lock": ["", " "],
}
INFILLS = [
    ("infill",),
    (*INFILL, "--nothing"),
    (*INFILL, "- ___ milk"),
    ("info", "--model", "nowhere"),
    ("info", "{model}", "--model", "{model}"),
    (*INFILL, TEXT, "--free"),
    (*INFILL, " ", "--free"),
    (*INFILL, TEXT, "--lock", "a", "--lock", "b"),
    (*INFILL, TEXT, TEXT, "--lock", "a"),
    (*INFILL, "--lock", "a"),
    (*INFILL, TEXT, TEXT, "--trace", "t.json"),
    (*INFILL, TEXT, "--n", "2", "--trace", "t.json"),
    (*INFILL, TEXT, "--lock", "-", "--trace", "t.json"),
    (*INFILL, TEXT, "--compile"),
    (*INFILL, TEXT, "bad"),
    (*INFILL, "--output", "out.jsonl"),
    (*TO, "out.jsonl", TEXT),
    (*TO, "out.jsonl", "--free"),
    (*TO, "out.jsonl", "--json"),
    (*TO, "out.jsonl", "--lock", "a"),
    (*TO, "out.jsonl", "--trace", "t.json"),
    (*TO, "out.jsonl", "--compile"),
    (*TO, "out.jsonl", "--precision", "int4"),
    (*TO, "out.jsonl", "--device", "tpu"),
    (*TO, "out.jsonl", "--n", "0"),
    (*TO, "good.jsonl"),
    (*TO, "."),
    (*TO, "folder"),
    (*TO, "no/folder/out.jsonl"),
    (*TO, "diary.txt"),
    (*TO, "bad.gz"),
    (*TO, "pipe"),
    (*TO, "other.jsonl"),
    (*TO, "locked/out.jsonl"),
    (*FILE, "missing.jsonl"),
    (*FILE, "."),
    (*FILE, "binary.jsonl"),
    (*FILE, "diary.txt"),
    (*FILE, "latin.txt"),
    (*FILE, "diary.txt.gz"),
    (*FILE, "array.json"),
    (*FILE, "lines.json"),
    (*INFILL, "The", "boat", "___", "at", "dawn."),
    (*INFILL, "good.jsonl"),
    (*FILE, "bad.gz"),
    (*FILE, "bad.xz"),
    (*FILE, "cut.gz"),
    (*FILE, "/dev/zero"),
    (*FILE, "/dev/full"),
]
OTHERS = [
    ("nothing",),
    ("infil", TEXT),
    ("lengths",),
    ("lengths", "no blank", "--model", "{model}"),
    ("lengths", "", "--model", "{model}"),
    ("lengths", TEXT, "--model", "nowhere"),
    ("lengths", TEXT, "--model", "{model}", "--rollouts", "0"),
    ("lengths", TEXT, "--model", "{model}", "--rollouts", "1.5"),
    ("lengths", TEXT, "--model", "{model}", "--rollouts", "999999999"),
    ("lengths", TEXT, "--model", "{model}", "--device", "tpu"),
    ("score", TEXT),
    ("score", TEXT, "--fills", "a", "--fills", "b", "--model", "{model}"),
    ("score", "no blank", "--fills", "a", "--model", "{model}"),
    ("score", "a ___{2}", "--fills", "a", "--model", "{model}"),
    ("score", TEXT, "--fills", "", "--model", "{model}"),
    ("score", TEXT, "--fills", "\udc80", "--model", "{model}"),
    ("score", TEXT, "--fills", "a", "--model", "nowhere"),
    ("score", TEXT, "--fills", "a", "--model", "{model}", "--steps", "0"),
    ("score", TEXT, "--fills", "a", "--model", "{model}", "--precision", "x"),
    ("watch",),
    ("watch", "no blank", "--model", "{model}"),
    ("watch", TEXT, "--model", "{model}", "--steps", "0"),
    ("watch", TEXT, "--model", "{model}", "--delay", "-1"),
    ("watch", TEXT, "--model", "{model}", "--terminal", "left"),
    ("watch", TEXT, "--model", "nowhere"),
    ("watch", "long " * 400 + "___", "--model", "{model}"),
    ("watch", TEXT, "--model", "{model}", "--trace", "no/folder/t.json"),
    ("info", "nowhere"),
    ("info", "good.jsonl"),
    ("info", "folder"),
    ("info", "meta_list"),
    ("info", "meta_text"),
    ("info", "cut"),
    ("plot",),
    ("plot", "nothing"),
    ("plot", "trajectories"),
    ("plot", "trajectories", TEXT, "--from", "trace.json"),
    ("plot", "trajectories", "--from", "missing.json"),
    ("plot", "trajectories", "--from", "good.jsonl"),
    ("plot", "trajectories", "--from", "binary.jsonl"),
    ("plot", "trajectories", TEXT, "--model", "{model}", "-o", "picture.doc"),
    ("plot", "trajectories", TEXT, "--model", "{model}", "-o", "no/folder/p.png"),
    ("plot", "trajectories", "no blank", "--model", "{model}"),
    ("plot", "coupling"),
    ("plot", "coupling", ""),
    ("plot", "coupling", "a [b", "-o", "p.png"),
    ("plot", "coupling", "The [boat] sails.", "-o", "no/folder/p.png"),
    ("plot", "quality", "missing.jsonl"),
    ("plot", "quality", "binary.jsonl"),
    ("plot", "quality", "good.jsonl", "-o", "p.png"),
    ("plot", "success", "missing.jsonl"),
    ("plot", "success", "diary.txt"),
    ("plot", "cost", "missing.jsonl"),
    ("plot", "cost", "good.jsonl", "-o", "p.png"),
    ("train",),
    ("train", "toy"),
    ("train", "nothing", "--output", "run"),
    ("train", "toy", "--output", "folder/file"),
    ("train", "toy", "--output", "run", "--set", "x"),
    ("train", "toy", "--output", "run", "--set", "training.nothing=1"),
    ("train", "toy", "--output", "run", "--set", "training.steps=x"),
    ("train", "toy", "--output", "run", "--set", "training.steps=0"),
    ("train", "toy", "--output", "run", "--set", "training.rate=-1"),
    ("train", "toy", "--output", "run", "--set", "training.device=tpu"),
    ("train", "smollm2", "--output", "run"),
    ("train", "smollm2_ar", "--output", "run"),
    ("finetune",),
    ("finetune", "own.txt"),
    ("finetune", "missing.txt", "--output", "run"),
    ("finetune", "diary.txt", "--output", "run"),
    ("finetune", "latin.txt", "--output", "run"),
    ("finetune", "bad.gz", "--output", "run"),
    ("finetune", "own.txt", "--output", "folder"),
    ("finetune", "own.txt", "--output", "run", "--minutes", "0"),
    ("finetune", "own.txt", "--output", "run", "--minutes", "-5"),
    ("finetune", "own.txt", "--output", "run", "--minutes", "soon"),
    ("finetune", "own.txt", "--output", "run", "--model", "nowhere"),
    ("finetune", "own.txt", "--output", "run", "--device", "tpu"),
    ("convert",),
    ("convert", "missing", "dest"),
    ("convert", "diary.txt", "dest"),
    ("convert", "folder", "dest"),
    ("convert", "folder", "folder"),
    ("convert", "{model}", "dest", "--int8", "--keep", "{model}"),
    ("convert", "nowhere", "dest", "--int8"),
    ("convert", "{model}", "folder", "--int8"),
    ("prepare",),
    ("prepare", "missing.txt", "--tokenizer", "{model}", "--output", "packed"),
    ("prepare", "latin.txt", "--tokenizer", "{model}", "--output", "packed"),
    ("prepare", "binary.txt", "--tokenizer", "{model}", "--output", "packed"),
    ("prepare", "own.txt", "--tokenizer", "nowhere", "--output", "packed"),
    ("prepare", "own.txt", "--tokenizer", "diary.txt", "--output", "packed"),
    ("prepare", "own.txt", "--tokenizer", "{model}", "--output", "folder"),
    ("prepare", "own.txt", "--tokenizer", "{model}", "--output", "packed", "--split", "x"),
    ("prepare", "own.txt", "--tokenizer", "{model}", "--output", "packed", "--form", "x"),
    ("prepare", "good.jsonl", "--tokenizer", "{model}", "--output", "packed", "--field", "x"),
    ("prepare", "diary.md", "--tokenizer", "{model}", "--output", "packed"),
    ("evaluate",),
    ("evaluate", "nowhere", "--bench", "folder", "--output", "rows.jsonl"),
    ("evaluate", "{model}", "--bench", "nowhere", "--output", "rows.jsonl"),
    ("evaluate", "{model}", "--bench", "folder", "--output", "rows.jsonl"),
    ("evaluate", "{model}", "--bench", "folder", "--output", "rows.jsonl", "--methods", "x"),
    ("tables",),
    ("tables", "missing.jsonl"),
    ("tables", "binary.jsonl"),
    ("tables", "diary.txt"),
    ("rescore", "missing.jsonl", "--bench", "folder", "--metrics", "bleu4"),
    ("rescore", "good.jsonl", "--bench", "folder", "--metrics", "nothing"),
    ("compare", "missing.jsonl", "--bench", "folder", "--methods", "a,b"),
    ("nats", "--bench", "nowhere", "--model", "{model}"),
    ("serve", "--port", "99999"),
    ("serve", "--port", "x"),
    ("serve", "--model", "nowhere"),
    ("bench",),
    ("bench", "nothing"),
    ("bench", "infill", "--model", "nowhere"),
    ("bench", "infill", "--device", "tpu", "--model", "{model}"),
    ("bench", "cost", "--words", "8,1", "--model", "{model}"),
    ("bench", "cost", "--blanks", "few", "--model", "{model}"),
]  # fmt: skip
# A file of rows edited by hand: one field of one row.
ROW = {
    "model": "m", "method": "infill", "dataset": "1bw-block", "split": "test", "task": "free", "steps": 16, "seed": 0,
    "items": 3, "bleu4": 40.5, "success": 99.0,
}  # fmt: skip
NO_ROWS = {
    **{f"no {name}": {key: value for key, value in ROW.items() if key != name} for name in (*list(ROW)[2:8], "model")},
    "no method": {"dataset": "1bw-block"},
    **{f"text {name}": {**ROW, name: "many"} for name in ("steps", "seed", "items", "bleu4", "seconds", "samples")},
    **{f"list {name}": {**ROW, name: [1]} for name in ("model", "task", "steps", "success", "kept", "intervals")},
    **{f"null {name}": {**ROW, name: None} for name in ("model", "method", "steps")},
    **{f"true {name}": {**ROW, name: True} for name in ("steps", "bleu4")},
    **{f"huge {name}": {**ROW, name: 10**400} for name in ("steps", "bleu4", "seconds")},
    **{f"control {name}": {**ROW, name: "a\nb"} for name in ("model", "method", "dataset", "task")},
    "half a character": {**ROW, "split": "\ud800"},
    "a text among rows": {**ROW, "id": "1", "text": "a b"},
    "unknown columns": {"colour": "red"},
    "difference without a value": {"first": "a", "second": "b"},
    "coupling without L": {"contender": "ddot", "million_slots_per_second": 5.0},
    "coupling with a list as L": {"contender": "ddot", "L": [64]},
    "sampler without steps": {"sampler": "lc", "ms_a_text": 3.0},
}
NO_JSON = {
    "cut": '{"model": "m", "met',
    "list": "[1]",
    "number": "3",
    "deep": "[" * 9999,
    "long": "9" * 5000,
    "nul": "\0",
}
ROW_FILES = {name: json.dumps(line) + "\n" for name, line in NO_ROWS.items()} | {
    name: json.dumps(ROW) + "\n" + line for name, line in NO_JSON.items()
}
ROWS = [
    *(("tables", f"rows/{name}.jsonl") for name in ROW_FILES),
    *(("plot", "quality", f"rows/{name}.jsonl", "-o", "p.png") for name in ("text steps", "huge bleu4", "cut")),
    *(("plot", "success", f"rows/{name}.jsonl", "-o", "p.png") for name in ("half a character", "list kept", "deep")),
    *(
        ("evaluate", "{model}", "--bench", "folder", "--output", f"rows/{name}.jsonl")
        for name in ("no task", "text steps", "list", "number", "a text among rows")
    ),
    *(("compare", f"rows/{name}.jsonl", "--bench", "bench", "--methods", "a,b") for name in ("no task", "nul", "list")),
    *(
        ("rescore", f"rows/{name}.jsonl", "--bench", "bench", "--metrics", "bleu4")
        for name in ("control task", "null steps", "deep")
    ),
    ("tables", "rows/good.jsonl", "--table", "nothing"),
    ("tables", "rows/good.jsonl", "--write", "missing.md"),
    ("tables", "rows/good.jsonl", "--write", "diary.md"),
    ("tables", "rows/good.jsonl", "--write", "folder"),
    ("tables", "rows/good.jsonl", "--latex", "--write", "marked.md"),
    ("tables", "rows"),
    ("tables", "empty.jsonl"),
    ("rescore", "rows/good.jsonl", "--bench", "bench", "--metrics", "bleu4", "--samples", "5"),
    ("rescore", "rows/good.jsonl", "--bench", "nowhere", "--metrics", "rouge1"),
    ("compare", "rows/good.jsonl", "--bench", "bench", "--methods", "infill"),
    ("compare", "rows/good.jsonl", "--bench", "bench", "--methods", "infill,nothing"),
    ("compare", "rows/good.jsonl", "--bench", "bench", "--methods", "infill,lc", "--samples", "0"),
    ("plot", "quality", "empty.jsonl", "-o", "p.png"),
    ("plot", "cost", "empty.jsonl", "-o", "p.png"),
    ("plot", "cost", "rows/good.jsonl", "-o", "p.png"),
    ("plot", "quality", "rows/good.jsonl", "-o", "p.png", "--methods", "nothing"),
]
# A set of items edited by hand.
ITEM = {"id": "1", "words": ["a", "b", "c"], "keep": [0, 2]}
ITEMS = {
    **{f"no {name}": {key: value for key, value in ITEM.items() if key != name} for name in ("words", "keep")},
    "without words": {**ITEM, "words": []},
    "words in a text": {**ITEM, "words": "a b c"},
    "a number among words": {**ITEM, "words": ["a", 3, "c"]},
    "a place too far": {**ITEM, "keep": [0, 9]},
    "a negative place": {**ITEM, "keep": [-1]},
    "places out of order": {**ITEM, "keep": [2, 0]},
    "a place twice": {**ITEM, "keep": [1, 1]},
    "a place that is text": {**ITEM, "keep": ["0"]},
    "a half place": {**ITEM, "keep": [0.5]},
}
SETS = [
    *(
        ("evaluate", "{model}", "--bench", f"sets/{name}", "--output", "r.jsonl", "--datasets", "1bw-block")
        for name in ITEMS
    ),
    ("evaluate", "{model}", "--bench", "bench", "--output", "r.jsonl", "--datasets", "nothing"),
    ("evaluate", "{model}", "--bench", "bench", "--output", "r.jsonl", "--tasks", "nothing"),
    ("evaluate", "{model}", "--bench", "bench", "--output", "r.jsonl", "--steps", "0"),
    ("evaluate", "{model}", "--bench", "bench", "--output", "r.jsonl", "--steps", "x"),
    ("evaluate", "{model}", "--bench", "bench", "--output", "r.jsonl", "--limit", "0"),
    ("evaluate", "{model}", "--bench", "bench", "--output", "r.jsonl", "--limit", "-2"),
    ("evaluate", "{model}", "--bench", "bench", "--output", "r.jsonl", "--split", "../x"),
    ("evaluate", "{model}", "--bench", "bench", "--output", "r.jsonl", "--metrics", "nothing"),
    ("evaluate", "{model}", "--bench", "bench", "--output", "r.jsonl", "--metrics", ","),
    ("evaluate", "{model}", "--bench", "bench", "--output", "r.jsonl", "--language-model", "nowhere"),
    ("evaluate", "{model}", "--bench", "bench", "--output", "r.txt"),
    ("evaluate", "{model}", "--bench", "bench", "--output", "r.texts.jsonl"),
    ("evaluate", "{model}", "--bench", "bench", "--output", "no/folder/r.jsonl"),
    ("evaluate", "{model}", "--bench", "bench/1bw-block.test.jsonl", "--output", "r.jsonl"),
    ("nats", "--bench", "bench", "--model", "{model}", "--datasets", "nothing"),
    ("nats", "--bench", "bench", "--model", "{model}", "--limit", "0"),
    ("nats", "--bench", "bench", "--model", "{model}", "--language-model", "diary.txt"),
]
# Texts to learn from, and tokenizers, networks and settings that are none.
LEARNT = [
    *(
        ("finetune", name, "--output", "run", "--model", "{model}")
        for name in ("empty.txt", "blank.txt", "nul.txt", "utf16.txt", "cut.gz", "folder", "loop.txt", "", "/dev/null")
    ),
    *(
        ("prepare", name, "--tokenizer", "{model}", "--output", "packed")
        for name in (
            "empty.txt",
            "utf16.txt",
            "cut.gz",
            "loop.txt",
            "no_json.jsonl",
            "no_text.jsonl",
            "half.jsonl",
            "p.parquet",
        )
    ),
    *(("info", f"config_{name}") for name in ("number", "text", "heads", "class", "huge")),
    *(("infill", TEXT, "--model", f"config_{name}") for name in ("number", "text", "heads", "class", "huge")),
    *(("convert", f"config_{name}", "dest", "--int8") for name in ("number", "heads")),
    ("finetune", "own.txt", "--output", "run", "--model", "config_heads"),
    ("finetune", "own.txt", "--output", "diary.txt"),
    ("finetune", "own.txt", "--output", "run", "--minutes", "nan"),
    ("finetune", "own.txt", "--output", "run", "--minutes", "inf"),
    ("prepare", "own.txt", "--tokenizer", "{model}", "--output", "diary.txt"),
    ("prepare", "own.txt", "--tokenizer", "empty.txt", "--output", "packed"),
    ("prepare", "blank.txt", "--tokenizer", "{model}", "--output", "packed"),
    ("prepare", "nul.txt", "--tokenizer", "{model}", "--output", "packed"),
    ("lengths", TEXT, "--model", "config_text"),
    ("score", TEXT, "--fills", "a", "--model", "config_heads"),
    ("watch", TEXT, "--model", "config_class"),
    ("nats", "--bench", "bench", "--model", "config_huge"),
    ("convert", "empty.txt", "dest"),
    ("convert", "bad.gz", "dest"),
    ("convert", "{model}", "diary.txt", "--int8"),
    ("convert", "owner/no-such-model-of-anybody", "dest"),
    ("train", "toy", "--output", "diary.txt"),
    ("train", "toy", "--output", "run", "--set", "=3"),
    ("train", "toy", "--output", "run", "--set", "training=3"),
    ("train", "toy", "--output", "run", "--set", "training.steps="),
    ("train", "toy", "--output", "run", "--set", "training.steps=1e99"),
    ("train", "toy", "--output", "run", "--set", "training.steps=nan"),
    ("bench", "serve", "--clients", "0"),
    ("bench", "serve", "--clients", "x"),
    ("bench", "serve", "--clients", "1,,2"),
    ("bench", "serve", "--model", "nowhere"),
    ("bench", "coupling", "--lengths", "x"),
    ("bench", "train", "--device", "tpu"),
    ("bench", "methods", "--model", "nowhere"),
    ("serve", "--port", "0", "--host", "", "--model", "{model}"),
    ("serve", "--port", "0", "--time-limit", "nan", "--model", "{model}"),
    ("serve", "--port", "0", "--drain", "-1", "--model", "{model}"),
    ("serve", "--port", "0", "--api-key-file", "folder", "--model", "{model}"),
    ("serve", "--port", "0", "--api-key-file", "binary.txt", "--model", "{model}"),
    ("serve", "--port", "0", "--api-key-file", "/dev/zero", "--model", "{model}"),
    ("serve", "--port", "0", "--api-key-file", "pipe", "--model", "{model}"),
    ("serve", "--port", "0", "--api-key-file", "own.txt", "--model", "{model}"),
    ("serve", "--port", "0", "--device", "tpu", "--model", "{model}"),
]
CASES = [
    *((*INFILL, "--", template) for template in TEMPLATES),
    *((*INFILL, TEXT, option, value) for option, values in VALUES.items() for value in values),
    *INFILLS,
    *OTHERS,
    *ROWS,
    *SETS,
    *LEARNT,
]
assert len(set(CASES)) == len(CASES) >= 400


@pytest.fixture(autouse=True)
def _as_users_have_it():
    """Without the checks of types that tests add: they would be the first to notice some mistakes."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="module")
def place(folder, tmp_path_factory):
    """A folder with all that mistakes are made with."""
    place = tmp_path_factory.mktemp("mistakes")
    (place / "folder").mkdir()
    (place / "folder" / "file").write_text("x")
    (place / "good.jsonl").write_text('{"id": 1, "text": "a ___{1}"}\n')
    (place / "other.jsonl").write_text('{"id": 2, "text": "a b", "fills": ["b"]}\n')
    (place / "diary.txt").write_text("Dear diary.\nToday it rained.\n")
    (place / "diary.md").write_text("Dear diary.\n")
    (place / "own.txt").write_text("The boat sails.\n" * 300)
    (place / "latin.txt").write_bytes("Voilà.\n".encode("latin-1"))
    for name in ("binary.jsonl", "binary.txt"):
        (place / name).write_bytes(bytes(range(256)))
    for name in ("bad.gz", "bad.xz"):
        (place / name).write_bytes(b"not packed")
    (place / "diary.txt.gz").write_bytes(gzip.compress(b"Dear diary.\n" * 99))
    (place / "array.json").write_text('[{"text": "a ___"}]')
    (place / "lines.json").write_text('[\n  {"text": "a ___"},\n  {"text": "b ___"}\n]\n')
    (place / "cut.gz").write_bytes(gzip.compress(b'{"text": "a ___"}\n' * 100)[:30])
    os.mkfifo(place / "pipe")
    for name in ("meta_list", "meta_text", "no_weights", "cut"):
        shutil.copytree(folder, place / name)
    (place / "meta_list" / "meta.json").write_text("[1]")
    (place / "meta_text" / "meta.json").write_text("not json")
    (place / "no_weights" / "model.safetensors").unlink()
    (place / "cut" / "config.json").write_text('{"is": ')
    (place / "rows").mkdir()
    for name, lines in {**ROW_FILES, "good": json.dumps(ROW) + "\n"}.items():
        (place / "rows" / f"{name}.jsonl").write_text(lines)
    for name, item in {**{f"sets/{name}": item for name, item in ITEMS.items()}, "bench": ITEM}.items():
        (place / name).mkdir(parents=True)
        (place / name / "1bw-block.test.jsonl").write_text(json.dumps(item) + "\n")
    for name in ("empty.jsonl", "empty.txt"):
        (place / name).write_text("")
    (place / "blank.txt").write_text(" \n\t\n" * 99)
    (place / "nul.txt").write_bytes(bytes(5000))
    (place / "utf16.txt").write_bytes(("The boat sails.\n" * 99).encode("utf-16"))
    (place / "loop.txt").symlink_to("loop.txt")
    (place / "no_json.jsonl").write_text("{")
    (place / "no_text.jsonl").write_text('{"text": 3}\n')
    (place / "half.jsonl").write_text('{"text": "\\ud800 boat"}\n')
    (place / "p.parquet").write_text("PAR1")
    (place / "marked.md").write_text("<!-- block -->\n<!-- /block -->\n")
    config = json.loads((folder / "config.json").read_text())
    trunk = config["trunk"]
    for name, changed in {
        "number": {"trunk": 3}, "text": {"slots": "x"}, "heads": {"trunk": {**trunk, "heads": 0}},
        "class": {"score": {"is": "Nothing"}}, "huge": {"trunk": {**trunk, "blocks": 10**9}},
    }.items():  # fmt: skip
        shutil.copytree(folder, place / f"config_{name}")
        (place / f"config_{name}" / "config.json").write_text(json.dumps({**config, **changed}))
    return place


def everything(place):
    return {file: file.lstat().st_mtime_ns for file in place.rglob("*") if not file.is_fifo()}


def too_long(*_):
    raise AssertionError("this takes too long")


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(" ".join(case))[:90])
def test_a_mistake_is_one_sentence(case, place, folder, monkeypatch, capsys):
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["ddot", *(part.replace("{model}", str(folder)) for part in case)])
    monkeypatch.setattr(sys, "stdin", None)
    before = everything(place)
    former = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(60)
    try:
        ended = status()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)
    told = capsys.readouterr()
    assert ended == 2, told
    said = told.err or told.out  # help, for a command without a word
    assert said.strip(), "nothing is said"
    assert "Traceback" not in said
    assert "Errno" not in said
    assert said.startswith("ddot: ") or "Usage: " in told.out, said
    if said.startswith("ddot: "):
        assert said.count("\n") == 1, said
        assert not PYTHON & set(re.findall(r"\w+=?", said)), said
        assert len(said) > 20, said
        assert told.out == "" or case[0] == "train"
    assert everything(place) == before


def test_a_bad_line_harms_no_other(folder, place, monkeypatch, capfdbinary):
    """Twenty bad lines among good ones: each gets its error, the good ones are filled."""
    bad = [
        b"[]", b"3", b"null", b'"text"', b"{", b"{}", b'{"id": 1}', b'{"text": 3}', b'{"text": null}', b'{"text": ""}',
        b'{"text": "no blank"}', b'{"text": "a ___{9,1}"}', b'{"text": "a ___", "free": "b"}', b'{"free": " "}',
        b'{"text": "a ___", "n": 0}', b'{"text": "a ___", "seed": "x"}', b'{"text": "a ___", "steps": 1.5}',
        b'{"text": "a ___", "fills": {}}', b'{"text": "a ___", "avoid": "b"}', b'{"text": "\xe9 ___"}', b"\xff\xfe",
        b'{"text": "\\ud800 ___"}', b'{"text": "a ___", "terminal": 3}', b'{"text": "a ___", "temperature": "hot"}',
    ]  # fmt: skip
    lines = [line for each in bad for line in (each, b'{"text": "a ___{1} b"}')]
    (place / "mixed.jsonl").write_bytes(b"\n".join(lines))
    arguments = [
        "infill",
        "--input",
        str(place / "mixed.jsonl"),
        "--output",
        "-",
        "--model",
        str(folder),
        "--steps",
        "1",
    ]
    monkeypatch.setattr(sys, "argv", ["ddot", *arguments, "--quiet"])
    assert status() == 1
    rows = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert len(rows) == len(lines)
    assert all(len(row["error"]) > 15 for row in rows[::2])
    assert all(row["text"].startswith("a ") and row["text"].endswith(" b") for row in rows[1::2])
