# Everything runs in $(VENV), which the first target that needs it creates. A second run installs nothing: each set of
# extras has a stamp file, newer than what it was installed from.

PYTHON ?= python3
VENV ?= .venv
SCENARIO ?= examples/node-failure-at-peak.yaml
PYTEST_ARGS ?=
SEEDS ?= 20000
FROM ?= 0
SOAK_S ?= 600
ATTACK_S ?= 1800
MUTANTS_ARGS ?=

BIN := $(VENV)/bin
SIM := $(VENV)/installed-sim
TEST := $(VENV)/installed-test
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Tests and demos start thousands of processes: one that compiles rankcore again needs 1 to 1.6 s of processor time more.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-ray demo-torchrun demo-slurm test test-ray test-traced test-untraced test-night attack night conformance swarm soak compiled bench bench-compiled bench-ray fidelity lint mutants docs clean

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16
	@echo "PYTHON=... chooses the interpreter (3.11 or newer), PYTEST_ARGS=... is handed to pytest, SCENARIO=... to the demo."

demo: $(SIM) ## Simulate a node failure in the busiest minute of a real trace
	$(BIN)/rankcore simulate $(SCENARIO)

demo-ray: $(TEST) ## Shard an embedding over replicas on a local Ray cluster, downscale, crash, and answer correctly throughout
	PYTHONPATH=$(CURDIR) RAY_ADDRESS=local $(BIN)/python examples/sharded_embedding.py

demo-torchrun: $(TEST) ## Kill the agent of rank 0 among three of torchrun and a spare, and see training go on as rank 0 elsewhere
	PYTHONPATH=$(CURDIR) $(BIN)/python examples/torchrun_spare.py

demo-slurm: $(TEST) ## Drain the node of rank 0 on a Slurm of three nodes, kill the controller, and see each rank stay or move once
	PYTHONPATH=$(CURDIR) $(BIN)/python examples/slurm_drained_node.py

# What failed stands at the end, of all lanes, after all that they print while they run.
test: $(TEST) ## Run every test, in three lanes at once, since those of Ray and of commands mostly wait; branch coverage of rankcore/ must be 100 %
	@rm -rf $(FAILURES) && mkdir -p $(FAILURES)
	@status=0; $(MAKE) --no-print-directory --jobs=3 --keep-going test-ray test-traced test-untraced || status=1; \
		[ $$status = 0 ] || { echo "== failed (make test PYTEST_ARGS='-k NAME' runs one again):"; cat $(FAILURES)/*; }; exit $$status

FAILURES := $(CURDIR)/build/test-failures
# $(call pytest,LANE,ARGUMENTS,PRIORITY): what fails is named in the lane's file, and so is a suite that ends early. Status 5:
# what PYTEST_ARGS chooses has no such test.
pytest = { mkdir -p $(FAILURES); echo "== $(1)"; FAILURES_FILE=$(FAILURES)/$(1) $(3) $(BIN)/python -m pytest $(2) $(PYTEST_ARGS); ended=$$?; \
	case $$ended in 0|5) ;; 1) false;; *) echo "$(1): pytest ended with status $$ended" | tee -a $(FAILURES)/$(1); false;; esac; }

test-ray: $(TEST)
	@$(call pytest,ray,-m "ray and not night" --ignore=tests/unit)

# Each lane runs to its end, and these leave the processors to the one of Ray, which is the longest. tests/conftest.py says which
# tests are traced.
test-traced: $(TEST)
	@status=0; $(call pytest,traced,-m "traced and not night" $(foreach folder,attacks integration swarm,--ignore=tests/$(folder)) --cov --cov-report= --cov-fail-under=0,nice -n 10) || status=1; \
	$(if $(PYTEST_ARGS),,$(BIN)/coverage report > $(FAILURES)/coverage && rm $(FAILURES)/coverage || status=1;) exit $$status

test-untraced: $(TEST)
	@$(call pytest,untraced,-m "not (ray or night or traced)",nice -n 10)

attack: $(TEST) ## Attack what runs on this machine as another user of it and as hostile clients do, on loopback; root sees all of it
	timeout $(ATTACK_S) $(BIN)/python -m pytest tests/attacks $(PYTEST_ARGS)

night: test-night attack conformance swarm mutants soak ## What takes longer than `make test` may: hours; run it before a change is called done

IN_PART := $(patsubst %,tests/integration/test_%.py,check_command determinism)
# The laws with all their examples and the checker's systems to their ends: tests/extent.py says what `make test` takes of them.
test-night: $(TEST)
	$(BIN)/python -m pytest -m night $(PYTEST_ARGS); ended=$$?; HYPOTHESIS_PROFILE=night $(BIN)/python -m pytest -m "not ray and not night" \
		tests/property tests/model tests/unit $(IN_PART) $(PYTEST_ARGS) && exit $$ended

conformance: $(TEST) ## Run the whole conformance kit against real processes and a Ray cluster, with faults too: many minutes
	CONFORMANCE=all $(BIN)/python -m pytest tests/conformance/test_local_conforms.py tests/conformance/test_ray_conforms.py $(PYTEST_ARGS)

swarm: $(SIM) ## Run SEEDS=20000 seeds of the fault swarm, two at once: some 15 minutes; FROM=... is the first
	$(BIN)/rankcore swarm --seeds $(SEEDS) --from $(FROM) --jobs 2

compiled: build/compiled/stamp ## Build rankcore with compiled rules into build/compiled: the same decisions, faster

build/compiled/stamp: $(TEST) setup.py pyproject.toml $(shell find rankcore executors -name '*.py')
	RANKCORE_COMPILE=3 $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --upgrade \
		--target build/compiled .
	touch $@

bench-compiled: build/compiled/stamp ## Measure the swarm with compiled rules
	PYTHONPATH=build/compiled:. $(BIN)/python -P -m bench swarm

bench: $(TEST) ## Measure speed; tables on the screen, JSON in build/bench/
	$(BIN)/python -m bench

soak: $(TEST) ## Kill and stop replicas, proxies and controller under a steady load for SOAK_S=600 seconds: is every request answered once?
	PYTHONPATH=$(CURDIR) RAY_ADDRESS=local $(BIN)/python -m bench.soak --seconds $(SOAK_S)

bench-ray: $(TEST) ## Compare with Ray Serve on a local cluster; table on the screen, JSON in build/bench/
	$(BIN)/python -m bench.ray_serve
	$(BIN)/python -m bench.ray_requests
	$(BIN)/python -m bench.ray_rollouts

fidelity: $(TEST) ## Record five runs on a local Ray cluster, twice each, and write docs/fidelity.md of them: some six minutes
	PYTHONPATH=$(CURDIR) RAY_ADDRESS=local $(BIN)/python -m bench.fidelity
	$(BIN)/python docs/make_fidelity.py

lint: $(TEST) ## Check style, format, types and import boundaries
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict rankcore executors
	$(BIN)/lint-imports

mutants: $(TEST) ## Plant bugs in the core, one at a time, and see which tests notice; MUTANTS_ARGS=... is handed on
	$(BIN)/python -m mutants $(MUTANTS_ARGS)

docs: $(TEST) ## Write what is made of the code: promises, life cycles, incidents, the scenario reference, the names of Ray Serve, pictures
	$(BIN)/python docs/make_promises.py
	$(BIN)/python docs/make_lifecycle.py
	$(BIN)/python docs/make_incidents.py
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_serve_compatibility.py
	$(BIN)/python docs/make_metrics.py
	$(BIN)/python docs/make_published_serving.py
	$(BIN)/python docs/make_fidelity.py
	$(BIN)/python docs/make_pictures.py

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) build dist *.egg-info .coverage .coverage.* .hypothesis .benchmarks .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rankcore needs Python 3.11 or newer, %s is %s: make PYTHON=python3.11" % (sys.executable, sys.version.split()[0]))'
	@# One that could only be made in part would look ready the next time.
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(SIM): pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing what the simulator needs into $(VENV) ...'
	@$(INSTALL) --editable '.[sim]'
	@touch $@

$(TEST): pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing what tests need into $(VENV), ray and torch included: this takes minutes the first time ...'
	@$(INSTALL) --editable '.[test]'
	@touch $@ $(SIM)
