# `make demo` and `make test` need python3 with venv and pip, and set up the rest themselves.

PYTHON ?= python3
PYTEST_FLAGS ?= -n 2 -q
BENCH_FLAGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint lab bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP) ## Train one attention problem at three exponents and print a table
	@$(BIN)/mirrormargin demo

test: lint ## Lint, then run every test (PYTEST_FLAGS="-x -k name" to choose)
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

lint: $(STAMP) ## Check style, formatting, types and the import order
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

lab: $(STAMP) ## Measure what the papers say about one attention layer (minutes)
	$(BIN)/python examples/lab.py

bench: $(STAMP) ## Time steps, solves and training against others' (BENCH_FLAGS=--quick for less)
	$(BIN)/python benchmarks/step.py $(BENCH_FLAGS)
	$(BIN)/python benchmarks/svm.py $(BENCH_FLAGS)
	$(BIN)/python benchmarks/lab.py $(BENCH_FLAGS)

clean: ## Remove the virtual environment, caches and build products
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

# torch goes first and alone: the pinned build is then in place before anything else asks for it.
$(STAMP): pyproject.toml constraints.txt
	@echo "Setting up $(VENV), once"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@
