# make demo   a real model with a real failure, from nothing to a minimal case: sets itself up in .venv
# make bench  measures what campaigns/benchmarks.md tells, and goes on where it was stopped (ARGS="--list", names, --keep: into that page)
# make faults kills sessions at 1000 moments (NARROWDOWN_FAULTS=N for fewer) and prints a table
# make faults-mutants  breaks the promises behind it one by one; the campaign must notice each
# make fuzz   reads damaged files of every kind (NARROWDOWN_FUZZ=N for fewer) and prints a table
# make fuzz-mutants  breaks the promises behind it one by one; the campaign must notice each
# make forged opens forged sessions at every door (NARROWDOWN_FORGED=N, NARROWDOWN_SEED=S) and prints a table: nothing may run
# make field  asks the product about models of strangers, and scores it (ARGS="--only silero_vad --out DIR"); it takes hours
# make test   lint, types, import rules and the fast test suite
.POSIX:
.PHONY: demo test test-slow bench screenshots faults faults-mutants fuzz fuzz-mutants forged field lint check-format wheel clean

VENV = .venv
BIN = $(VENV)/bin
ARGS =
INSTALL = editable

demo: $(VENV)/.demo
	@$(BIN)/narrowdown demo $(ARGS)

test: lint
	@.ci/suite $(VENV) $(INSTALL) $(ARGS)

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow $(ARGS) tests campaigns
	$(BIN)/python -m pytest $(ARGS) campaigns
	$(BIN)/python -m pytest -m "hypothesis and not slow and not gpu and not fuzz" $(ARGS) || [ $$? -eq 5 ]

bench: $(VENV)/.dev
	$(BIN)/python campaigns/benchmarks/bench.py $(ARGS)

screenshots: $(VENV)/.dev
	$(BIN)/python -P docs/screenshots/take.py
	$(BIN)/python -P docs/screenshots/moving.py

faults: $(VENV)/.dev
	$(BIN)/python campaigns/faults/fault_run.py $(ARGS)

faults-mutants: $(VENV)/.dev
	$(BIN)/python campaigns/faults/fault_mutants.py $(ARGS)

fuzz: $(VENV)/.dev
	$(BIN)/python -m pytest -m fuzz $(ARGS) campaigns/fuzz

fuzz-mutants: $(VENV)/.dev
	$(BIN)/python campaigns/fuzz/mutants.py $(ARGS)

forged: $(VENV)/.dev
	$(BIN)/python -m pytest -s -m fuzz $(ARGS) campaigns/forged

field: $(VENV)/.dev
	$(BIN)/python campaigns/field/campaign.py --out build/field $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

wheel: $(VENV)/.dev
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.demo: pyproject.toml constraints.txt .ci/setup
	@.ci/setup demo $(VENV)
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt .ci/setup
	@.ci/setup demo,openvino,cluster,agent,dev $(VENV)
	@touch $@ $(VENV)/.demo
