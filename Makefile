# Everything sets itself up: `make demo` and `make test` work on a fresh clone with Python 3.11 or newer.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: venv demo up test check bench study simulate chaos fidelity format clean

venv: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "bacepipe needs Python 3.11 or newer on the PATH (or: make PYTHON=/path/to/python)"; exit 1; }
	@echo "Installing into $(VENV); PyTorch is large, so this takes some minutes the first time."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[all]'
	@touch $@

demo: venv
	$(BIN)/bace demo

up: venv
	$(BIN)/bace up --demo

# Four processes for two cores: those with real servers and workers mostly wait. They and the hundreds of programs that they
# start share machine code and bytecode, so that is kept even where the environment says that none is to be. A part of the tests
# (ARGS) makes what it needs itself.
test: export PYTHONDONTWRITEBYTECODE =
test: venv
	$(if $(ARGS),,$(BIN)/python -m tests.warm_up)
	$(BIN)/python -m pytest -m "not perf" -n 4 --dist loadgroup $(ARGS)

check: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The speed gates, then a tenth of the benchmark where its data is (minutes; BACE_DATA_DIR says where).
bench: venv
	$(BIN)/python -m pytest tests/perf -m perf -s -p no:randomly -p no:xdist $(ARGS)
	@if [ -n "$$BACE_DATA_DIR" ]; then $(BIN)/bace bench --fraction 0.1 --out out/bench; \
	else echo "BACE_DATA_DIR is not set: the benchmark's grids are left out"; fi

# The whole benchmark on the draws that nothing was tuned on. Hours; stopped, it goes on where it was.
study: venv
	$(BIN)/bace bench --split held-out --out out/study $(ARGS)

# The whole control plane on a virtual clock, under faults; a line of JSON a seed. 1 if a rule was broken.
SEEDS ?= 1:40
SIM_SECONDS ?= 300
AGENTS ?= 20
simulate: venv
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --seconds $(SIM_SECONDS) --agents $(AGENTS) $(ARGS)

# Real servers, agents and workers, killed, paused, cut off and out of disk; a table and a line of JSON. 1 if a rule was broken.
MINUTES ?= 30
DATABASE ?= sqlite
SEED ?= 1
chaos: venv
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) --database $(DATABASE) --seed $(SEED) $(ARGS)

# What the timeline predicts against what real stage workers take between network namespaces (root, five minutes); a line
# of JSON a case. 1 if the predictions are further off than docs/pipelines.md says.
fidelity: venv
	@$(BIN)/python -m tests.fidelity $(ARGS)

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .bace out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
