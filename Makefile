# Everything runs in .venv inside the checkout; each target sets up what it needs.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.stamp

.PHONY: setup warm demo test test-slow check format bench docs clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(STAMP)

warm: $(STAMP)  ## compile everything now, instead of when it is first asked for
	$(BIN)/icgi warm

demo: $(STAMP)  ## the five-minute tour
	$(BIN)/icgi demo

test: $(STAMP)  ## the fast suite
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup

test-slow: $(STAMP)  ## the suite that takes minutes
	$(BIN)/python -m pytest -q -m slow

check: $(STAMP)  ## format, lint, types, then the fast suite
	$(BIN)/ruff format --check src tests benchmarks docs
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/mypy
	$(MAKE) test

format: $(STAMP)
	$(BIN)/ruff format src tests benchmarks docs
	$(BIN)/ruff check --fix src tests benchmarks docs

bench: $(STAMP)  ## exact answers and speed against peers; set ICGI_DATA to the instances
	$(BIN)/python benchmarks/golden.py
	$(BIN)/python benchmarks/exact.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/parsing.py
	$(BIN)/python benchmarks/classical.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/ttve.py
	$(BIN)/python benchmarks/neural.py

docs: $(STAMP)  ## the list of files, the reference, the pictures, and the site in site/
	$(BIN)/python docs/layout.py
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/figures/which_engine.py
	$(BIN)/python docs/figures/terminal.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

clean:
	rm -rf site .venv .pytest_cache .mypy_cache .ruff_cache
