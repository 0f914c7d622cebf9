# Everything a newcomer needs: `make demo` to see it work, `make test` to check it. `make help` lists the rest.
# A fresh machine needs git, make, Python 3.11, Java 17 and Maven; whatever else is used is set up here, inside the checkout.

VENV := .venv
BUILD := .build
LOCK := requirements/airflow-3.3.lock
UV_VERSION := 0.13.9

RUN := $(VENV)/bin/python
UV := $(BUILD)/uv-$(UV_VERSION)/bin/uv
INSTALLED := $(VENV)/.installed
JARS := $(BUILD)/jars/.copied

# Packages come through the certificates the machine trusts, which on a company's network are not only the public ones.
UV_FLAGS := --quiet --system-certs

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Output of two installations at once tells nobody anything, and the steps are few.
.NOTPARALLEL:
.PHONY: help demo test lint format bench simulate mutants lock setup jars check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup ## real Kafka, S3 and Airflow on this machine: load the flights, run the DAG, check the bucket (KEEP=1 leaves the servers up)
	@$(RUN) -m dev.demo $(if $(KEEP),--keep)

test: lint ## set up, lint and run every test (ARGS="-k offsets" for some of them)
	@$(RUN) -m pytest $(ARGS)

lint: setup ## style, types, and who may import whom
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --quiet --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --config pyproject.toml

format: setup ## write the code the way `make lint` wants it
	@$(VENV)/bin/ruff check --quiet --fix .
	@$(VENV)/bin/ruff format --quiet .

bench: setup ## measure against Spark's own writer; prints a table and JSON
	@$(RUN) -m tests.benchmark $(ARGS)

simulate: setup ## 10,000 seeds of the commit protocol under crashes, races and lost responses
	@$(RUN) -m tests.protocol.simulate $(ARGS)

mutants: setup ## drop one safety step of the protocol at a time and show that the simulation notices
	@$(RUN) -m tests.protocol.mutants $(ARGS)

lock: $(UV) ## resolve the dependencies again and write the lock
	@echo "Resolving the dependencies for Airflow 3.3 ..."
	@$(UV) pip compile $(UV_FLAGS) pyproject.toml --extra spark --group dev --constraint requirements/airflow-3.3.in \
	  --python-version 3.11 --no-annotate --no-header --output-file $(LOCK) >/dev/null

setup: check $(INSTALLED) $(JARS) ## the virtual environment and the jars

jars: $(JARS) ## only the jars: Spark's Kafka connector and a Kafka broker

check: ## whether this machine has what the set-up needs
	@sh dev/check.sh python java

clean: ## remove everything that make has made
	rm -rf $(VENV) $(BUILD) dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(UV):
	@sh dev/check.sh python
	@echo "Installing uv $(UV_VERSION), which installs the rest ..."
	@rm -rf $(BUILD)/uv-*
	@mkdir -p $(BUILD)
	@"$$(sh dev/check.sh --python)" -m venv $(BUILD)/uv-$(UV_VERSION)
	@$(BUILD)/uv-$(UV_VERSION)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# Made again when an upgrade of Python left it without one.
$(INSTALLED): $(LOCK) pyproject.toml | $(UV)
	@$(RUN) -c '' 2>/dev/null || "$$(sh dev/check.sh --python)" -m venv --clear --without-pip $(VENV)
	@echo "Installing the $$(grep -c == $(LOCK)) packages of $(LOCK) into $(VENV) (about a minute the first time) ..."
	@$(UV) pip sync $(UV_FLAGS) --python $(VENV) $(LOCK)
	@$(UV) pip install $(UV_FLAGS) --python $(VENV) --no-deps --no-build-isolation --editable .
	@touch $@

$(JARS): dev/pom.xml
	@sh dev/check.sh java maven
	@echo "Fetching the jars of Spark's Kafka connector (10 MB) and of a Kafka broker (45 MB) ..."
	@rm -rf $(@D)
	@mkdir -p $(@D)
	@for profile in spark kafka; do \
	  mvn --batch-mode --strict-checksums --file $< --activate-profiles $$profile dependency:copy-dependencies \
	    -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/$(@D)/$$profile" >$(@D)/maven.log 2>&1 || \
	    { grep ERROR $(@D)/maven.log || cat $(@D)/maven.log; exit 1; } >&2; \
	done
	@touch $@
