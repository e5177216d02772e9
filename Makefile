PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help install demo test lint format docs bench clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

install: $(READY)  ## make the virtual environment and install everything into it

demo: $(READY)  ## train SGD-Scan, EMAIS and EMAIS-auto on the digits data, print a table, write a page
	$(BIN)/emais demo

test: $(READY)  ## run all tests
	$(BIN)/python -m pytest

lint: $(READY)  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## make README, results, tables and pictures from the result files
	$(BIN)/python docs/render.py

bench: $(READY)  ## measure sampler and step costs on this machine, into benchmarks/results/
	$(BIN)/python benchmarks/sampler.py
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/refit.py
	$(BIN)/python benchmarks/parcels.py

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) build dist out .pytest_cache .ruff_cache .mypy_cache .hypothesis src/*.egg-info
