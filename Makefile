# Everything a contributor or a curious user types. `make` alone lists it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' gpushare/__init__.py)

.DEFAULT_GOAL := help
.PHONY: help demo test e2e check bench soak screenshots proto image clean

help:  ## list what can be made
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(VENV)/.ready  ## start a cluster in processes on this machine and watch pods arrive on cards (KEEP=1: keep it up)
	@$(BIN)/gpushare-sandbox demo $(if $(KEEP),--keep)

test: $(VENV)/.ready  ## run every test
	$(BIN)/python -m pytest --numprocesses auto

e2e: $(VENV)/.ready  ## test against a real Kubernetes, whose binaries KUBEBUILDER_ASSETS names the folder of
	$(BIN)/python -m pytest tests/e2e

check: $(VENV)/.ready  ## format, lint, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.ready  ## measure what the design promises, as ratios in one run
	@$(BIN)/python -m tests.bench

soak: $(VENV)/.ready  ## generated histories and hostile bodies for MINUTES (default 5); prints what it tried
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),5)

screenshots: $(VENV)/.ready  ## draw docs/img/ anew, with Chromium
	@$(BIN)/python -m tests.ui.screenshots

proto: $(VENV)/.ready  ## generate deviceplugin/kubeletapi from proto/
	@$(BIN)/python proto/generate.py

image:  ## build the image IMAGE (default gpushare:VERSION) of both programs, with DOCKER (default docker)
	$(or $(DOCKER),docker) build --tag $(or $(IMAGE),gpushare:$(VERSION)) .

clean:  ## remove the virtual environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
