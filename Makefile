# make demo   set everything up, then show three parties as processes train over TLS; PROTOCOL=NAME chooses how
# make test   set everything up, then lint, type-check and run every test
# make fast   the two-minute subset of the tests
# make sanitize   the tests of every C++ kernel under AddressSanitizer and UndefinedBehaviorSanitizer
PYTHON ?= python3
PROTOCOL ?= lattice
BIN := .venv/bin
# `native/lattice` is a folder: without this make would compile lattice.cpp into a program of that name.
MAKEFLAGS += --no-builtin-rules
SOURCES := pyproject.toml CMakeLists.txt $(wildcard native/* native/*/*)

.PHONY: demo test fast check browser sanitize clean

demo: .venv/installed
	$(BIN)/veilboost demo --protocol $(PROTOCOL) --keep

test: check browser
	VEILBOOST_ARTEFACTS=out/artefacts $(BIN)/python -m pytest -n 2 --dist worksteal

fast: .venv/installed
	$(BIN)/python -m pytest -m fast

# The kernels are built a second time, in an environment that borrows the packages of `.venv`. Python's own allocator
# is left out, so that small arrays are watched too. A run that leaves out a kernel fails.
KERNEL_TESTS := tests/unit/boost/test_kernels.py tests/unit/crypto tests/unit/protocols/test_mal_stumps.py \
  tests/unit/protocols/test_masked_kernels.py tests/unit/secure_inference/test_lattice.py
sanitize: .venv/installed
	$(BIN)/python -m venv --without-pip out/sanitize
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
	  > "$$(out/sanitize/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/dependencies.pth"
	$(BIN)/python -m pip --python out/sanitize/bin/python install --quiet --no-deps --ignore-installed \
	  -C cmake.define.VEILBOOST_SANITIZE=ON -C build-dir=out/sanitize/build .
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	  PYTHONMALLOC=malloc PYTHONPATH=tests out/sanitize/bin/python -m pytest -q -p kernels_called -p no:cacheprovider \
	  $(KERNEL_TESTS)

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

# Pages are looked at in a real browser. Where none can be had, those tests are skipped and say so.
browser:
	@command -v chromedriver >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	  && { apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null 2>&1 \
	    || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; } >/dev/null; }; } \
	  || echo "no Chromium with its driver: tests of pages in a browser will be skipped"

# Editable: Python changes show at once, native changes rebuild by this rule.
.venv/installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist

# The documentation as a site in out/site. A broken link or a page outside the navigation fails the build.
.PHONY: docs
docs: .venv/documentation
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open out/site/index.html"

# The extra's packages only. The name, not a path, so that pip does not build the native code again.
.venv/documentation: .venv/installed
	$(BIN)/python -m pip install --quiet 'veilboost[docs]'
	touch $@
