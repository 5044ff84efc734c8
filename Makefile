# Everything runs from .venv, which each command makes first. See README.md.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3 || command -v python)
VENV ?= .venv
REQUIREMENTS ?= requirements-dev.txt
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools
KERNEL := setup.py aiokafkawire/records/_kernel.py aiokafkawire/records/_kernel.pxd
PYTEST := $(BIN)/pytest
DIST := .venv-dist
ACTIONLINT_VERSION := v1.7.12
ACTIONLINT := .cache/actionlint/$(ACTIONLINT_VERSION)/actionlint
# More processes than cores, as tests wait much; the tests of one file stay in one, in their order.
APART := -n 4 --dist loadfile
TOUCH_RECORDS := tests/records tests/producer tests/consumer tests/behaviour
# A group, transactions, and clients that start and stop: what may depend on the connections.
TOUCH_CONNECTIONS := $(addprefix tests/behaviour/test_,clients groups lifecycle producing security transactions)
SECURE := --security-protocol SASL_SSL
# Targets beside each other, for the same reason: each one's output comes whole, at its end.
BESIDE := $(MAKE) --no-print-directory --output-sync=target --keep-going --jobs

# Compiled modules are kept whatever the shell says: tests start many processes, and each would
# compile all of them again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-secure kafka test-brokers test-admin-releases kerberos test-security renewal test-spark parity pipeline exactly-once brokers quick-proofs simulate mutation proofs crowd share-run worker-run faults soak \
        fuzz fuzz-guided bench bench-kernel kernel-cost bench-scale bench-more bench-spark \
        lint actionlint docs diagrams check fast test-python test-lowest wheel dist dist-tools test-dist release format clean

help: ## Show the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(TOOLS): $(REQUIREMENTS)
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "Python 3.11 or later is needed: install python3.11 (with venv), or run make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "Python's venv module is missing: install it (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# The kernel is compiled here, with the tools of the environment; those of several Pythons lie side by side.
$(READY): $(TOOLS) pyproject.toml $(KERNEL)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
	@touch $@

demo: $(READY) ## The main job on the embedded broker (INPUT=path, BOOTSTRAP=host:port)
	@$(BIN)/aiokafkawire demo

# Coverage cannot see into compiled code; what touches records runs on both kernels. How a group is
# balanced does not: its tests run with the classic protocol alone the second time.
test: $(READY) ## All tests but those on real Kafka, with the coverage of each folder
	AIOKAFKAWIRE_PURE_PYTHON=1 $(PYTEST) --ignore=tests/brokers $(APART) --cov=aiokafkawire --cov-branch --cov-report=json:.coverage.json
	@$(BIN)/python -m tests.coverage_by_package .coverage.json
	$(PYTEST) $(TOUCH_RECORDS) -k "not KIP-848" $(APART) -q
	$(PYTEST) $(TOUCH_CONNECTIONS:=.py) $(SECURE) -m "not slow" $(APART) -q

test-secure: $(READY) ## The tests of behaviour with TLS and SCRAM (MECHANISM=PLAIN, KAFKA=4.3.0)
	$(PYTEST) tests/behaviour $(SECURE) $(MECHANISM:%=--sasl-mechanism %) $(if $(KAFKA),--on $(KAFKA),$(APART))

kafka: $(READY) ## Fetch Apache Kafka's jars into .cache (KAFKA="0.9.0.1 2.8.2": of these releases)
	@for version in $(or $(KAFKA),4.3.0); do \
	  $(BIN)/python -m tests.brokers.kafka --fetch --version $$version || exit 1; \
	done

test-brokers: $(READY) ## Tests on real Apache Kafka (KAFKA="0.9.0.1 2.8.2": on these releases)
	@$(BESIDE) 2 $(if $(KAFKA),$(KAFKA:%=on-%),brokers on-kafka on-kafka3)
	@$(if $(KAFKA),,$(MAKE) --no-print-directory quick-proofs)

brokers: $(READY)
	$(PYTEST) tests/brokers --ignore=tests/brokers/security -n 2 --dist loadfile

test-admin-releases: $(READY) ## Admin's tests of behaviour on 14 releases of Kafka, one by one (KAFKA="0.9.0.1 2.8.2")
	$(BIN)/python -m tests.behaviour.admin_releases $(or $(KAFKA),--write)

on-%: $(READY)
	$(PYTEST) tests/behaviour --on $*

kerberos: $(READY)
	-@$(BIN)/python -m tests.brokers.security.kerberos

# In one process: there is one broker at a time. Without Kerberos its tests are skipped, or fail in CI.
test-security: $(READY) $(if $(SHORT),,kerberos) ## TLS and SASL on real Kafka (SHORT=1: on 4.3 and 0.10.2 alone, on asyncio)
	$(PYTEST) tests/brokers/security $(SHORT:%=-m "not slow")

renewal: $(READY) ## Sessions of 4 s renewed under load on real Kafka (MINUTES=30)
	$(BIN)/python -m tests.brokers.security.renewal $(MINUTES:%=--minutes %)

test-spark: $(READY) ## Queries of PySpark on the embedded broker (needs Java 17 or later)
	$(PYTEST) tests/spark/queries

pipeline: $(READY) ## A pipeline on Spark beside a count without it (INPUT=path, EVENTS=200000, CLUSTER=1)
	@$(BIN)/python examples/pipeline/run.py $(INPUT:%=--input %) $(EVENTS:%=--events %) $(CLUSTER:%=--cluster)

parity: $(READY) ## Cases on both Spark connectors and real Kafka: the same rows, offsets, errors
	$(PYTEST) tests/spark/parity

exactly-once: $(READY) ## Kill tasks, executors and drivers of Spark in runs by seed: every row once (RUNS=20, SEED=1)
	@$(BIN)/python -m tests.spark.exactly_once $(RUNS:%=--runs %) $(SEED:%=--seed %)

quick-proofs: $(READY)
	$(BIN)/python -m verify.soak leader eager cooperative

simulate: $(READY) ## Scenarios by seed in a simulated world (SEEDS=2000, FIRST=0, SCENARIO=name)
	$(BIN)/python -m verify.simulation --seeds $(or $(SEEDS),200) --first $(or $(FIRST),0) \
	  $(if $(SCENARIO),--scenario $(SCENARIO))

mutation: $(READY) ## Plant mutations in the client, one at a time: which scenario catches each (SEEDS=500)
	$(BIN)/python -m verify.mutation --seeds $(or $(SEEDS),500) --first $(or $(FIRST),0) $(MUTATION)

proofs: $(READY) ## Failures of nodes and processes on three real nodes (20 minutes)
	$(BIN)/python -m verify.soak

crowd: $(READY) ## 24 members join and leave on three real nodes, their coordinator dies twice; both protocols (8 minutes)
	$(BIN)/python -m verify.soak coordinator-consumer coordinator-cooperative

share-run: $(READY) ## Five members of a share group on three real nodes; members and nodes are killed (5 minutes)
	$(BIN)/python -m verify.soak share

worker-run: $(READY) ## Five workers on three real nodes, which fail, beside FastStream and aiokafka (15 minutes)
	$(BIN)/python -m verify.soak worker

faults: $(READY) ## Applications on three real nodes under faults (MINUTES=10, SEED=7)
	@$(BIN)/python -m verify.soak.faults $(MINUTES:%=--minutes %) $(SEED:%=--seed %)

soak: $(READY) ## Steady work on three real nodes; fails if memory or sockets grow (MINUTES=30)
	@$(BIN)/python -m verify.soak.resource_growth $(MINUTES:%=--minutes %)

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

bench-more: $(READY) ## Speed of transactions beside confluent-kafka, of decoding and Admin beside kafka-python, cost of tracing
	$(BIN)/python -m benchmarks.transactions
	$(BIN)/python -m benchmarks.administration
	$(BIN)/python -m benchmarks.decode
	$(BIN)/python -m benchmarks.hooks

bench-spark: $(READY) ## Speed on Spark beside the JVM's Kafka connector (ROW=name, PAIRS=3)
	$(BIN)/python -m benchmarks.spark $(ROW:%=--only %) $(PAIRS:%=--pairs %)

lint: $(READY) ## Style, types, import contracts, spelling, wording and structure
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python -m tests.wording
	$(BIN)/python -m tests.structure --sizes
	@$(MAKE) --no-print-directory actionlint

# A Go program: only machines with Go check the workflows.
actionlint:
	@if ! command -v go > /dev/null; then \
	  echo "actionlint: Go is missing, .github/workflows is NOT checked (install Go 1.24 or later)"; \
	elif [ -x $(ACTIONLINT) ] || GOBIN=$(dir $(abspath $(ACTIONLINT))) go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION); then \
	  $(ACTIONLINT) && echo "actionlint: .github/workflows is in order"; \
	else exit 1; fi

docs: $(READY) ## The documentation, into build/docs
	$(BIN)/python -m docs.generate
	AIOKAFKAWIRE_PURE_PYTHON=1 $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -d build/doctrees docs build/docs

diagrams: $(READY) ## Draw the state diagrams of the documentation again (needs Graphviz)
	$(BIN)/python -m docs.diagrams

check: lint fast ## Lint, types and the fast tests

fast: $(READY)
	$(PYTEST) --ignore=tests/brokers -m "not slow" -q $(APART)

test-python: ## Fast tests with the compiled kernel on another Python, in .venv-X.Y (PYTHON=python3.13)
	@venv=.venv-$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])') && \
	  $(MAKE) --no-print-directory VENV=$$venv $$venv/.ready && \
	  $$venv/bin/python -c 'import aiokafkawire, sys; about = aiokafkawire.about(); print("Python", sys.version); print(about); sys.exit(about.kernel != "compiled")' && \
	  $(MAKE) --no-print-directory VENV=$$venv fast

# All else stays as in requirements-dev.txt, but for a linter that needs a later rich.
build/requirements-lowest.txt: requirements-dev.txt requirements-lowest.txt Makefile
	@mkdir -p build
	@awk -F== 'NR == FNR { if (/^[^#]/) low[$$1] = $$0; next } !/^import-linter=/ { print ($$1 in low) ? low[$$1] : $$0 }' requirements-lowest.txt requirements-dev.txt > $@

test-lowest: build/requirements-lowest.txt ## Fast tests with the lowest versions that the package allows, in .venv-lowest
	@$(MAKE) --no-print-directory VENV=.venv-lowest REQUIREMENTS=$< fast

dist-tools:
	@$(MAKE) --no-print-directory VENV=$(DIST) REQUIREMENTS=requirements-dist.txt $(DIST)/.tools

# On Linux an index takes a wheel only with a tag that says which systems it runs on.
define repair
	@mkdir -p dist
	@if [ "$$(uname -s)" = Linux ]; then \
	  PATH=$(abspath $(DIST))/bin:$$PATH $(DIST)/bin/auditwheel repair --wheel-dir dist build/dist/*.whl; \
	else mv build/dist/*.whl dist; fi
endef

wheel: dist-tools ## A wheel for this Python, tagged manylinux or musllinux on Linux, into dist
	@rm -rf build/dist dist
	AIOKAFKAWIRE_REQUIRE_EXT=1 $(DIST)/bin/python -m build --wheel --outdir build/dist
	$(repair)

dist: dist-tools ## The source distribution and a wheel for this Python, checked, into dist
	@rm -rf build/dist dist
	AIOKAFKAWIRE_REQUIRE_EXT=1 $(DIST)/bin/python -m build --outdir build/dist
	$(repair)
	@mv build/dist/*.tar.gz dist
	$(DIST)/bin/twine check --strict dist/*

test-dist: dist ## Install what was built, with a compiler and without, and use it (PYTHONS="python3.11 python3.13")
	$(PYTHON) -m tests.distribution $(addprefix --python ,$(or $(PYTHONS),$(PYTHON) $(shell .ci/newest-python))) dist

release: ## Check, build and tag a release; nothing is pushed (VERSION=0.1.0)
	@.ci/release "$(VERSION)"

format: $(READY) ## Format the code
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format .

clean: ## Remove what the commands made
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* *.egg-info build dist aiokafkawire/records/_kernel.*.so
