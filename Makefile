# Two commands: `make run` shows it live, `make test` proves it. Both do all the set-up on a fresh machine.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PYTEST_WORKERS ?= 3

.PHONY: run test lint format bench mutants envtest lock clean

# Only `make run KUBECONFIG=...` names a cluster: one exported in the shell must not be written to by accident.
run: $(READY)  ## a small cluster whose nodes are initialised before your eyes; KUBECONFIG=... uses a real one
	@$(BIN)/python examples/demo.py $(if $(filter command line,$(origin KUBECONFIG)),--kubeconfig "$(KUBECONFIG)")

test: $(READY) envtest  ## unit, embedded API server, and the real kube-apiserver where Go or KUBEBUILDER_ASSETS is there
	$(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadgroup $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) envtest  ## the figures under docs/benchmarks.md, over the real API server
	$(BIN)/python -m tests.bench $(BENCH_ARGS)

mutants: $(READY)  ## change one thing at a time in the modules that decide, and print what their unit tests miss
	$(BIN)/python -m tests.mutants $(MUTANTS_ARGS)

envtest: $(READY)  ## build kube-apiserver and etcd once, into the user's cache (three minutes)
	@$(BIN)/python -m tests.envtest

lock: $(READY)  ## refresh the locked development set
	$(BIN)/uv pip compile --universal --generate-hashes --no-header --upgrade --extra dev pyproject.toml -o requirements-dev.txt -q

$(READY): requirements-dev.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

clean:
	rm -rf $(VENV) build dist
