PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

SITE_READY := $(VENV)/.site-ready
# Lightning and transformers bring much along: they have an environment of their own
OTHER := .venv-integrations
OTHER_READY := $(OTHER)/.ready
RAY := .venv-ray
RAY_READY := $(RAY)/.ready
# three processes keep two cores busy, because some tests wait; each keeps to one thread
PYTEST := -m pytest -n 3

.PHONY: help install demo test test-launched test-integrations test-ray lint format docs site dist bench clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 19

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

install: $(READY)  ## make the virtual environment and install everything into it

demo: $(READY)  ## train SGD-Scan, EMAIS and EMAIS-auto on the digits data, print a table, write a page
	$(BIN)/emais demo

test: $(READY)  ## run the quick tests; TESTS="tests/rates -m statistical" for a part
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m "not launched" $(if $(COVERAGE),--cov --cov-report= --cov-fail-under=0) $(TESTS)

test-launched: $(READY)  ## run those that start programs or processes; COVERAGE=1, here and before: hold the floor of both
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m launched $(if $(COVERAGE),--cov --cov-append --cov-report=term:skip-covered) tests

$(OTHER_READY): pyproject.toml constraints.txt constraints-integrations.txt
	test -x $(OTHER)/bin/python || $(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-integrations.txt -e '.[integrations]'
	touch $@

test-integrations: $(OTHER_READY)  ## run the tests with Lightning and transformers, in an environment of their own
	OMP_NUM_THREADS=1 $(OTHER)/bin/python $(PYTEST) $(if $(TESTS),$(TESTS),tests/integrations)

$(RAY_READY): pyproject.toml constraints.txt constraints-ray.txt
	test -x $(RAY)/bin/python || $(PYTHON) -m venv $(RAY)
	$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-ray.txt -e '.[ray]' pytest
	touch $@

test-ray: $(RAY_READY)  ## run the tests with Ray Train, in an environment of their own
	OMP_NUM_THREADS=1 $(RAY)/bin/python -m pytest $(if $(TESTS),$(TESTS),tests/ray_train)

lint: $(READY)  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(SITE_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

docs: $(READY)  ## make README, results, tables and pictures from the result files, then the site
	$(BIN)/python docs/render.py
	$(MAKE) --no-print-directory site

site: $(SITE_READY)  ## make the documentation site, out/site/index.html; a broken link stops it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

dist: $(READY)  ## make sdist and wheel in dist/, check what is in them, and try the wheel in an empty environment
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python .ci/check_dist.py dist
	$(PYTHON) -m venv --clear build/wheel-only
	build/wheel-only/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	build/wheel-only/bin/python .ci/check_wheel.py

bench: $(READY)  ## measure sampler and step costs on this machine, into benchmarks/results/
	$(BIN)/python benchmarks/sampler.py
	$(BIN)/python benchmarks/weighted_sampler.py
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/refit.py
	$(BIN)/python benchmarks/worker_transfer.py
	$(BIN)/python benchmarks/tokens.py
	$(BIN)/python -m benchmarks.distributed.one_rank
	$(BIN)/python -m benchmarks.distributed.exchange
	$(BIN)/python -m benchmarks.distributed.overhead

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) $(OTHER) $(RAY) build dist out .pytest_cache .ruff_cache .mypy_cache .hypothesis src/*.egg-info
