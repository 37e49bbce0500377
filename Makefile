# Every target sets itself up: a fresh clone needs python3 (3.11 or newer), make and pip.
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help install demo test lint format types imports check-tests test-debian bench limits clean

help:
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(VENV)/.installed ## make .venv/bin/nightdesk

# Some systems ship python3 without ensurepip: then their own pip puts one into the environment.
$(BIN)/python:
	python3 -m venv $(VENV) || (python3 -m venv --clear --without-pip $(VENV) && \
		python3 -m pip --python $(BIN)/python install --quiet --constraint constraints.txt pip setuptools)

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.developing: $(VENV)/.installed
	$(PIP_INSTALL) --editable '.[dev]'
	@touch $@

demo: $(VENV)/.installed ## answer the example questions, with everything that takes started and stopped
	@$(BIN)/nightdesk demo

test: lint check-tests ## everything that must hold before a change lands

check-tests: $(VENV)/.developing
	$(BIN)/python -m pytest

lint: $(VENV)/.developing ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.developing ## let ruff format everything
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-debian: $(VENV)/.developing ## the ledger's and the system's tests over PostgreSQL 15 and Redis 7 of the system
	$(BIN)/python -m tests.debian

bench: $(VENV)/.developing ## throughput and CPU per job, on this machine
	$(BIN)/python bench/throughput.py

limits: $(VENV)/.developing ## the shared limits with four workers, and how soon urgent jobs begin (ten minutes)
	$(BIN)/python -m bench.limits

clean: ## remove the environment and caches (never the data under .nightdesk)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis *.egg-info build
