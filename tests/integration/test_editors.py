"""The unmodified llama.vim in a real Vim, with the embedded model: what stands on the screen while somebody types.

llama.vim is not part of this repository. It is taken from the folder that LLAMA_VIM names, or from
shared/editors/llama.vim beside the checkout.
"""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import termios
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from served import ROOT, Served

import ddot

PLUGIN = Path(os.environ.get("LLAMA_VIM", ROOT.parent / "shared" / "editors" / "llama.vim"))
if not (PLUGIN / "autoload").is_dir():
    pytest.skip(f"no llama.vim at {PLUGIN}; set LLAMA_VIM to a checkout of it", allow_module_level=True)

# Types at the end of a line, waits until something else than what was typed stands there, and writes down the screen.
VIMRC = r"""
set nocompatible noswapfile viminfo= rtp+={plugin}
let g:llama_config = {{'endpoint_fim': '{endpoint}', 'show_info': 0}}
function! Line(row)
  return trim(join(map(range(1, &columns), 'screenstring(a:row, v:val)'), ''), ' ', 2)
endfunction
function! Look(timer)
  redraw
  let l:shown = Line({row})
  if l:shown !=# getline({row}) && getline({row}) ==# {typed}
    call writefile([json_encode(map(range(1, line('$')), 'Line(v:val)'))], '{out}')
    qall!
  endif
endfunction
function! Begin(timer)
  call cursor({row}, 1)
  call feedkeys('A' . {keys}, 'nt')
  call timer_start(50, 'Look', {{'repeat': -1}})
endfunction
autocmd VimEnter * call timer_start(50, 'Begin')
"""


@pytest.fixture(scope="module")
def served():
    with Served("--device", "cpu") as server:
        server.post("/infill", input_prefix="Warm", input_suffix="", n_predict=1)
        yield server


@pytest.fixture(scope="module")
def tokenizer():
    return ddot.load(device="cpu").tokenizer


def shown(served, tmp_path, before, keys, after=()):
    """The lines on Vim's screen once a suggestion stands in the one that was typed in."""
    assert shutil.which("vim"), "Vim is missing; install it (apt-get install vim)"
    lines, out = before.split("\n"), tmp_path / "screen.json"
    (tmp_path / "text.txt").write_text("\n".join([*lines, *after]) + "\n")
    (tmp_path / "vimrc").write_text(
        VIMRC.format(
            plugin=PLUGIN,
            endpoint=f"http://127.0.0.1:{served.port}/infill",
            out=out,
            row=len(lines),
            keys=json.dumps(keys),
            typed=json.dumps(lines[-1] + keys),
        )
    )
    process, terminal = pty.fork()
    if not process:
        os.environ["TERM"] = "xterm"
        os.execvp("vim", ["vim", "-u", str(tmp_path / "vimrc"), "-i", "NONE", str(tmp_path / "text.txt")])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 160, 0, 0))
    end = time.monotonic() + 30
    with suppress(OSError):  # the terminal is gone when Vim is
        while time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0] and b"Press ENTER" in os.read(terminal, 65536):
                os.write(terminal, b"\r")  # after a warning about the version
    with suppress(ProcessLookupError):
        os.kill(process, 9)
    os.waitpid(process, 0)
    os.close(terminal)
    return json.loads(out.read_text())


PROMPTS = [
    ("The ferry was late, so we", " waited", []),
    ("Last", " sum", []),
    ("She opened the old wooden box and found", " a", ["", "Her brother did not believe her."]),
    ("I would like to", " book", []),
    ("Dear Anna,\n\nthank you for", " the", []),
    ("The library closes at six on", " Fri", []),
]
WHOLE = {"Last sum": "Last summer", "The library closes at six on Fri": "The library closes at six on Friday"}


@pytest.mark.parametrize(("before", "keys", "after"), PROMPTS, ids=lambda value: repr(value)[:30])
def test_llama_vim_shows_words_within_its_first_250_ms(served, tokenizer, tmp_path, before, keys, after):
    screen = shown(served, tmp_path, before, keys, after)
    typed = before.split("\n")[-1] + keys
    line = screen[before.count("\n")]
    print(line)
    assert line.startswith(WHOLE.get(typed, typed))
    words = re.findall(r"\w+", line)
    assert len(line) > len(typed)
    assert not any(a == b for a, b in pairwise(words)), "a word twice, as in one-step fills"
    assert line[-1] in ".!?" or line[-1].isalnum()
    assert screen[before.count("\n") + 1 :] == after  # nothing else changed

    if (
        typed not in WHOLE
    ):  # as good as without a limit: the text of a request that may have as many tokens, in any time
        prefix, _, prompt = (before + keys).rpartition("\n")
        content = line.removeprefix(typed)
        asked = {"input_prefix": prefix + "\n", "prompt": prompt, "input_suffix": "\n" + "\n".join(after) + "\n"}
        asked |= {"t_max_predict_ms": 60_000, "n_predict": len(tokenizer.encode(content))}
        assert served.post("/infill", **asked)["content"] == content
