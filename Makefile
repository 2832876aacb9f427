# Every target sets up what it needs; nothing is installed outside .venv.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: help demo test lint types unit docs processes fuzz soak shuffle bench chaos slurm gpu clean

# The first Python from 3.11 to 3.13 that really starts; PYTHON=... chooses another.
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$name && break; done)
UV := $(shell command -v uv 2>/dev/null)
BIN := .venv/bin
READY := .venv/.ready
DEMO := .demo
# Settings with which two cores learn the sample in minutes; tests/benchmarks/bench_learning.py measures them by seed.
LEARN := --recipe quick --set model.backbone=resnet10t --set model.learning_rate=1e-3 --set data.image_size=64 \
	--set data.balance=pairs --set epochs=8
FACELESS := loaders/augment/background.yaml
# What `make fuzz` draws from, and how many times as many examples as `make test`; printed, so that a run can be repeated.
SEED := $(or $(SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' '))
FUZZ ?= 10
RUNS ?= 20
MINUTES ?= 120
# The run that `make shuffle` begins with: FIRST=8 RUNS=8 repeats the eighth, FIRST=8 goes on with it.
FIRST ?= 1
# A crashed process is not replaced: xdist would run the same test, and so the same crash, eight times more.
BY_FILE := --dist loadfile --max-worker-restart=0
# With bytecode kept: a test run starts hundreds of processes, each of which would compile all that it imports.
PARALLEL := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 $(BY_FILE) --no-loadscope-reorder --durations=10
# Files with property tests: to collect all others as well takes longer than to run these.
RANDOM := $(shell grep -rl --include='test_*.py' 'from hypothesis' tests)
# Tests whose outcome could depend on the order in which processes and threads get on.
CONCURRENT := $(addprefix tests/, $(addsuffix .py, loaders/batching/test_shared_pool \
	$(addprefix loaders/workers/test_, deaths leaks processes readahead) pipeline/commit/test_publish \
	pipeline/commit/test_lease pipeline/execution/test_decode_pool pipeline/execution/test_progress \
	pipeline/rows/test_prefetch pipeline/test_cli pipeline/test_precompute train/ladder/test_process \
	train/run/test_graceful_stop))

help:  ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | column -t -s "$$(printf '\t')"

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 to 3.13 found; name one: make PYTHON=/path/to/python3.12" >&2; exit 2; }
	@echo "setting up .venv with $$($(PYTHON) --version) (5.5 GB, mostly CUDA; some minutes the first time)"
ifdef UV
	@test -x $(BIN)/python || $(UV) venv --quiet --python "$(PYTHON)" .venv
	@$(UV) pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[dev]' pip  # pip: fetches the face mesh
else
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null  # uv makes .venv without
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
endif
	@XDG_CACHE_HOME="$(CURDIR)/.venv/cache" $(BIN)/facefeed models fetch face-mesh >/dev/null 2>&1 || echo "no face mesh (no network?): its tests will be skipped"
	@touch $@

demo: $(READY)  ## the whole way on a small sample: videos, faces, pages, a profile, a training that finds fakes and one without faces
	@rm -rf $(DEMO)
	$(BIN)/facefeed sample $(DEMO)/videos --groups 240
	$(BIN)/facefeed precompute $(DEMO)/videos $(DEMO)/faces --split-ratio 70,15,15 --boxes source
	$(BIN)/facefeed verify $(DEMO)/faces
	$(BIN)/facefeed inspect $(DEMO)/faces --page $(DEMO)/inspect.html
	$(BIN)/python -m facefeed.loaders $(DEMO)/faces
	$(BIN)/facefeed augment $(DEMO)/faces loaders/augment/example.yaml --page $(DEMO)/augment.html
	@# Fed or starved, the demo goes on: which of them depends on this machine.
	$(BIN)/facefeed profile $(DEMO)/faces --transform loaders/augment/example.yaml --batch-size 16 --step-ms 20 \
		--against naive --videos $(DEMO)/videos --page $(DEMO)/profile.html || [[ $$? == [14] ]]
	$(BIN)/facefeed ladder $(DEMO)/faces --videos $(DEMO)/videos --recipe quick --set data.image_size=64 --levers none --repeats 1 --steps 10 --page $(DEMO)/ladder.html
	@# Without the face there must be nothing to learn, else something but the face gives the fakes away.
	$(BIN)/facefeed train $(DEMO)/faces $(LEARN) --set data.transform=$(FACELESS) --set data.eval_transform=$(FACELESS) --run $(DEMO)/faceless
	$(BIN)/facefeed train $(DEMO)/faces $(LEARN) --run $(DEMO)/run
	@$(BIN)/python tests/demo/check_learning.py $(DEMO)/run $(DEMO)/faceless

# mypy's minute is one core's: the tests take the other one meanwhile.
test: lint  ## lint, types and the tests, but processes, chaos and slurm
	@$(MAKE) --no-print-directory --jobs=2 types unit

lint: $(READY)  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy, strict
	$(BIN)/mypy

unit: $(READY)  ## the tests alone
	$(PARALLEL) -m "not processes and not chaos and not slurm"

processes: $(READY)  ## tests of many seconds each, for they need whole commands, jobs of ranks, browsers, compilers
	$(PARALLEL) -m "processes and not chaos"

docs: $(READY)  ## the documentation as pages, docs/_build/index.html; a link that leads nowhere is an error
	NO_ALBUMENTATIONS_UPDATE=1 $(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build

fuzz: $(READY)  ## property tests with FUZZ times as many examples, new at every run; SEED=... repeats one
	@echo "make fuzz SEED=$(SEED) FUZZ=$(FUZZ)"
	FACEFEED_FUZZ=$(FUZZ) $(BIN)/pytest -m hypothesis --hypothesis-seed=$(SEED) --numprocesses 2 $(BY_FILE)

soak: $(READY)  ## MINUTES=120 of runs over a changing source, two ranks reading, kills and full disks; SEED=... repeats one
	@rm -rf .soak
	@echo "make soak MINUTES=$(MINUTES) SEED=$(SEED)"
	$(BIN)/python tests/soak/soak.py --minutes $(MINUTES) --seed $(SEED) --folder .soak

shuffle: $(READY)  ## random and concurrent tests, runs FIRST to RUNS on a busy machine: shuffled, 1, 2 and 4 processes, new hash seeds
	@$(BIN)/python -c 'while True: pass' & busy=$$!; trap "kill $$busy" EXIT; \
	for run in $$(seq $(FIRST) $(RUNS)); do \
		processes=$$(( run % 3 == 0 ? 4 : run % 3 )); began=$$SECONDS; \
		export PYTHONHASHSEED=$$run FACEFEED_FUZZ=1; \
		shuffled="--numprocesses $$processes $(BY_FILE) --random-order --random-order-seed=$$run --hypothesis-seed=$$run"; \
		for part in "-m hypothesis $(RANDOM)" "$(CONCURRENT)"; do \
			$(BIN)/pytest -q $$part $$shuffled > .shuffle.log 2>&1 || { cat .shuffle.log; echo "run $$run failed: $$part $$shuffled"; exit 1; }; \
			tail -n 1 .shuffle.log; \
		done; \
		echo "run $$run of $(RUNS): passed in $$((SECONDS - began)) s; PYTHONHASHSEED=$$run $$shuffled"; \
	done

chaos: $(READY)  ## slow fault tests: kills, power failures, failing calls, thousands of events
	@# All calls of a command, each of which fails once, take longer than a test that hangs may elsewhere.
	$(BIN)/pytest -m chaos --durations=10 -o faulthandler_timeout=14400

slurm: $(READY)  ## a real Slurm of two nodes on this machine: training that is preempted and goes on (Debian's slurm-wlm, munge)
	$(BIN)/pytest -m slurm --durations=10

gpu: $(READY)  ## what only a GPU can show, in half an hour: its tests, then benchmarks into build/gpu/*.json and a page of tables
	$(BIN)/pytest -m gpu --durations=10
	$(BIN)/python tests/benchmarks/gpu.py

bench: $(READY)  ## benchmarks; JSON with every repeat
	@for bench in tests/benchmarks/bench_*.py; do $(BIN)/python "$$bench"; done

clean:  ## remove the environment and everything that was made
	rm -rf .venv $(DEMO) build dist docs/_build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .soak .shuffle.log
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
