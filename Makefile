# `make help` lists the commands. Each of them does all the set-up that it needs on a fresh machine.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PYTEST_WORKERS ?= 4

.DEFAULT_GOAL := help
export REQUIRE_HELM
# Where a container's image sets it, each of the many processes that a test run starts would compile all sources anew.
export PYTHONDONTWRITEBYTECODE :=
.PHONY: help run test coverage lint docs format bench mutants envtest faults generate pictures conformance lock dist image cluster openstack e2e trials scale soak week clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Only `make run KUBECONFIG=...` names a cluster: one exported in the shell must not be written to by accident.
run: $(READY)  ## show the controllers at work in a small local cluster; KUBECONFIG=... initialises the nodes of a real one
	@$(BIN)/python examples/demo.py $(if $(filter command line,$(origin KUBECONFIG)),--kubeconfig "$(KUBECONFIG)")

# Builds Go programs only where a variable asks for their tests; otherwise the last line says what was left out.
test: $(READY) $(if $(REQUIRE_REAL_API_SERVER)$(REQUIRE_REAL_KUBELET)$(REQUIRE_HELM),envtest)  ## all tests, over the real kube-apiserver and kubelet where `make envtest` has built them
	$(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadgroup $(PYTEST_ARGS)

coverage: $(READY)  ## unit tests; fails if they execute less than the limit in pyproject.toml
	$(BIN)/coverage run -m pytest tests/unit $(PYTEST_ARGS)
	$(BIN)/coverage report

lint: $(READY)  ## check style, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY)  ## build the documentation site into build/docs; a warning is an error
	$(BIN)/python -m sphinx -q -W --keep-going $(SPHINX_ARGS) docs build/docs
	@echo "The site: $(CURDIR)/build/docs/index.html"

format: $(READY)  ## repair the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) envtest  ## measure beside the Go manager and write the tables of docs/reports/benchmarks.md (40 minutes)
	$(BIN)/python -m tests.lab.bench $(BENCH_ARGS)

scale: $(READY) envtest  ## measure 1,000, 5,000 and 20,000 nodes, and write the tables of docs/reports/scale.md (an hour); SCALE="1000 5000": only these
	$(BIN)/python -m tests.lab.bench.scale $(SCALE) $(SCALE_ARGS)

SOAK ?= 7200
soak: $(READY) envtest  ## run two managers for SOAK=7200 seconds, with changes, faults and fail-overs, and see if anything grows
	$(BIN)/python -m tests.lab.bench.scale.soak --seconds $(SOAK) $(SOAK_ARGS)

week: $(READY) envtest  ## let a manager live through a simulated week, and see if anything grows (10 minutes); WEEK_ARGS="--days 3": fewer days
	$(BIN)/python -m tests.lab.bench.scale.week $(WEEK_ARGS)

faults: $(READY) envtest  ## every fault that must be survived, by ID, beside the Go manager; writes docs/reports/faults.md (50 minutes); FAULTS="F3 F7": only these
	@$(BIN)/python -m tests.lab.faults $(FAULTS) $(FAULTS_ARGS)

mutants: $(READY)  ## change one thing at a time in the modules that decide, and print what the unit tests miss
	$(BIN)/python -m tests.lab.mutants $(MUTANTS_ARGS)

envtest: $(READY)  ## build kube-apiserver, etcd, kubelet and more once, into your cache folder (some minutes); REQUIRE_HELM=1: helm too
	@$(BIN)/python -m tests.lab.envtest

generate: $(READY)  ## write the generated pages and manifests again, after a change of flags, rules, chart or alerts
	@$(BIN)/python -m tests.generate

pictures: $(READY)  ## draw the pictures of the documentation, docs/pictures/*.svg, again
	@$(BIN)/python -m tests.lab.pictures

conformance: $(READY)  ## run the conformance suite over the local cloud, and write docs/reports/localcloud-conformance.md
	@$(BIN)/python -m tests.localcloud_report

openstack: $(READY)  ## run the tests over OpenStack's own services, from the package index, over SQLite (10 minutes); OPENSTACK_ARGS="-k ...": only these
	@$(BIN)/python -m tests.lab.openstack $(OPENSTACK_ARGS)

LOCK := $(BIN)/uv pip compile --universal --generate-hashes --no-header -q
BUILD_REQUIRES := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")

lock: $(READY)  ## upgrade the locked dependencies: of development, of the image, and of its build
	$(LOCK) --upgrade --extra dev pyproject.toml -o requirements-dev.txt
	$(LOCK) --upgrade -c requirements-dev.txt pyproject.toml -o requirements.txt
	$(BIN)/python -c '$(BUILD_REQUIRES)' | $(LOCK) --upgrade -c requirements-dev.txt - -o requirements-build.txt
	$(LOCK) --upgrade tests/lab/openstack/requirements.in -o tests/lab/openstack/requirements.txt
	@echo "Then: make generate, for the lock files of the example providers' images."

dist: $(READY)  ## build the wheels and source archives of all distributions into dist/
	@PYTHON="$(CURDIR)/$(BIN)/python" .ci/distributions dist

image: $(READY) envtest  ## build the container image on Debian packages, and run it (needs buildah and mmdebstrap; minutes)
	@$(BIN)/python -m tests.lab.image

cluster: $(READY)  ## start a whole cluster here: machines, kubelets, pods, load balancers (Linux, root); PROVIDER=path: with your package
	@PYTHONPATH=examples/localcloud $(BIN)/python -m tests.lab.cluster $(if $(PROVIDER),--provider "$(PROVIDER)") $(if $(CLOUD_CONFIG),--cloud-config "$(CLOUD_CONFIG)") $(CLUSTER_ARGS)

e2e: $(READY)  ## run Kubernetes' own tests of Services on a cluster of real nodes, and write docs/reports/kubernetes-e2e.md (root; an hour)
	@PYTHONPATH=examples/localcloud $(BIN)/python -m tests.lab.e2e $(E2E_ARGS)

trials: $(READY)  ## put the product in its pod to the test on real nodes, and write docs/reports/real-cluster-trials.md (root; 20 minutes); TRIALS="traffic kills": only these
	@PYTHONPATH=examples/localcloud $(BIN)/python -m tests.lab.cluster.trials $(TRIALS) $(TRIALS_ARGS)

$(READY): requirements-dev.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

clean:  ## remove .venv and build results
	rm -rf $(VENV) build dist
