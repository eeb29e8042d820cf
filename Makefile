# Every target sets up what it needs in $(VENV): Python 3.11 to 3.14 and make are enough.
# `make` alone says what there is.

VENV   ?= .venv
PYTHON ?=
JOBS   ?= auto
EXPERIMENT ?= ground
CRASHES ?= 500

BIN  := $(VENV)/bin
CORE := $(VENV)/.core-installed
DEV  := $(VENV)/.dev-installed
UV   := $(shell command -v uv 2>/dev/null)
SOURCES := src tests

# Tests of compiled code: they run a second time as plain Python, which coverage can see into.
KERNEL_TESTS := $(wildcard $(addprefix tests/test_,conformance*.py matcher*.py kernels*.py index*.py))
SOAK_TESTS   := $(addprefix tests/test_,faults.py server_faults.py server_kills.py server_simulated.py server_fuzz.py spark_stream_kills.py spark_state_kills.py)
KERNEL_CODE  := $(addprefix --cov=nearcast.,kernels index matcher)

# `--group` needs pip 25.1, and the pip that comes with Python may be older.
ifneq ($(UV),)
INSTALL := $(UV) pip install --quiet --python $(BIN)/python
else
PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check
INSTALL := $(PIP) 'pip>=25.1' && $(PIP)
endif

.DEFAULT_GOAL := help
.PHONY: help demo test soak check mutants bench serve constraints clean

help: ## this list
	@echo "nearcast: make <target>"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Variables: PYTHON (which interpreter), VENV ($(VENV)), JOBS (test workers), EXPERIMENT (bench)."

demo: $(CORE) ## a city matched live, people on the move, taxis through Spark, and a report
	@$(BIN)/nearcast demo

test: $(DEV) ## the whole suite, compiled; before it the kernels' tests as plain Python
	-@$(BIN)/nearcast doctor --warm
	NEARCAST_JIT=0 $(BIN)/python -m pytest -q -n $(JOBS) $(KERNEL_CODE) --cov-report=term:skip-covered $(KERNEL_TESTS)
	$(BIN)/python -m pytest -n $(JOBS)

soak: $(DEV) ## long campaigns: hundreds of crashes, kills, failing disks, nonsense for minutes (CRASHES=500)
	NEARCAST_CRASHES=$(CRASHES) $(BIN)/python -m pytest -q -n $(JOBS) $(SOAK_TESTS)

check: $(DEV) ## what CI asks first: style, types, import contracts, docs (their examples run in `test`)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -k 'not example_runs' tests/test_docs.py

mutants: $(DEV) ## do the tests notice changes to the code? (MUTANTS="--only cpsl --jobs 2")
	@$(BIN)/python -m tests.mutants $(MUTANTS)

bench: $(DEV) ## one experiment (EXPERIMENT=ground), a record, plots and a report
	@$(BIN)/nearcast bench $(EXPERIMENT)

serve: $(CORE) ## the server, on the demo's city
	@$(BIN)/nearcast serve --demo

constraints: $(DEV) ## write the versions installed now into constraints.txt
	@{ sed -n '/^#/p' constraints.txt; \
	   $(BIN)/python -m pip list --format=freeze --exclude-editable --exclude pip --exclude setuptools; \
	 } > $(VENV)/constraints.txt
	@mv $(VENV)/constraints.txt constraints.txt

clean: ## remove the environment and everything that was generated
	rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache \
	  .import_linter_cache .hypothesis src/*.egg-info
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing nearcast into $(VENV) …"
	@$(INSTALL) -c constraints.txt -e '.[spark,server,client,bench]'
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing nearcast and its tools into $(VENV) …"
	@$(INSTALL) -c constraints.txt -e '.[spark,text,server,client,bench,kafka,postgres,mqtt]' --group dev
	@touch $(CORE) $@

# The first interpreter that answers and fits wins. The newest that fits is the newest for
# which every pinned dependency has a wheel: nothing here needs a compiler.
$(BIN)/python:
	@set -e; found=; \
	for python in $(if $(PYTHON),"$(PYTHON)",python3 python3.14 python3.13 python3.12 python3.11 python); do \
	  if "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then \
	    found="$$python"; break; \
	  fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "nearcast needs Python 3.11 to 3.14, and $(if $(PYTHON),$(PYTHON) is not that,none was found)." >&2; \
	  echo "Install one (https://www.python.org/downloads/), or name it: make PYTHON=/path/to/python3.12" >&2; \
	  exit 1; \
	fi; \
	echo "creating $(VENV) with $$("$$found" --version)"; \
	if [ -n "$(UV)" ]; then \
	  "$(UV)" venv --quiet --seed --python "$$("$$found" -c 'import sys; print(sys.executable)')" $(VENV); \
	elif ! "$$found" -m venv $(VENV); then \
	  rm -rf $(VENV); \
	  echo "$$found cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv, or install uv" >&2; \
	  exit 1; \
	fi
