"""The public API as a type checker sees it: examples without errors, overloads that tell a text from a list."""

from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api", reason="types are checked with mypy (extra dev)")
ROOT = Path(__file__).parents[2]
CALLS = """# mypy: disallow-any-expr
import ddot

model = ddot.load()
one: list[ddot.Infill] = model.infill("a ___", n=2, steps=4)
many: list[list[ddot.Infill]] = model.infill(["a ___"], settings_that_are_not=1)
text: str = one[0].text
frames: list[ddot.Frame] = list(model.stream("a ___"))
model.infill("a ___", steps="many")
model.infill(["a ___"], fills=["b"])
score: float = model.score("a ___", ["b"])
spans: list[tuple[int, int]] = one[0].spans
word, chance = model.candidates("a ___{1}", k=3)[0]
sure: float = chance
shares: list[dict[int, float]] = model.lengths("a ___")
model.infill("a ___", avoid=["b"], temperature=1)
model.score("a ___", "b", steps=1.5)
capital: str = word.upper()
"""


@pytest.mark.slow
def test_examples_and_calls_are_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    calls = tmp_path / "calls.py"
    calls.write_text(CALLS)
    examples = map(str, sorted((ROOT / "examples").glob("*.py")))
    found, wrong, _ = api.run([*examples, str(calls)])  # with the options of `make lint`, so that its cache serves here
    assert wrong == ""
    errors = [line.split(":")[0:2] for line in found.splitlines() if ": error:" in line]
    assert {int(line) for file, line in errors if file.endswith("calls.py")} == {6, 9, 10, 17}
    assert [file for file, _ in errors if not file.endswith("calls.py")] == []
    assert (ROOT / "ddot" / "py.typed").is_file()
