# Every target sets itself up: from a fresh clone only Python 3.11+ is needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
EXTRAS := $(VENV)/.extras
SITE   := $(VENV)/.site

.PHONY: demo test test-all test-nodes check lock docs notebooks screenshots hospitals bench bench-console bench-deploy bench-peers bench-versions house mutants clean
.DEFAULT_GOAL := help
.NOTPARALLEL:

help:            ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ui,dev]'
	@touch $(READY)

# The tests of real nodes, clusters, exports, own data and the documentation need these extras.
$(EXTRAS): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[flower,ray,ui,tensorboard,mlflow,onnx,wandb,optuna,pandas,polars,datasets,images,torchmetrics,docs,dev]'
	@touch $(READY) $(EXTRAS)

$(SITE): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs,flower]'
	@touch $(SITE)

demo: $(READY)   ## six questions to 50 unequal clients, in a minute, offline; writes report.html
	$(BIN)/poise demo

# One thread per process: test processes with two threads each only compete for the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest

test: $(EXTRAS)  ## test every capability once, within six minutes
	$(PYTEST) -n 4 --dist loadgroup -m "not long and not thorough"

test-all: $(EXTRAS) ## run all tests but those of test-nodes, within 25 minutes
	$(PYTEST) -n 4 --dist loadgroup -m "not long"

test-nodes: $(EXTRAS) ## run the tests that keep real nodes busy for minutes
	$(BIN)/pytest -m long tests

check: $(READY)  ## lint, types, import rules
	$(BIN)/ruff check src tests benchmarks examples tools
	$(BIN)/ruff format --check src tests benchmarks examples tools
	$(BIN)/mypy
	$(BIN)/lint-imports

lock: $(READY)   ## write the versions and hashes of all dependencies anew: requirements.lock and requirements-dev.lock
	$(BIN)/python tools/lock.py

house: $(READY)  ## count the habits that make src hard to read, beside three code bases that read well
	$(BIN)/python tools/house.py

mutants: $(READY) ## change one operator or constant at a time, and list the changes that no test notices
	$(BIN)/python tools/mutants.py $(MUTANTS)

bench: $(READY)  ## measure rounds against plain PyTorch loops, and samplers; write docs/benchmarks.md
	$(BIN)/python benchmarks/foundation.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/samplers.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/asynchronous.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/durability.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/kernels.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/optimizers.py

hospitals: $(EXTRAS) ## four hospitals on real nodes of this machine; needs the data set heart-disease
	$(BIN)/python examples/hospitals/run.py

bench-deploy: $(EXTRAS) ## measure a Ray cluster against one process, and real nodes against a bare Flower app
	$(BIN)/python benchmarks/cluster.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/deployed.py --write docs/benchmarks.md

docs: $(SITE)    ## write the documentation into site/, to be read without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

notebooks: $(READY)  ## write the notebooks of the examples anew
	$(BIN)/python tools/notebooks.py

screenshots: $(EXTRAS) ## take the pictures of the console anew, in a real browser
	$(BIN)/pytest tests/ui/browser --screenshots docs/images/console

bench-console: $(EXTRAS) ## measure the console with 100 runs of 1,000 rounds and 100 clients; needs 2 GB of disk
	$(BIN)/python benchmarks/console.py --write docs/benchmarks.md

bench-versions: $(READY) ## measure this checkout against another revision, in turns: make bench-versions BASE=REV
	$(BIN)/python benchmarks/versions.py --base $(BASE)

bench-peers: $(READY) ## measure Flower, pfl-research, FedJAX and a plain loop on the same work, each in its own environment
	$(BIN)/python benchmarks/peers/environments.py
	$(BIN)/python benchmarks/peers/run.py --write docs/benchmarks.md

clean:           ## remove what was installed and made
	rm -rf $(VENV) benchmarks/peers/.envs benchmarks/peers/.data benchmarks/peers/.results
	rm -rf site runs report.html .pytest_cache .mypy_cache .ruff_cache
