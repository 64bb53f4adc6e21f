# Everything a checkout needs. `make` alone lists the targets.

BUDGET ?= 10m
MODEL ?=
PYTHON ?=
MEMORY_LIMIT ?=
TORCH_INDEX ?=
CPU ?=
ARGS ?=
ARCH ?= qwen2.5-1.5b
OUT ?= $(CURDIR)/.bench/$(ARCH)

TOOL := $(CURDIR)/.venv
TRAINING := $(CURDIR)/.venv-train
PEERS := $(CURDIR)/.venv-search
RAY := $(CURDIR)/.venv-ray
OPEN_R1 := $(CURDIR)/.venv-openr1
SWIFT := $(CURDIR)/.venv-swift
VERL := $(CURDIR)/.venv-verl
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

# A container may give its user none. Studies and caches are then kept here.
ifeq ($(HOME),)
export HOME := $(CURDIR)/.home
endif

# Whatever the environment says: compiled once, not by each of the many processes that the tests start.
export PYTHONDONTWRITEBYTECODE =
export AUTOTUNE_TEST_PYTHON = $(TRAINING_PYTHON)
export AUTOTUNE_BUNDLED_MODEL = $(BUNDLED)
# Of the other frameworks: those made here, unless another is named; none is no failure.
export AUTOTUNE_OPENR1_PYTHON ?= $(wildcard $(CURDIR)/.venv-openr1/bin/python)
export AUTOTUNE_SWIFT_PYTHON ?= $(wildcard $(CURDIR)/.venv-swift/bin/python)
export AUTOTUNE_VERL_PYTHON ?= $(wildcard $(CURDIR)/.venv-verl/bin/python)
OTHERS = $(strip $(AUTOTUNE_OPENR1_PYTHON) $(AUTOTUNE_SWIFT_PYTHON) $(AUTOTUNE_VERL_PYTHON))
NO_OTHERS = $(if $(OTHERS),, and not frameworks)

.DEFAULT_GOAL := help
.PHONY: help setup setup-tool setup-training start test-unit test test-slow test-full test-frameworks check openapi knob-table bench-gpu bench-api \
	docs env-search env-ray test-ray env-openr1 env-swift env-verl lock lock-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
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

# As many at a time as there are cores, a file by one worker for what its tests share, long ones (tests/e2e) first;
# then one by one what another test would disturb, also where one of the first has failed. 5 says that ARGS names no such test, or none of the others.
PYTEST = "$(TOOL)/bin/python" -m pytest -q --durations=25 $(2)
RUN_TESTS = began=$$(date +%s); status=5; failed=; for how in "not alone:-n auto --dist loadfile --no-loadscope-reorder" "alone:-n 0"; do \
		$(PYTEST) -m "$$(echo '$(1)' "$${how%%:*}$(NO_OTHERS)")" $${how\#\#*:} $(ARGS); ended=$$?; \
		case $$ended in 5) ;; 0) status=$${failed:-0} ;; 2|130) exit $$ended ;; *) status=$$ended failed=$$ended ;; esac; \
	done; echo "make $@: $$(($$(date +%s) - began)) s of tests"; exit $$status

test-unit: setup-tool ## the tests that need neither torch nor a browser, in minutes
	@$(call RUN_TESTS,unit and)

test: setup ## test-unit and real short trials
	@$(call RUN_TESTS,not slow and not full and)

test-slow: setup ## a real study that is killed and resumed, export and verify, parity with TRL, the pages in a browser, PostgreSQL
	@$(call RUN_TESTS,slow and not full and)

test-full: setup ## every test there is, for hours: all of the above, and what .ci/run leaves out
	@$(call RUN_TESTS,,--hypothesis-profile=full)

test-frameworks: setup-tool ## the tests in Open-R1's, ms-swift's and verl's own environments; skipped, with the reason, where one is missing
	"$(TOOL)/bin/python" -m pytest -q -m frameworks -rs $(ARGS)

test-ray: env-ray setup-training ## the tests on a Ray cluster of four nodes with made-up GPUs, in the tool's environment with Ray
	"$(RAY)/bin/python" -m pytest -q -n 0 -rs tests/contracts/test_ray_runner.py tests/e2e/test_ray_doctor.py \
		tests/e2e/test_ray_study.py tests/e2e/test_gang_study.py tests/e2e/test_ray_faults.py $(ARGS)

check: setup-tool ## ruff, mypy, the import rules, Python 3.10 syntax in the child, and that every test can be collected
	"$(TOOL)/bin/ruff" check .
	"$(TOOL)/bin/ruff" format --check .
	"$(TOOL)/bin/mypy" --strict $(PACKAGES)
	"$(TOOL)/bin/lint-imports"
	"$(TOOL)/bin/ruff" check --target-version py310 trainer/child
	"$(TOOL)/bin/python" -m tools.old_syntax trainer/child
	"$(TOOL)/bin/python" -m tools.openapi --check
	"$(TOOL)/bin/python" -m tools.knob_table --check
	"$(TOOL)/bin/python" -m pytest --collect-only -qq >/dev/null || "$(TOOL)/bin/python" -m pytest --collect-only -qq

openapi: setup-tool ## write docs/openapi.json and its examples anew, after a change of the API that is meant
	"$(TOOL)/bin/python" -m tests.support.api_examples
	"$(TOOL)/bin/python" -m tools.openapi

knob-table: setup-tool ## write the table of frameworks and knobs in docs/frameworks.md, after a change of the catalogue
	"$(TOOL)/bin/python" -m tools.knob_table

docs: setup-tool ## the documents as a site, in build/site; fails at a link that leads nowhere
	rm -rf build/site-pages && mkdir -p build/site-pages/benchmarks
	cp -r docs CONTRIBUTING.md CHANGELOG.md SECURITY.md build/site-pages && cp README.md build/site-pages/index.md
	cp -r benchmarks/tables build/site-pages/benchmarks && cp LICENSE build/site-pages
	"$(TOOL)/bin/mkdocs" build --strict --quiet

bench-api: setup-tool ## readers, listeners and a writer on a study of 10,000 trials, in 7 minutes (ARGS=)
	"$(TOOL)/bin/python" -m benchmarks.api $(ARGS)

bench-gpu: setup ## questions, a study of eight minutes and the GPU tests on this GPU, as far as ten minutes hold them (OUT=)
	@"$(TOOL)/bin/python" -m benchmarks.gpu.visit --arch "$(ARCH)" --out "$(OUT)" --work "$(OUT)/work" --python "$(TRAINING_PYTHON)" $(ARGS)

env-search: ## the tool beside torch, for the Gaussian process of `python -m benchmarks.worlds`: .venv-search
	@$(RUN_SETUP) --tool-only --peers "$(PEERS)" $(if $(TORCH_INDEX),--torch-index "$(TORCH_INDEX)")

env-ray: ## the tool's environment with Ray, for make test-ray: .venv-ray
	@$(RUN_SETUP) --tool-only --ray "$(RAY)"

env-openr1: ## the environment of Open-R1's versions, without a GPU: .venv-openr1 (its checkout is yours)
	@$(RUN_SETUP) --tool-only --open-r1 "$(OPEN_R1)" $(if $(TORCH_INDEX),--torch-index "$(TORCH_INDEX)")

env-swift: ## the environment of ms-swift, for `autotune start --framework swift --python`: .venv-swift
	@$(RUN_SETUP) --tool-only --swift "$(SWIFT)" $(if $(TORCH_INDEX),--torch-index "$(TORCH_INDEX)")

env-verl: ## verl's own configuration and checks, on a CPU: .venv-verl
	@$(RUN_SETUP) --tool-only --verl "$(VERL)" $(if $(TORCH_INDEX),--torch-index "$(TORCH_INDEX)")

lock: setup-tool ## make the lock files anew, keeping the versions that still resolve
	tools/lock.sh "$(TOOL)/bin/uv" $(ARGS)

lock-check: setup-tool ## resolve every lock again without installing it, and compare
	tools/lock.sh "$(TOOL)/bin/uv" --check

clean: ## remove the environments, the bundled model and all caches; studies are kept
	rm -rf .venv .venv-train .venv-search .venv-ray .venv-openr1 .venv-swift .venv-verl .models build *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
