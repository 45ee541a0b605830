"""The promise to users, for thousands of random templates and networks that know nothing.

Everything outside blanks comes back verbatim and in order, text appears only at blanks, bounds in words hold: for any
weights, any seed, any way of sampling, and every way in and out: JSON lines, and the command at a real terminal.
Networks with random weights say the oddest things, so they are the best test.
"""

import json
import math
import os
import pty
import re
import subprocess
import sys
import termios
from dataclasses import dataclass, replace

import jaxtyping
import pytest
import torch

from ddot.core.absorbing import CleanToken, ScoreEntropy
from ddot.core.rng import generator
from ddot.data.tokenizer import learn_bpe
from ddot.infill.jsonl import as_line, output_of, read_line
from ddot.infill.model import Model
from ddot.infill.settings import Settings
from ddot.infill.template import Blank, Template, write
from ddot.network.denoiser import Denoiser, DenoiserConfig
from ddot.network.dit import DiTConfig
from ddot.network.folder import save_model
from ddot.network.llama import LlamaConfig

pytestmark = pytest.mark.usefixtures("few_candidates")
SENTENCES = [
    "The ferry left the harbour at 7.40, half empty, and nobody waved.",
    "Her brother's boat (the blue one) wasn't sold , they said !",
    "A well-kept garden: roses, beans, two old chairs; quiet is the word.",
    "Où est l'école? Das Mädchen weiß es nicht. 漢字 и слово",
]
TOKENIZER = learn_bpe(SENTENCES * 4, 420)
V = TOKENIZER.vocabulary


def trunk(width=16, blocks=0):
    """Without blocks a slot is judged by itself: quick, and as odd as any."""
    return LlamaConfig(width=width, blocks=blocks, heads=2, key_heads=1, inner_width=2 * width, vocabulary=V.rows)


def bare(gap_lengths):
    return DenoiserConfig(trunk=trunk(), vocabulary=V, score=CleanToken(), predict_clean=True, gap_lengths=gap_lengths)


SCORES = DenoiserConfig(  # the paper's own: scores, conditioned on the noise, no lengths
    trunk=DiTConfig(width=16, blocks=1, heads=2, vocabulary=V.size, condition_width=8),
    vocabulary=V,
    score=ScoreEntropy(V.size),
)
# Name, network, what its weights are multiplied with, how many templates it gets.
NETWORKS = [
    ("whole", DenoiserConfig.extended(trunk(width=32, blocks=2), V), 1, 400),
    ("whole, extreme", DenoiserConfig.extended(trunk(blocks=1), V), 20, 600),
    ("bare", bare(gap_lengths=True), 1, 1400),
    ("bare, another", bare(gap_lengths=True), 1, 600),
    ("extreme", bare(gap_lengths=True), 20, 1400),
    ("faint", bare(gap_lengths=True), 0.01, 1400),
    ("nothing but lengths", bare(gap_lengths=True), 0, 1400),
    ("no lengths", bare(gap_lengths=False), 1, 700),
    ("no lengths, extreme", bare(gap_lengths=False), 20, 700),
    ("scores", SCORES, 5, 600),
    ("written", replace(DenoiserConfig.extended(trunk(blocks=1), V), order="outline"), 1, 400),
    ("written, extreme", replace(bare(gap_lengths=False), order="outline"), 20, 400),
]
assert sum(count for *_, count in NETWORKS) == 10_000
SHARE = float(os.environ.get("DDOT_PROMISES", 0.25))  # of these templates; `make promises` takes them all


def network(number):
    name, config, factor, _ = NETWORKS[number]
    torch.manual_seed(number)
    denoiser = Denoiser(config).eval()
    with torch.no_grad():
        for path, parameter in denoiser.named_parameters():
            parameter.normal_(std=0.3 * (1 if path.startswith("room") and factor == 0 else factor))
    return Model(denoiser, TOKENIZER, name)


@dataclass(frozen=True)
class Case:
    """A template with the text that writes it, and how to fill it."""

    source: str
    template: Template
    settings: dict


TAME = [*"aZ7.,;:!?'\"()-–—/%$@#&*+=<>~^`|", "boat", "Harbour", "wasn't", "the", "é", "ß", "e\u0301", "漢字", "かな。"]
TAME += [
    "🙂",
    "👩‍👩‍👧",
    "שלום",
    "مرحبا،",
    "\u200f",
    "\ufeff",
    "\ufffd",
    "\x00",
    "\x1b[0m",
    "<|endoftext|>",
    "I’m",
    "“",
    "”",
]
SPACE = [" ", " ", " ", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", ""]
AWKWARD = [
    "_",
    "__",
    "___",
    "\\",
    "\\\\",
    "{",
    "}",
    "{2}",
    "\\{",
    "<mask>",
    "[MASK]",
    "[blank]",
    "<extra_id_3>",
    "\\___",
]
NAMES = ["___", "_____", "<mask>", "[MASK]", "[blank]", "<extra_id_0>"]


def pick(rng, options):
    return options[int(rng.random() * len(options))]


def random_literal(rng, pieces):
    size = 300 if rng.random() < 0.004 else pick(rng, [0, 0, 1, 2, 4, 4, 8])  # 300: several windows
    text = "".join(pick(rng, pieces) + pick(rng, SPACE) for _ in range(size))
    # Spaces on either side, as most people write, or not.
    return pick(rng, [" ", ""]) + text + pick(rng, [" ", "", ""])


def random_blank(rng):
    kind = rng.random()
    if kind < 0.4:
        return Blank()
    least = int(rng.integers(20, 65)) if kind < 0.43 else pick(rng, [0, 1, 2, 3, 6])
    return Blank(least, None if kind < 0.6 else min(64, least + pick(rng, [0, 0, 1, 4])))


def written(template, rng):
    """The template as somebody else than `write` would write it, with every name of a blank."""
    text = template.literals[0]
    for blank, literal in zip(template.blanks, template.literals[1:], strict=True):
        most = "" if blank.most is None else blank.most
        bounds = f"{{{blank.least}}}" if blank.least == blank.most else f"{{{blank.least},{most}}}"
        text += pick(rng, NAMES) + bounds + literal
    return text


def random_case(rng):
    settings = {
        "seed": int(rng.integers(2**32)),
        "steps": pick(rng, [1] * 16 + [2] * 3 + [4]),
        "terminal": pick(rng, [None, None, None, "grid", "random"]),
        "temperature": pick(rng, [0.0, 0.0, 0.02, 0.8, 10.0]),
        "top_p": pick(rng, [1.0, 1.0, 0.5]),
    }
    if rng.random() < 0.1:
        words = " ".join(pick(rng, [*TAME, *AWKWARD]) for _ in range(3)).split() or ["boat"]
        apart = [" " + word for word in words[1:]]
        template = Template(("", words[0], *apart, ""), (Blank(0),) * (len(words) + 1))
        return Case("\n ".join(words) + " ", template, {**settings, "free": True})
    is_tame = rng.random() < 0.6
    blanks = tuple(random_blank(rng) for _ in range(8 if rng.random() < 0.01 else pick(rng, [1, 1, 1, 1, 2, 2, 3])))
    literals = tuple(random_literal(rng, TAME if is_tame else TAME + AWKWARD * 2) for _ in range(len(blanks) + 1))
    if rng.random() < 0.05:
        literals = tuple(pick(rng, ["", " ", "\n"]) for _ in literals)  # blanks only
    template = Template(literals, blanks)
    if rng.random() < 0.1:
        kept = [rng.random() < 0.5 for _ in blanks]
        words = ["  ".join(["kept"] * blank.least) + " " for blank in blanks]
        settings["fills"] = [text if is_kept else None for text, is_kept in zip(words, kept, strict=True)]
    if rng.random() < 0.01:
        settings["n"] = 3
    return Case(written(template, rng) if is_tame else write(template), template, settings)


def broken_promises(case, found):
    """What is wrong with the answers to a case; empty if nothing."""
    n, locked = case.settings.get("n", 1), case.settings.get("fills") or [None] * len(case.template.blanks)
    if not 1 <= len(found) <= n or len({each.text for each in found}) < len(found):
        yield f"{len(found)} answers, {len({each.text for each in found})} different, {n} wanted"
    if not all(math.isfinite(each.score) and each.score <= 0 for each in found):
        yield "a score that is no log-chance"
    if [each.score for each in found] != sorted((each.score for each in found), reverse=True):
        yield "answers out of order"
    for each in found:
        if len(each.fills) != len(case.template.blanks):
            yield f"{len(each.fills)} fills"
            continue
        rest = each.text
        for literal, fill in zip(case.template.literals, [*each.fills, ""], strict=True):
            if not rest.startswith(literal + fill):
                yield f"literal text was lost: {literal!r} and {fill!r} do not begin {rest[:80]!r}"
                break
            rest = rest[len(literal + fill) :]
        else:
            if rest:
                yield f"text beyond the end: {rest!r}"
        for fill, blank, kept in zip(each.fills, case.template.blanks, locked, strict=True):
            words = len(fill.split())
            if words < blank.least or (blank.most is not None and words > blank.most):
                yield f"{blank} words wanted, {words} in {fill!r}"
            if kept is not None and fill != kept:
                yield f"a locked fill became {fill!r}"
            if kept is None and (not fill.isprintable() or "\ufffd" in fill or "<|" in fill or "  " in fill):
                yield f"a fill that is no plain text: {fill!r}"


def answered(model, case):
    """The answers to a case that came as a line of JSON, checked against the line they are written as."""
    asked = {**case.settings, "id": "7", "free" if case.settings.get("free") else "text": case.source}
    line = read_line(1, as_line({name: value for name, value in asked.items() if value is not True}), Settings())
    assert line.request is not None, line.error
    (found,) = model.answers([line.request])
    first, *others = (each.infill for each in found.best)
    written = json.loads(as_line(output_of(model.name, line, found)))
    for told, each in zip([written, *written.get("alternatives", [])], [first, *others], strict=True):
        assert (told["text"], told["fills"], told["score"]) == (each.text, each.fills, each.score)
        assert [each.text[start:end] for start, end in each.spans] == each.fills
        assert len(each.scores) == len(each.fills)
    return [first, *others]


PARTS = 2  # of each network's templates, so that workers share them evenly


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("number", range(len(NETWORKS)), ids=[name for name, *_ in NETWORKS])
def test_promises_are_kept(number, part):
    model = network(number)
    rng = generator(1000 * part + number)
    broken = []
    checked = jaxtyping.config.jaxtyping_disable
    try:
        for turn in range(round(SHARE * NETWORKS[number][-1]) // PARTS):
            # Shapes and types are checked in some; in all it would take three times as long.
            jaxtyping.config.update("jaxtyping_disable", checked or turn % 50 > 0)
            case = random_case(rng)
            broken += [(case, wrong) for wrong in broken_promises(case, answered(model, case))]
    finally:
        jaxtyping.config.update("jaxtyping_disable", checked)
    assert not broken, f"{len(broken)} broken promises, the first: {broken[0]}"


def at_terminal(arguments, stdin=b""):
    """What the `ddot` command writes to a real terminal, byte by byte."""
    terminal, process_end = pty.openpty()
    attributes = termios.tcgetattr(process_end)
    attributes[1] &= ~termios.OPOST  # a terminal puts a carriage return before each new line; this one shows them all
    termios.tcsetattr(process_end, termios.TCSANOW, attributes)
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "40"}
    command = [sys.executable, "-m", "ddot", "infill", "--steps", "1", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=process_end, env=environment) as process:
        os.close(process_end)
        process.stdin.write(stdin)
        process.stdin.close()
        shown = b""
        while part := _read(terminal):
            shown += part
    os.close(terminal)
    assert process.returncode == 0
    return shown.decode()


def _read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux says that nobody writes any more
        return b""


def strange_templates(rng, count, without):
    """Templates that a command can be given: no such characters, no words in order."""
    found = []
    while len(found) < count:
        case = random_case(rng)
        if not case.settings.get("free") and not set(without) & set(case.source) and case.source.strip():
            found.append(case)
    return found


def expected(template):
    """A pattern of the filled text, with a group for each fill, which is green unless it is empty."""
    green = "\x1b\\[1;32m([^\x1b]+)\x1b\\[0m"
    fills = ["()" if blank.most == 0 else green if blank.least else f"(?:{green})?" for blank in template.blanks]
    pieces = [part for pair in zip(map(re.escape, template.literals), [*fills, ""], strict=True) for part in pair]
    return "".join(pieces)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["arguments", "stdin"])
def test_the_terminal_shows_every_character(way, tmp_path):
    """Between literals, character for character, stand fills of as many words as are asked for, in colour."""
    denoiser = network(2).denoiser
    save_model(denoiser.state_dict(), denoiser.config, TOKENIZER, {}, tmp_path)
    count = round(250 * SHARE)
    cases = strange_templates(generator(len(way)), count, "\0" if way == "arguments" else "\n\ufeff")
    control = Template(("\t\r\a", "\v\f\b \x7f\x1b[31m", "  \t"), (Blank(), Blank(1, 2)))
    cases.append(Case(write(control), control, {}))
    sources = [case.source for case in cases]
    model = ["--model", str(tmp_path)]
    if way == "arguments":
        shown = at_terminal([*model, "--", *sources])
    else:
        shown = at_terminal(model, "".join(source + "\n" for source in sources).encode())
    for case in cases:
        match = re.match(expected(case.template) + "\n", shown)
        assert match, (case.source, shown[:200])
        fills = [each or "" for each in match.groups()]
        assert all(map(Blank.holds, case.template.blanks, fills)), (case, fills, shown[:200])
        shown = shown[match.end() :]
    assert shown == ""
