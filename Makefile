# Every target makes what it needs: the virtual environment from requirements.lock (hashes), the jars from Maven Central.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
DOCS_VENV := .venv-docs
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DOCS_INSTALLED := $(DOCS_VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test test-deploy test-python check lint format lock jars deb release release-check scenarios prove-steering prove-change faults simulate-faults fuzz docs docs-reference dashboards bench-papers bench-peers bench-fleet bench-live jobs clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(INSTALLED): requirements.lock pyproject.toml
	@PYTHON="$(PYTHON)" sh bin/require-tools
	@$(PYTHON) bin/install.py $(VENV)
	@touch $@

$(DOCS_INSTALLED): docs/requirements.lock
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r docs/requirements.lock
	@touch $@

lock: ## resolve requirements.lock and docs/requirements.lock anew
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.6'
	$(VENV)-lock/bin/uv pip compile --quiet --upgrade --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --no-emit-find-links --all-extras \
		--group pyproject.toml:dev --group pyproject.toml:demo -o requirements.lock pyproject.toml
	$(VENV)-lock/bin/uv pip compile --quiet --upgrade --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --no-emit-find-links -o docs/requirements.lock docs/requirements.in
	rm -rf $(VENV)-lock

demo: $(INSTALLED) jars ## run the main job: a real cluster on this machine, balanced, shifted, scaled; KEEP=1: it stays up; COLLOCATE=1: a local topic at the end
	PYTHONPATH=examples $(BIN)/python -m flights.demo $(if $(KEEP),--keep) $(if $(COLLOCATE),--collocate)

jobs: $(INSTALLED) jars ## the papers' jobs, balanced and collocated, every result checked; about 8 minutes each (JOBS="--only job2"; JOBS="rounds": none, two choices, Flux and MILP)
	PYTHONPATH=examples $(BIN)/python -m jobs $(JOBS)

test: $(INSTALLED) jars ## pass all checks and tests, several at a time
	$(BIN)/python -m tests.run_all

test-python: ## the fast tests under another Python, in an environment of its own: PYTHON=python3.13 (E2E=1: end to end)
	@$(PYTHON) bin/test_python.py $(if $(E2E),--e2e)

test-deploy: deb ## the containers: images, stack, crashes; packages and units on a machine with systemd (about 12 minutes)
	$(BIN)/python -m tests.deploy

check: $(INSTALLED) ## format, lint, types, import contracts, fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -m "not e2e"

deb: $(INSTALLED) ## build the Debian packages of agent, controller and console into out/packages
	$(BIN)/python -m deploy.debian

release: $(INSTALLED) jars ## build wheel, sdist, Debian packages, images, SBOM and checksums into dist/VERSION (RELEASE=--draft)
	$(BIN)/python -m deploy.release $(RELEASE)

format: $(INSTALLED) ## bring the code into its format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

release-check: $(INSTALLED) jars ## all that `make test` leaves out, many hours; goes on where it was stopped (CHECK="--list", "--only NAME")
	PYTHONPATH=examples $(BIN)/python -m tests.release_check $(CHECK)

scenarios: $(INSTALLED) jars ## the long scenarios on a real cluster, with planned and measured values
	$(BIN)/python -m pytest -s -m scenario

prove-steering: $(INSTALLED) jars ## the long oracle of the Faust plug-in, with a table of pauses
	PYTHONPATH=examples $(BIN)/python -m tests.e2e.steering.prove

prove-change: $(INSTALLED) jars ## the same oracle while the job, the plug-in or the workers change (about 20 minutes)
	PYTHONPATH=examples $(BIN)/python -m tests.e2e.steering.prove changes

faults: $(INSTALLED) jars ## the fault matrix under load, judged by the recorded history (FAULTS="--list", "--only FAULT:MOMENT")
	PYTHONPATH=examples $(BIN)/python -m tests.faults.matrix $(FAULTS)

simulate-faults: $(INSTALLED) ## whole clusters on fake time, seeded faults, 100,000 rounds (SIMULATE="--seed N" replays one)
	$(BIN)/python -m tests.sim.simulate $(or $(SIMULATE),--rounds 100000)

fuzz: $(INSTALLED) ## 1,000,000 mutated records for every decoder (FUZZ="--only ack" for one)
	$(BIN)/python -m tests.fuzz.fuzz $(FUZZ)

docs: $(DOCS_INSTALLED) ## build the site from all Markdown pages into out/docs (strict: no broken link)
	NO_MKDOCS_2_WARNING=true $(DOCS_VENV)/bin/mkdocs build --strict
	@echo "out/docs/index.html"

docs-reference: $(INSTALLED) ## write docs/reference from the code
	PYTHONPATH=docs/tools $(BIN)/python -m trimtab_reference

jars: $(INSTALLED) ## fetch the broker's and Spark's jars (nothing is fetched twice), and prepare faster starts
	@$(BIN)/trimtab jars
	-@$(BIN)/python -m trimtab_sandbox.broker_start

dashboards: $(INSTALLED) ## write deploy/grafana/*.json
	$(BIN)/python -m deploy.grafana

bench-papers: $(INSTALLED) ## every published figure that can be recomputed: paper | ours | baseline
	$(BIN)/python -m benchmarks.papers

bench-peers: $(INSTALLED) ## other solvers beside ours on the same instances
	$(BIN)/python -m benchmarks.peers.table

bench-fleet: $(INSTALLED) jars ## 10,000 simulated agents, 1,000,000 key groups, real broker, Spark and controller, 15 minutes
	$(BIN)/python -m benchmarks.fleet

bench-live: $(INSTALLED) jars ## the live loop, mostly on a real cluster: scaling, steps, first decision, restores, recovery
	$(BIN)/python -m benchmarks.live

clean: ## remove the environment and what runs have written
	rm -rf $(VENV) $(DOCS_VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis
