# Everything a checkout needs. `make` alone lists the targets.

BUDGET ?= 10m
MODEL ?=
PYTHON ?=
MEMORY_LIMIT ?=
TORCH_INDEX ?=
CPU ?=
ARGS ?=
ARCH ?= qwen2.5-0.5b
OUT ?= $(CURDIR)/.bench/$(ARCH)

TOOL := $(CURDIR)/.venv
TRAINING := $(CURDIR)/.venv-train
BUNDLED := $(CURDIR)/.models/SmolLM2-135M-Instruct
TRAINING_PYTHON := $(or $(PYTHON),$(TRAINING)/bin/python)
PACKAGES := autotune search_spaces trainer api tools

# The newest thing asked of the Python that is there: 3.11, with venv. It may be called anything.
FIND_PYTHON = for name in $(BOOTSTRAP) python3.11 python3.12 python3.13 python3 python; do \
	"$$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$name"; exit; }; done
RUN_SETUP = python=$$($(FIND_PYTHON)); \
	test -n "$$python" || { echo "error: no Python 3.11 or newer with venv found; name one with BOOTSTRAP=/path/to/python" >&2; exit 1; }; \
	"$$python" -m tools.setup --tool "$(TOOL)" --training "$(TRAINING)"
STACK = $(if $(PYTHON),--python "$(PYTHON)") $(if $(CPU),--cpu) $(if $(TORCH_INDEX),--torch-index "$(TORCH_INDEX)")

export AUTOTUNE_TEST_PYTHON = $(TRAINING_PYTHON)
export AUTOTUNE_BUNDLED_MODEL = $(BUNDLED)

.DEFAULT_GOAL := help
.PHONY: help setup setup-tool setup-training start test test-slow check bench-gpu lock lock-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Variables: BUDGET=$(BUDGET) MODEL= PYTHON= (your own training environment) MEMORY_LIMIT= CPU=1"
	@echo "           TORCH_INDEX= (package index to take torch from) ARGS= (more options for autotune start)"

setup: ## make the tool, the training stack and the bundled model ready
	@$(RUN_SETUP) $(STACK) --model "$(BUNDLED)"

setup-tool:
	@$(RUN_SETUP) --tool-only

setup-training:
	@$(RUN_SETUP) $(STACK) $(if $(MODEL),,--model "$(BUNDLED)")

start: setup-training ## set up what is missing, then tune MODEL (default: the bundled one) within BUDGET
	@"$(TOOL)/bin/autotune" start --budget "$(BUDGET)" --model "$(or $(MODEL),$(BUNDLED))" --python "$(TRAINING_PYTHON)" \
		$(if $(MEMORY_LIMIT),--memory-limit "$(MEMORY_LIMIT)") $(ARGS)

# Real training takes all cores, so it goes one by one; 5 says that ARGS names no such test, or none of the others.
test: setup ## the tests that need no long real run
	@status=5; for marks in "not slow and not trl:-n auto" "not slow and trl:-n 0"; do \
		"$(TOOL)/bin/python" -m pytest -q -m "$${marks%%:*}" $${marks##*:} $(ARGS); ended=$$?; \
		case $$ended in 5) ;; 0) status=0 ;; *) exit $$ended ;; esac; \
	done; exit $$status

test-slow: setup ## the tests on the bundled model and other long real runs
	"$(TOOL)/bin/python" -m pytest -q -m slow $(ARGS)

check: setup-tool ## ruff, mypy, the import rules, Python 3.10 syntax in the child, and that every test can be collected
	"$(TOOL)/bin/ruff" check .
	"$(TOOL)/bin/ruff" format --check .
	"$(TOOL)/bin/mypy" --strict $(PACKAGES)
	"$(TOOL)/bin/lint-imports"
	"$(TOOL)/bin/ruff" check --target-version py310 trainer/child
	"$(TOOL)/bin/python" -m tools.old_syntax trainer/child
	"$(TOOL)/bin/python" -m pytest --collect-only -qq >/dev/null || "$(TOOL)/bin/python" -m pytest --collect-only -qq

bench-gpu: setup ## GPU tests and a table of real trials of ARCH on this GPU, a slice of 9 minutes a call (OUT=)
	@"$(TOOL)/bin/python" -m benchmarks.gpu --arch "$(ARCH)" --out "$(OUT)" --python "$(TRAINING_PYTHON)" $(ARGS)

lock: setup-tool ## make the lock files anew, keeping the versions that still resolve
	"$(TOOL)/bin/python" -m tools.lock $(ARGS)

lock-check: setup-tool ## resolve every lock again without installing it, and compare
	"$(TOOL)/bin/python" -m tools.lock --check

clean: ## remove the environments, the bundled model and all caches; studies are kept
	rm -rf .venv .venv-train .models .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
