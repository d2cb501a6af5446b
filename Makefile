# make demo       install VeilBoost, then train three parties as processes over TLS; PROTOCOL=NAME selects the protocol
# make test       install the development tools too, then lint, type-check and run every test
# make fast       run the two-minute subset of the tests
# make check      lint, type-check and verify the import rules
# make docs       build the documentation as a site in out/site; a broken link or an unlisted page fails
# make drill      strike every process of a short job everywhere, fuzz all input, soak the daemons: hours; results in out/drill
# make sanitize   run the tests of every C++ kernel under AddressSanitizer and UndefinedBehaviorSanitizer
PYTHON ?= python3
PROTOCOL ?= lattice
BIN := .venv/bin
# `native/lattice` is a folder: without this make would compile lattice.cpp into a program of that name.
MAKEFLAGS += --no-builtin-rules
SOURCES := pyproject.toml CMakeLists.txt $(wildcard native/* native/*/*)

.PHONY: demo test fast check browser docs drill sanitize clean

demo: .venv/installed
	$(BIN)/veilboost demo --protocol $(PROTOCOL) --keep

# Compiled modules are kept, because the tests start hundreds of processes that load them.
test: check browser
	VEILBOOST_ARTEFACTS=out/artefacts PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/out/pycache $(BIN)/python -m pytest -n 2 --dist worksteal

fast: .venv/developer
	$(BIN)/python -m pytest -m fast

# Every kill of every protocol, a sample of all other faults, a million inputs, 200 jobs and 100,000 scores.
DRILL := $(BIN)/python tests/drill
drill: .venv/developer
	mkdir -p out/drill
	$(DRILL)/drill.py --kinds kill-file kill-message --out out/drill/kills.jsonl
	$(DRILL)/drill.py --per 5 --out out/drill/faults.jsonl
	$(DRILL)/fuzz.py --out out/drill/inputs.json
	$(DRILL)/fuzz.py --jobs 500 --out out/drill/messages.json
	$(DRILL)/deployments.py --out out/drill/deployments.jsonl
	$(DRILL)/drill.py --engine disk --protocols plain --kinds kill-file kill-message --out out/drill/disk.jsonl
	$(DRILL)/participants.py > out/drill/participants.json
	$(DRILL)/dropouts.py --deaf > out/drill/dropouts.json
	$(DRILL)/soak.py --out out/drill/soak.json --plot out/drill/soak.svg

# Builds the kernels a second time, in an environment that uses the packages of `.venv`. Python's own allocator is off,
# so that small arrays are checked too. A run that does not call every kernel fails.
KERNEL_TESTS := tests/unit/align/test_align_primitives.py tests/unit/boost/test_arrays.py tests/unit/boost/test_kernels.py \
  tests/unit/boost/test_shap.py tests/unit/boost/test_threads.py tests/unit/crypto \
  tests/unit/infer/test_walk_kernels.py tests/unit/protocols/test_mal_stumps.py \
  tests/unit/protocols/test_masked_kernels.py tests/unit/secure_inference/test_lattice.py
sanitize: .venv/developer
	$(BIN)/python -m venv --without-pip out/sanitize
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
	  > "$$(out/sanitize/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/dependencies.pth"
	$(BIN)/python -m pip --python out/sanitize/bin/python install --quiet --no-deps --ignore-installed \
	  -C cmake.define.VEILBOOST_SANITIZE=ON -C build-dir=out/sanitize/build .
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	  PYTHONMALLOC=malloc PYTHONPATH=tests out/sanitize/bin/python -m pytest -q -p kernels_called -p no:cacheprovider \
	  $(KERNEL_TESTS)

check: .venv/developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

# Some tests open pages in a real browser. Without Chromium they are skipped with a message.
browser:
	@command -v chromedriver >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	  && { apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null 2>&1 \
	    || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; } >/dev/null; }; } \
	  || echo "no Chromium with its driver: tests of pages in a browser will be skipped"

docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open out/site/index.html"

.venv/docs: .venv/installed
	$(BIN)/python -m pip install --quiet 'veilboost[docs]'
	touch $@

# For users: VeilBoost and XGBoost, which the demo compares with. Editable, so Python changes need no new install;
# a change of native code or of pyproject.toml runs this rule again.
.venv/installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[compare]'
	touch $@

# For developers: the extra's packages only. The name, not a path, so that pip does not build the native code again.
.venv/developer: .venv/installed
	$(BIN)/python -m pip install --quiet 'veilboost[dev]'
	touch $@

clean:
	rm -rf .venv build dist
