# make test   install everything into .venv and run ruff, mypy and the whole test suite
# make lint   ruff and mypy alone
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := dev

.PHONY: test lint install clean
test: install lint
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n 2

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

install: .venv/installed-$(EXTRAS)

# torch first and pinned: the CPU build. A range would take a build with gigabytes of CUDA.
.venv/installed-$(EXTRAS): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check torch==2.13.0 -c constraints.txt
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info
