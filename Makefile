# Every command of the project. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
THREADS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow check format docs bench viewer clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/core  ## learn Pong from scratch in about 90 seconds; ends with report.html
	$(BIN)/lamarckian demo -o report.html

test: $(VENV)/dev  ## run the default tests (under 6 minutes on 2 cores)
	$(BIN)/python -m pytest -n $(THREADS) --dist worksteal -q -m "not slow"

test-slow: $(VENV)/dev  ## run the learning and scale checks that take minutes each
	$(BIN)/python -m pytest -q -m slow --timeout 3600

check: $(VENV)/dev  ## formatting, lint, types, import layers, docs
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(VENV)/dev  ## format and fix what can be fixed
	$(BIN)/ruff format src tests benchmarks examples
	$(BIN)/ruff check --fix src tests benchmarks examples

docs: $(VENV)/dev  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/dev  ## run the benchmarks; results go to benchmarks/results/
	$(BIN)/python benchmarks/run_all.py

viewer:  ## build the live viewer's page anew from its sources (needs node)
	cd src/lamarckian/viewer/web && npm ci --silent && npm run --silent build

clean:  ## remove the virtual environment and everything that was built
	rm -rf $(VENV) build dist site report.html

$(VENV)/core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/dev: $(VENV)/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@
