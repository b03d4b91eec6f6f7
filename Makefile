# Every target makes what it needs; a second run installs nothing.
#
#   PYTHON=python3.12        interpreter for the virtual environment (3.11 or later)
#   UV_FIND_LINKS=folder     extra wheels; taken from PIP_FIND_LINKS where that is set
#   UV_TORCH_BACKEND=cpu     another build of torch (cpu, cu126, auto, …; read by uv)

SHELL := /bin/bash
PYTHON ?= python3
SCALE ?= laptop
OUT ?= results
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
INSTALL = $(UV) pip install --quiet --python $(BIN)/python -c constraints.txt
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
export UV_COMPILE_BYTECODE ?= 1

PAPERS := $(patsubst packages/%/pyproject.toml,%,$(wildcard packages/*/pyproject.toml))
EVERYTHING := $(VENV)/.dev $(PAPERS:%=$(VENV)/.paper-%)
RUN_OPTIONS = --scale $(SCALE) --out "$(OUT)" $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FIRST_SEED),--first-seed $(FIRST_SEED)) \
	$(if $(JOBS),--jobs $(JOBS)) $(if $(EXPERIMENT),--experiment $(EXPERIMENT))
# One clear line for a paper that does not exist, then the paper's own installation.
define prepare
@[ -f packages/$1/pyproject.toml ] || { echo "no paper '$1'; papers: $(PAPERS)" >&2; exit 2; }
@$(MAKE) --no-print-directory $(VENV)/.paper-$1
endef

.DEFAULT_GOAL := help
.PHONY: help test check bench report lint format clean constraints reproduce-all

help: ## this list
	@echo "make reproduce-<paper>   run a paper and judge its claims (SCALE=smoke|laptop|paper SEEDS=n FIRST_SEED=k JOBS=n EXPERIMENT=name)"
	@echo "make test-<paper>        the paper's own tests"
	@echo "make bench-<paper>       the paper's timings against its peers"
	@echo "make record-<paper>      write a finished run's numbers to the baseline and the README (SCALE=…)"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1|/' | awk -F'|' '{printf "%-24s %s\n", $$1, $$2}'
	@echo "papers: $(PAPERS)"

reproduce-%:
	$(call prepare,$*)
	@$(BIN)/claimlab assets fetch --paper $*
	@$(BIN)/claimlab run $* $(RUN_OPTIONS)

reproduce-all: ## every paper, one after the other
	@for paper in $(PAPERS); do $(MAKE) --no-print-directory reproduce-$$paper || failed="$$failed $$paper"; done; \
	[ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

test: $(EVERYTHING) ## all tests, smoke reproduction of every paper, regression check
	@$(BIN)/claimlab assets fetch $(PAPERS:%=--paper %)
	@$(BIN)/python -m pytest

test-%: $(VENV)/.dev
	$(call prepare,$*)
	@$(BIN)/claimlab assets fetch --paper $*
	@$(BIN)/python -m pytest packages/$*

check: $(EVERYTHING) ## compare with the recorded numbers (SCALE=smoke unless given)
	@$(BIN)/claimlab assets fetch $(PAPERS:%=--paper %)
	@$(BIN)/claimlab check --scale $(if $(filter file,$(origin SCALE)),smoke,$(SCALE)) --out "$(OUT)"

bench: $(EVERYTHING) ## timings against peers, side by side
	@$(BIN)/python -m pytest benchmarks -o python_files='bench_*.py' -p no:cacheprovider

bench-%: $(VENV)/.dev
	$(call prepare,$*)
	@$(BIN)/python -m pytest benchmarks/bench_$(subst -,_,$*).py -o python_files='bench_*.py' -p no:cacheprovider

record-%:
	$(call prepare,$*)
	@$(BIN)/claimlab record $* --scale $(SCALE) --out "$(OUT)"

report: $(EVERYTHING) ## the recorded claims as a site (site/index.html); brings the scoreboard and the READMEs up to date
	@$(BIN)/claimlab report --readme README.md --out site --results "$(OUT)"

lint: $(EVERYTHING) ## ruff and basedpyright
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/basedpyright

format: $(VENV)/.dev ## ruff's formatter and its safe fixes
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

constraints: $(UV) ## resolve constraints.txt anew
	@echo '# Exact versions of everything, on every platform; written by `make constraints`. The one place where versions are pinned.' > $@.new
	@UV_FIND_LINKS= $(UV) pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header \
		--no-emit-package claimlab --constraint constraints.in --all-extras --group dev \
		shared/pyproject.toml packages/*/pyproject.toml >> $@.new
	@mv $@.new constraints.txt

clean: ## remove the environment, results and caches
	rm -rf $(VENV) $(OUT) site .pytest_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(UV): constraints.txt
	@$(PYTHON) -c 'import sys, venv; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, this is " + sys.version)'
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet -c constraints.txt uv
	@touch $@

$(VENV)/.dev: pyproject.toml shared/pyproject.toml constraints.txt $(UV)
	@$(INSTALL) --group dev -e shared
	@touch $@

$(VENV)/.paper-%: packages/%/pyproject.toml shared/pyproject.toml constraints.txt $(UV)
	@$(INSTALL) -e shared -e packages/$*
	@touch $@
