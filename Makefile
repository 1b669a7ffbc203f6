# `make` alone lists the targets. Everything runs in $(VENV), which is made when it is missing.
VENV ?= .venv
PYTEST_ARGS ?=
DIST ?= dist
# Faults are drawn by a seed that is printed; 0 takes a new one.
SEED ?= 0
MINUTES ?= 30
# Where `make faults` notes each case, for the table in docs/reliability.md.
FAULT_RESULTS ?=
STREAMS := large small first s3
BENCHMARKS := $(STREAMS) layout growth memory
READY := $(VENV)/.ready
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: bench help setup demo test test-floor faults soak judges check lint types proto docs wheel lock clean java

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv from requirements-dev.lock (the other targets do it by themselves)

$(READY): requirements-dev.lock pyproject.toml
	@.ci/venv $(VENV)

java:
	@.ci/java

demo: java $(READY) ## stream events into a local Iceberg table and show what is there
	@$(BIN)/python examples/quickstart.py

test: java $(READY) ## run all tests; PYTEST_ARGS="-k word" narrows them
	@$(BIN)/python -m pytest -n 2 --dist loadscope $(PYTEST_ARGS)

test-floor: java $(READY) ## integration tests on the lowest versions that pyproject.toml allows
	@.ci/floor $(VENV) .venv-floor
	@.venv-floor/bin/python -m pytest -n 2 --dist loadscope tests/integration $(PYTEST_ARGS)

faults: java $(READY) ## attack exactly-once for 15 minutes: real Spark killed, all twins, 10,000 schedules; SEED=n repeats
	@ICEFLOE_SEED=$(SEED) ICEFLOE_ALL_PASSAGES=1 ICEFLOE_SCHEDULES=10000 ICEFLOE_TWIN_CASES=20 ICEFLOE_SPARK_SECONDS=60 ICEFLOE_FAULT_RESULTS=$(FAULT_RESULTS) \
		$(BIN)/python -m pytest -m "not judges" --timeout 1800 -s -q tests/fault $(PYTEST_ARGS)
	@$(BIN)/python -m pytest -m faults --timeout 1800 -q tests/integration $(PYTEST_ARGS)

soak: java $(READY) ## kill, twin and reorder at random for MINUTES=30; prints its seed, SEED=n repeats
	@ICEFLOE_SEED=$(SEED) ICEFLOE_SPARK_SECONDS=600 $(BIN)/python -m pytest -m faults --timeout 1800 -s -q tests/fault/test_spark_kills.py
	@$(BIN)/python tests/fault/soak.py --minutes $(MINUTES) $(if $(filter-out 0,$(SEED)),--seed $(SEED))

judges: java $(READY) ## Iceberg's own Spark reads, appends to and compacts our tables; skipped without Maven Central
	@.ci/iceberg-spark $(VENV) .venv-iceberg; code=$$?; \
	if [ $$code -eq 75 ]; then echo "skipped: make judges needs Iceberg's JAR from Maven Central; nothing was judged"; exit 0; fi; \
	[ $$code -eq 0 ] && ICEFLOE_ICEBERG_SPARK=$(CURDIR)/.venv-iceberg $(BIN)/python -m pytest -m judges tests/integration/test_spark_judges.py

bench: java $(READY) ## measure streams beside their peers (about 25 minutes); single ones: bench-large, bench-small, ...
	@$(MAKE) --no-print-directory $(addprefix bench-,$(BENCHMARKS))

bench-%: java $(READY)
	@.ci/iceberg-spark $(VENV) .venv-iceberg || echo "without Iceberg's own sink: its JAR is on Maven Central"
	@ICEFLOE_ICEBERG_SPARK=$$(ls -d $(CURDIR)/.venv-iceberg 2>/dev/null) $(BIN)/python benchmarks/$(if $(filter $*,$(STREAMS)),streams.py $*,$*.py) \
		--save benchmarks/results
	@$(BIN)/python benchmarks/page.py

check: lint types test ## what CI runs: lint, types, tests

lint: $(READY) ## ruff: rules and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(READY) ## mypy, strict, over all four folders
	@$(BIN)/mypy

proto: $(READY) ## generate proto/*_pb2.py from proto/*.proto with the pinned compiler
	@$(BIN)/python -m grpc_tools.protoc -Iicefloe/proto=proto --python_out=. --pyi_out=. \
		$(patsubst proto/%,icefloe/proto/%,$(sort $(wildcard proto/*.proto)))

docs: $(READY) ## write docs/options.md from the code (a test compares)
	@$(BIN)/python -c 'from icefloe.connector.options import options_page; print(options_page(), end="")' > docs/options.md.new
	@mv docs/options.md.new docs/options.md

wheel: $(READY) ## build dist/*.whl
	@rm -rf build $(DIST)
	@mkdir -p $(DIST)
	@$(BIN)/python -m build --wheel --no-isolation --outdir $(DIST) . >$(DIST)/build.log 2>&1 || { cat $(DIST)/build.log; exit 1; }
	@rm -rf build $(DIST)/build.log
	@ls $(DIST)/*.whl

lock: $(READY) ## bring requirements-dev.lock up to date with pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-annotate --custom-compile-command "make lock" \
		--group dev --output-file requirements-dev.lock pyproject.toml

clean: ## remove everything that can be made again, except .venv
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
