# Everything here works on a machine that has Python 3.11 or newer, make and pip: no compiler, no container engine.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help setup up test check format chaos bench chart lock clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Create .venv with the locked dependencies (cheap when nothing changed)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tocsin needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the locked dependencies into $(VENV), a minute or two …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

up: setup  ## Run everything on this machine: NATS, PostgreSQL, API, schedulers, workers
	@exec $(BIN)/tocsin up $(ARGS)

test: setup check  ## Run the whole test suite against real servers it starts itself
ifeq ($(ARGS),)
	$(BIN)/pytest -n 3 --dist loadfile --ignore tests/chaos
	# Alone: its rows have bounds on time.
	$(BIN)/pytest tests/chaos
else
	$(BIN)/pytest $(ARGS)
endif

chaos: setup  ## Break a running installation in every way we know; writes the table to chaos-table.md
	$(BIN)/pytest tests/chaos --whole --reads 2000 --timeout 900 --table chaos-table.md $(ARGS)

check: setup  ## Formatter, linter, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy .
	$(BIN)/lint-imports

format: setup  ## Format the code and apply the safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup  ## Run the benchmarks; method and figures are in docs/benchmarks.md
	$(BIN)/python -m bench $(ARGS)

chart:  ## Print the Helm chart rendered with its production values
	@$(MAKE) --no-print-directory setup >&2
	@$(BIN)/python -m helm.chart $(ARGS)

lock:  ## Resolve pyproject.toml again into requirements*.lock (needs uv on the PATH)
	uv pip compile pyproject.toml --quiet --extra embedded --extra apprise --extra dev --generate-hashes --python-version 3.11 \
	  --universal --no-annotate --no-header --no-emit-index-url --no-emit-find-links -o requirements.lock
	uv pip compile pyproject.toml --quiet --extra apprise --constraint requirements.lock --generate-hashes \
	  --python-version 3.11 --universal --no-annotate --no-header --no-emit-index-url --no-emit-find-links \
	  -o requirements-production.lock

clean:  ## Remove the virtual environment, caches and build leftovers (never .tocsin, where your data live)
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
