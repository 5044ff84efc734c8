# Everything runs from .venv, which each command makes first. See README.md.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3 || command -v python)
BIN := .venv/bin
READY := .venv/.ready
TOOLS := .venv/.tools
KERNEL := setup.py aiokafkawire/records/_kernel.py aiokafkawire/records/_kernel.pxd
PYTEST := $(BIN)/pytest
# More processes than cores, as tests wait much; the tests of one file stay in one, in their order.
APART := -n 3 --dist loadfile
TOUCH_RECORDS := tests/records tests/producer tests/consumer tests/behaviour
# Targets beside each other, for the same reason: each one's output comes whole, at its end.
BESIDE := $(MAKE) --no-print-directory --output-sync=target --keep-going --jobs

# Compiled modules are kept whatever the shell says: tests start many processes, and each would
# compile all of them again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test kafka test-brokers test-spark parity pipeline exactly-once brokers proofs simulate sabotage endurance faults soak \
        fuzz fuzz-guided bench bench-kernel kernel-cost bench-scale bench-more bench-spark \
        lint docs check format clean

help: ## Show the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(TOOLS): requirements-dev.txt
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "Python 3.11 or later is needed: install python3.11 (with venv), or run make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "Python's venv module is missing: install it (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

# The kernel is compiled here, with the tools of .venv.
$(READY): $(TOOLS) pyproject.toml $(KERNEL)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
	@touch $@

demo: $(READY) ## The main job on the embedded broker (INPUT=path, BOOTSTRAP=host:port)
	@$(BIN)/aiokafkawire demo

# Coverage cannot see into compiled code; what touches records runs on both kernels.
test: $(READY) ## All tests but those on real Kafka, with the coverage of each room
	AIOKAFKAWIRE_PURE_PYTHON=1 $(PYTEST) --ignore=tests/brokers $(APART) --cov=aiokafkawire --cov-branch --cov-report=json:.coverage.json
	@$(BIN)/python -m tests.rooms .coverage.json
	$(PYTEST) $(TOUCH_RECORDS) $(APART) -q

kafka: $(READY) ## Fetch Apache Kafka's jars into .cache (KAFKA="0.9.0.1 2.8.2": of these releases)
	@for version in $(or $(KAFKA),4.3.0); do \
	  $(BIN)/python -m tests.brokers.kafka --fetch --version $$version || exit 1; \
	done

test-brokers: $(READY) ## Tests on real Apache Kafka (KAFKA="0.9.0.1 2.8.2": on these releases)
	@$(BESIDE) 2 $(if $(KAFKA),$(KAFKA:%=on-%),brokers on-kafka on-kafka3)
	@$(if $(KAFKA),,$(MAKE) --no-print-directory proofs)

brokers: $(READY)
	$(PYTEST) tests/brokers -n 2 --dist loadfile

on-%: $(READY)
	$(PYTEST) tests/behaviour --on $*

test-spark: $(READY) ## Queries of PySpark on the embedded broker (needs Java 17 or later)
	$(PYTEST) tests/spark/queries

pipeline: $(READY) ## A pipeline on Spark beside a count without it (INPUT=path, EVENTS=200000, CLUSTER=1)
	@$(BIN)/python examples/pipeline/run.py $(INPUT:%=--input %) $(EVENTS:%=--events %) $(CLUSTER:%=--cluster)

parity: $(READY) ## Cases on both Spark connectors and real Kafka: the same rows, offsets, errors
	$(PYTEST) tests/spark/parity

exactly-once: $(READY) ## Kill tasks, executors and drivers of Spark in runs by seed: every row once (RUNS=20, SEED=1)
	@$(BIN)/python -m tests.spark.exactly_once $(RUNS:%=--runs %) $(SEED:%=--seed %)

proofs: $(READY)
	$(BIN)/python -m tests.endurance leader eager cooperative

simulate: $(READY) ## Programmes by seed in a simulated world (SEEDS=2000, FIRST=0, PROGRAMME=name)
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),200) --first $(or $(FIRST),0) \
	  $(if $(PROGRAMME),--programme $(PROGRAMME))

sabotage: $(READY) ## Plant faults in the client, one at a time: which programme catches each (SEEDS=500)
	$(BIN)/python -m tests.sabotage --seeds $(or $(SEEDS),500) --first $(or $(FIRST),0) $(FAULT)

endurance: $(READY) ## All proofs of bad days on three real nodes (20 minutes)
	$(BIN)/python -m tests.endurance

faults: $(READY) ## Applications on three real nodes under faults (MINUTES=10, SEED=7)
	@$(BIN)/python -m tests.endurance.faults $(MINUTES:%=--minutes %) $(SEED:%=--seed %)

soak: $(READY) ## Steady work on three real nodes: nobody grows (MINUTES=30)
	@$(BIN)/python -m tests.endurance.soak $(MINUTES:%=--minutes %)

fuzz: $(READY) ## Five million hostile frames for the decoders (7 minutes)
	$(BIN)/python -m tests.wire.fuzz --frames 5000000

fuzz-guided: $(READY) ## Hostile bytes guided by what they reach, with atheris (SECONDS=60 a target, KEEP=1)
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(if $(KEEP),--keep)

bench-kernel: $(READY) ## Speed of the kernel's loops, beside aiokafka's compiled ones
	@$(BIN)/python -m benchmarks.kernel

kernel-cost: $(READY) ## Instructions that the kernel's loops take, beside those stored (valgrind)
	@$(BIN)/python -m benchmarks.kernel_cost

bench: $(READY) ## Speed beside aiokafka, confluent-kafka, kafka-python and Java (ROW=name, PAIRS=5)
	$(BIN)/python -m benchmarks.table $(ROW:%=--only %) $(PAIRS:%=--pairs %)

bench-scale: $(READY) ## How cost grows with partitions, members and clients; memory within its bounds
	$(BIN)/python -m benchmarks.scale $(QUICK:%=--quick)

bench-more: $(READY) ## Speed of transactions beside confluent-kafka, of decoding beside kafka-python
	$(BIN)/python -m benchmarks.transactions
	$(BIN)/python -m benchmarks.decode

bench-spark: $(READY) ## Speed on Spark beside the JVM's Kafka connector (ROW=name, PAIRS=3)
	$(BIN)/python -m benchmarks.spark $(ROW:%=--only %) $(PAIRS:%=--pairs %)

lint: $(READY) ## Style, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32
	$(BIN)/lint-imports

docs: $(READY) ## The documentation, into build/docs
	$(BIN)/python -m docs.generate
	AIOKAFKAWIRE_PURE_PYTHON=1 $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -d build/doctrees docs build/docs

check: lint ## Lint, types and the fast tests
	$(PYTEST) --ignore=tests/brokers -m "not slow" -q $(APART)

format: $(READY) ## Format the code
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format .

clean: ## Remove what the commands made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* *.egg-info build dist aiokafkawire/records/_kernel.*.so
