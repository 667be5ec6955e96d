# Every target sets itself up: from a fresh clone only Python 3.11+ is needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
SITE   := $(VENV)/.site

.PHONY: demo test check bench docs notebooks clean
.DEFAULT_GOAL := help

help:            ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

$(SITE): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $(SITE)

demo: $(READY)   ## train on data that ships with scikit-learn, print a table, write report.html
	$(BIN)/poise demo

test: $(READY)   ## run the tests
	$(BIN)/pytest -n 2 --dist loadgroup

check: $(READY)  ## lint, types, import rules
	$(BIN)/ruff check src tests benchmarks examples tools
	$(BIN)/ruff format --check src tests benchmarks examples tools
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## measure rounds against plain PyTorch loops, and samplers; write docs/benchmarks.md
	$(BIN)/python benchmarks/foundation.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/samplers.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/asynchronous.py --write docs/benchmarks.md

docs: $(SITE)    ## write the documentation into site/, to be read without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

notebooks: $(READY)  ## write the notebooks of the examples anew
	$(BIN)/python tools/notebooks.py

clean:           ## remove what was installed and made
	rm -rf $(VENV) site runs report.html .pytest_cache .mypy_cache .ruff_cache
