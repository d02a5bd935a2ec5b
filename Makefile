# make run      serve examples/time.yaml at http://127.0.0.1:8080/mcp (RUN="other.yaml --port 80")
# make test     format check, lint, types, layers, tests; those against an API server want Go (once)
# make lint     the same without tests
# make soak     the operator with a thousand groups on an API server; some minutes (COUNT=1000)
# make format   write the format
# make crd      write crds/mcpservergroups.yaml from the models
#
# Each target makes .venv when it is missing and needs nothing but Python 3.11 or later. What was
# installed is remembered in stamp files and done again when pyproject.toml changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := crds gateway operator tests
RUN ?= examples/time.yaml
COUNT ?= 1000

export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test lint soak format crd
.DELETE_ON_ERROR:

run: $(VENV)/run.stamp
	@exec $(BIN)/mcpgroup run $(RUN)

LINT := $(BIN)/ruff format --check $(SOURCES) && $(BIN)/ruff check $(SOURCES) && $(BIN)/mypy && $(BIN)/lint-imports
# Most tests wait for processes and deadlines, not for a core.
PYTEST := $(BIN)/pytest -n 4 --dist worksteal

# The programs of a control plane are built once, from Go, in the time that nothing else wants; the
# tests that need them come last.
test: $(VENV)/test.stamp
	$(BIN)/python -m tests.controlplane.binaries --idle >/dev/null & programs=$$!; \
	trap 'kill $$programs 2>/dev/null' EXIT INT TERM; \
	$(LINT) && $(PYTEST) --ignore=tests/controlplane && { wait $$programs; $(PYTEST) tests/controlplane; }

lint: $(VENV)/test.stamp
	$(LINT)

soak: $(VENV)/test.stamp
	PYTHONPATH=crds:gateway:operator:. $(BIN)/python -m tests.controlplane.soak $(COUNT)

format: $(VENV)/test.stamp
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

crd: $(VENV)/test.stamp
	PYTHONPATH=crds $(BIN)/python -m mcpgroup_api.crd crds/mcpservergroups.yaml

# --group needs pip 25.1.
$(VENV)/pip.stamp:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed, $(PYTHON) is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

# The server that examples/time.yaml starts is a program of its own, not a dependency of ours.
$(VENV)/run.stamp: $(VENV)/pip.stamp pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[gateway]' 'mcp-server-time>=2026.10'
	@touch $@

$(VENV)/test.stamp: $(VENV)/pip.stamp pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[gateway,operator]' --group test --group lint
	@touch $@
