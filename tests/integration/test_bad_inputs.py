"""Two hundred mistakes over all commands: each is told in a sentence, at once, and nothing is written."""

import gzip
import json
import os
import shutil
import signal
import sys

import jaxtyping
import pytest

from ddot.cli import status

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
    (*INFILL, "--input", "good.jsonl"),
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
]  # fmt: skip
CASES = [
    *((*INFILL, "--", template) for template in TEMPLATES),
    *((*INFILL, TEXT, option, value) for option, values in VALUES.items() for value in values),
    *INFILLS,
    *OTHERS,
]
assert len(set(CASES)) == len(CASES) >= 200


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
    (place / "cut.gz").write_bytes(gzip.compress(b'{"text": "a ___"}\n' * 100)[:30])
    os.mkfifo(place / "pipe")
    for name in ("meta_list", "meta_text", "no_weights", "cut"):
        shutil.copytree(folder, place / name)
    (place / "meta_list" / "meta.json").write_text("[1]")
    (place / "meta_text" / "meta.json").write_text("not json")
    (place / "no_weights" / "model.safetensors").unlink()
    (place / "cut" / "config.json").write_text('{"is": ')
    return place


def everything(place):
    return {file: file.stat().st_mtime_ns for file in place.rglob("*") if not file.is_fifo()}


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
    assert said.startswith(("ddot: ", "Usage: ", "\n")) or "Usage" in said, said
    if said.startswith("ddot: "):
        assert said.count("\n") == 1, said
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
