# make demo   set everything up, then show three parties as processes train over TLS; PROTOCOL=NAME chooses how
# make test   set everything up, then lint, type-check and run every test
# make fast   the two-minute subset of the tests
PYTHON ?= python3
PROTOCOL ?= lattice
BIN := .venv/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard native/* native/*/*)

.PHONY: demo test fast check clean

demo: .venv/installed
	$(BIN)/veilboost demo --protocol $(PROTOCOL) --keep

test: check
	$(BIN)/python -m pytest -n 2 --dist worksteal

fast: .venv/installed
	$(BIN)/python -m pytest -m fast

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

# Editable: Python changes show at once, native changes rebuild by this rule.
.venv/installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist
