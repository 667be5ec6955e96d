# Every target sets itself up: from a fresh clone only Python 3.11+ is needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
EXTRAS := $(VENV)/.extras

.PHONY: demo test check bench bench-deploy bench-peers hospitals clean
.DEFAULT_GOAL := help

help:            ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

# Flower and Ray, for the tests that start real nodes and a real cluster
$(EXTRAS): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[flower,ray,dev]'
	@touch $(EXTRAS)

demo: $(READY)   ## train on data that ships with scikit-learn, print a table, write report.html
	$(BIN)/poise demo

test: $(EXTRAS)  ## run the tests
	$(BIN)/pytest -n 2 --dist loadgroup

check: $(READY)  ## lint, types, import rules
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## measure rounds against plain PyTorch loops, and samplers; write docs/benchmarks.md
	$(BIN)/python benchmarks/foundation.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/samplers.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/asynchronous.py --write docs/benchmarks.md

hospitals: $(EXTRAS) ## four hospitals on real nodes of this machine; needs the data set heart-disease
	$(BIN)/python examples/hospitals/run.py

bench-deploy: $(EXTRAS) ## measure a Ray cluster against one process, and real nodes against a bare Flower app
	$(BIN)/python benchmarks/cluster.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/deployed.py --write docs/benchmarks.md

bench-peers: $(READY) ## measure Flower, pfl-research, FedJAX and a plain loop on the same work, each in its own environment
	$(BIN)/python benchmarks/peers/environments.py
	$(BIN)/python benchmarks/peers/run.py --write docs/benchmarks.md

clean:           ## remove what was installed and made
	rm -rf $(VENV) benchmarks/peers/.envs benchmarks/peers/.data benchmarks/peers/.results runs report.html .pytest_cache .mypy_cache .ruff_cache
