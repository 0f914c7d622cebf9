# `make demo` shows the package at work, `make test` checks it, `make help` lists all targets.
# A fresh machine needs git, make, Python 3.11, Java 17 and Maven; all else is set up inside the checkout.

# One environment per generation of Airflow. The first is the default; the second is only for tests with Airflow 2.
VENV := .venv
VENV_2 := .venv-2.11
# Both have the oldest Spark and Python that are tested; this one has the newest, and the provider of OpenLineage, with
# which every process of Airflow takes longer to start.
VENV_SPARK := .venv-spark-4.2
VENV_OLDEST := .venv-oldest
BUILD := .build
UV_VERSION := 0.13.9
# The last one that runs on Java 17.
APICURIO_VERSION := 3.0.9

RUN := $(VENV)/bin/python
UV := $(BUILD)/uv-$(UV_VERSION)/bin/uv
INSTALLED := $(VENV)/.installed
INSTALLED_2 := $(VENV_2)/.installed
INSTALLED_SPARK := $(VENV_SPARK)/.installed
INSTALLED_OLDEST := $(VENV_OLDEST)/.installed
OLDEST_TESTS := tests/golden/test_golden_bucket.py tests/golden/test_golden_folders.py tests/unit/test_structs.py
SPARK_WORKERS := $(BUILD)/spark-workers/.installed
SPARK_WORKERS_NEWEST := $(BUILD)/spark-workers-4.2/.installed
JARS := $(BUILD)/jars/.copied
PEER_JARS := $(BUILD)/peers/.copied
BENTO := $(BUILD)/bin/bento
VERSITYGW := $(BUILD)/bin/versitygw
VERSITYGW_VERSION := v1.8.0
PROMETHEUS := $(BUILD)/bin/prometheus
PROMETHEUS_VERSION := v0.316.0
KAFKA_CLASSES := $(BUILD)/class-archives/kafka.jsa
REGISTRY := $(BUILD)/registry/.unpacked-$(APICURIO_VERSION)

# Downloads trust the certificates of the machine, which may include those of a company's network.
UV_FLAGS := --quiet --system-certs
RESOLVE = $(UV) pip compile $(UV_FLAGS) --python-version 3.11 --no-annotate --no-header --group dev --extra iceberg --extra hive pyproject.toml

# The tests that depend on the version of Airflow, so run on each: whole DAGs, the installation, and the parts of the
# package that may import Airflow. Those marked any_airflow do not. Of the command line it is how connections are read.
AIRFLOW_TESTS := tests/airflow tests/packaging $(addprefix tests/unit/,airflow operators sensors \
  cli/test_options.py cli/test_stored_connections.py cli/test_takeover_command.py)

# The marked end-to-end tests run with the newest Spark and Python, too, and so do quick tests of every layer.
SPARK_TESTS := tests/airflow tests/packaging tests/spark
PYTHON_TESTS := tests/golden $(addprefix tests/unit/,airflow cli extensions kafka_connect operators \
  reading/test_round_trip.py schemas sensors storage/test_conformance.py submit/test_spark_command.py)

# Tests start thousands of processes, each of which would compile Airflow and the package anew.
unexport PYTHONDONTWRITEBYTECODE

# Tests often wait for servers, so there are more processes than cores. In the order of the files, the longest come first.
# A process that ended, such as for lack of memory, is not replaced: pytest-xdist may wait for its tests without end.
WORKERS := 4
PYTEST := -m pytest --numprocesses $(WORKERS) --no-loadscope-reorder --max-worker-restart 0

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# The mixed output of parallel installations is unreadable, and there are few steps.
.NOTPARALLEL:
.PHONY: help demo dashboard docs test unit test-3.3 test-2.11 test-spark test-oldest lint format release-check bench bench-peers bench-crashes simulate mutants faults soak lock setup \
  setup-3.3 setup-2.11 setup-spark jars browser versitygw prometheus registry check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup-3.3 registry ## real Kafka, S3 and Airflow on this machine: load the flights, run the DAGs, check the bucket (KEEP=1 keeps the servers running, and shows the page in Airflow)
	@$(RUN) -m dev.demo $(if $(KEEP),--keep)

dashboard: setup-3.3 registry $(PROMETHEUS) ## the dashboard of docs/metrics filled by Prometheus while the demo runs, as a picture, and its values
	@$(RUN) -m dev.dashboard

docs: setup-3.3 ## the documentation site in .build/site, and pictures of the page; a broken link or reference is an error
	@$(RUN) -m dev.screenshots
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

test: lint docs test-3.3 test-2.11 test-spark ## set up, lint and run every test (ARGS="-k offsets" for some of them)

test-3.3: setup-3.3 browser versitygw registry ## every test but those of an older Airflow
	@$(RUN) $(PYTEST) $(ARGS)

unit: setup-3.3 versitygw ## the tests of tests/unit alone
	@$(RUN) $(PYTEST) tests/unit $(ARGS)

# ARGS may select only tests that do not depend on Airflow: then pytest finds none (exit status 5).
test-2.11: setup-2.11 browser registry ## the tests that depend on Airflow, with Airflow 2.11
	@echo "With Airflow 2.11:"
	@$(VENV_2)/bin/python $(PYTEST) -m "not any_airflow" -o testpaths="$(AIRFLOW_TESTS)" $(ARGS)$(if $(ARGS), || [ $$? = 5 ])

test-spark: setup-spark versitygw ## the end-to-end tests and quick ones of every layer, with the newest Spark and Python
	@echo "With the newest Spark and $$($(VENV_SPARK)/bin/python --version):"
	@$(VENV_SPARK)/bin/python $(PYTEST) -m newest_spark -o testpaths="$(SPARK_TESTS)" $(ARGS)$(if $(ARGS), || [ $$? = 5 ])
	@$(VENV_SPARK)/bin/python $(PYTEST) -m "not newest_spark" -o testpaths="$(PYTHON_TESTS)" $(ARGS)$(if $(ARGS), || [ $$? = 5 ])

test-oldest: $(INSTALLED_OLDEST) ## the golden bucket and folders with the oldest version of each dependency that pyproject.toml allows
	@$(VENV_OLDEST)/bin/python -m pytest $(OLDEST_TESTS) $(ARGS)

lint: setup-3.3 ## style, types, imports between packages, and names
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --quiet --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --config pyproject.toml
	@$(RUN) -m dev.placeholder_names

format: setup-3.3 ## format the code as `make lint` requires
	@$(VENV)/bin/ruff check --quiet --fix .
	@$(VENV)/bin/ruff format --quiet .

release-check: setup-3.3 setup-spark ## whether the last commit can be released: builds, installs on each Python, SBOM, licences (ARGS="wheel compose" for some)
	@$(RUN) -m dev.release_check $(ARGS)

bench: setup-3.3 versitygw ## measure against Spark's own writer; prints a table and JSON
	@$(RUN) -m tests.benchmark $(ARGS)

bench-peers: setup-3.3 versitygw $(PEER_JARS) $(BENTO) ## whole processes beside Spark's writers, Bento, a consumer by hand and Kafka Connect (ARGS="--rounds 1")
	@$(RUN) -m tests.benchmark.peers $(ARGS)

bench-crashes: setup-3.3 versitygw $(PEER_JARS) $(BENTO) ## count the records that are there twice after this package, Spark's stream and Bento were killed
	@$(RUN) -m tests.benchmark.crashes $(ARGS)

simulate: setup-3.3 ## 12,000 seeds of the commit protocol under crashes, races and lost responses
	@$(RUN) -m tests.protocol.simulate $(ARGS)

mutants: setup-3.3 ## remove one safety step of the protocol at a time and check that the simulation or a unit test detects it
	@$(RUN) -m tests.protocol.mutants $(ARGS)

soak: setup-3.3 versitygw ## MINUTES=10 of records, killed processes and faults, landed as FORMAT (SEED chooses one); then checks that every offset is landed once
	@$(RUN) -m tests.soak $(if $(SECONDS),--seconds $(SECONDS),$(if $(MINUTES),--minutes $(MINUTES))) $(if $(SEED),--seed $(SEED)) $(if $(FORMAT),--format "$(FORMAT)") $(if $(BROKERS),--brokers $(BROKERS))

faults: setup-3.3 versitygw ## every request of the protocol x every fault x server x TLS x size x kind of objects, and every interleaving, half an hour
	@EVERY_FAULT=1 $(RUN) $(PYTEST) --dist worksteal tests/faults/test_every_fault.py tests/faults/test_kills.py \
	  $(addprefix tests/unit/batch/test_,interleavings.py crash_points.py crash_points_of_kinds.py) $(ARGS)

lock: $(UV) ## resolve the dependencies again and write the locks
	@for version in 3.3 2.11; do \
	  echo "Resolving the dependencies for Airflow $$version and the oldest Spark ..."; \
	  $(RESOLVE) requirements/airflow-$$version.in requirements/spark-oldest.in \
	    --output-file requirements/airflow-$$version.lock >/dev/null || exit 1; \
	done
	@echo "Resolving them for both and the newest Spark ..."
	@$(RESOLVE) --universal requirements/airflow-3.3.in --extra spark --group lineage --output-file requirements/spark-4.2.lock >/dev/null
	@$(RESOLVE) requirements/airflow-2.11.in --extra spark --output-file requirements/spark-4.2-airflow-2.11.lock >/dev/null
	@echo "Resolving all dependencies at their oldest allowed versions ..."
	@$(UV) pip compile $(UV_FLAGS) pyproject.toml --extra iceberg --extra hive requirements/spark-oldest.in requirements/oldest.in \
	  --resolution lowest-direct --python-version 3.11 --no-annotate --no-header --output-file requirements/oldest.lock >/dev/null
	@echo "Resolving the requirements of Spark's workers at their oldest allowed versions ..."
	@$(UV) pip compile $(UV_FLAGS) spark_jobs/requirements.txt --resolution lowest-direct --python-version 3.11 \
	  --no-annotate --no-header --output-file requirements/spark-workers.lock >/dev/null

setup: setup-3.3 setup-2.11 setup-spark browser versitygw registry ## the virtual environments, the jars, the browser, the second S3 server and the schema registry

setup-3.3: check $(INSTALLED) $(JARS) $(KAFKA_CLASSES) $(SPARK_WORKERS) ## only the one with Airflow 3.3: .venv

setup-2.11: check $(INSTALLED_2) $(JARS) ## only the one with Airflow 2.11: .venv-2.11

setup-spark: check $(INSTALLED_SPARK) $(JARS) $(SPARK_WORKERS_NEWEST) ## only the one with the newest Spark: .venv-spark-4.2

jars: $(JARS) ## only the jars: Spark's Kafka connector, a Kafka broker, Avro's command line

versitygw: $(VERSITYGW) ## only the second S3 server: versitygw, built from source

prometheus: $(PROMETHEUS) ## only Prometheus, for make dashboard: built from source

registry: $(REGISTRY) ## only the schema registry: Apicurio, which needs nothing but Java

# Only root can install it; the check prints the instructions for other users.
browser: ## only the browser: Chromium, for the tests of Airflow's UI
	@sh dev/check.sh chromium 2>/dev/null || [ "$$(id -u)" != 0 ] || { \
	  echo "Installing Chromium, for the tests of Airflow's UI ..."; mkdir -p $(BUILD); \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends chromium; } \
	    >$(BUILD)/chromium.log 2>&1 || true; }
	@sh dev/check.sh chromium

check: ## check the prerequisites of the set-up
	@sh dev/check.sh python java

clean: ## remove all files that make has created
	rm -rf $(VENV) $(VENV_2) $(VENV_SPARK) $(VENV_OLDEST) $(BUILD) dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis \
	  artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(UV):
	@sh dev/check.sh python
	@echo "Installing uv $(UV_VERSION), which installs the rest ..."
	@rm -rf $(BUILD)/uv-*
	@mkdir -p $(BUILD)
	@"$$(sh dev/check.sh --python)" -m venv $(BUILD)/uv-$(UV_VERSION)
	@$(BUILD)/uv-$(UV_VERSION)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(INSTALLED): requirements/airflow-3.3.lock
$(INSTALLED_2): requirements/airflow-2.11.lock
$(INSTALLED_SPARK): requirements/spark-4.2.lock
$(INSTALLED_OLDEST): requirements/oldest.lock
CHOICE := --python
$(INSTALLED_SPARK) $(SPARK_WORKERS_NEWEST): CHOICE := --newest-python
# $(call environment,FOLDER): created again if its Python is another one, or if an upgrade of Python has broken it.
environment = python="$$(sh dev/check.sh $(CHOICE))"; version='import sys; print(sys.version)'; \
  [ "$$($1/bin/python -c "$$version" 2>/dev/null)" = "$$("$$python" -c "$$version")" ] || \
  "$$python" -m venv --clear --without-pip $1
$(INSTALLED) $(INSTALLED_2) $(INSTALLED_SPARK) $(INSTALLED_OLDEST): pyproject.toml | $(UV)
	@$(call environment,$(@D))
	@echo "Installing the $$(grep -c == $(filter %.lock,$^)) packages of $(filter %.lock,$^) into $(@D)" \
	  "(about a minute the first time) ..."
	@$(UV) pip sync $(UV_FLAGS) --python $(@D) $(filter %.lock,$^)
	@$(UV) pip install $(UV_FLAGS) --python $(@D) --no-deps --no-build-isolation --editable .
	@touch $@

$(VERSITYGW): dev/build_go_program.sh | $(UV)
	@UV=$(UV) sh $< $(BUILD) github.com/versity/versitygw/cmd/versitygw $(VERSITYGW_VERSION)

$(PROMETHEUS): dev/build_go_program.sh | $(UV)
	@UV=$(UV) sh $< $(BUILD) github.com/prometheus/prometheus/cmd/prometheus $(PROMETHEUS_VERSION)

$(BENTO): dev/bento/go.mod dev/bento/main.go dev/build_go_program.sh | $(UV)
	@UV=$(UV) sh dev/build_go_program.sh $(BUILD) dev/bento

# Only the requirements of executors: no Airflow, no pyspark, and not this package.
$(SPARK_WORKERS): requirements/spark-workers.lock | $(UV)
	@$(call environment,$(@D))
	@echo "Installing the Python of Spark's workers into $(@D) ..."
	@$(UV) pip sync $(UV_FLAGS) --python $(@D) $<
	@touch $@

# A driver and its workers have the same minor version of Python.
$(SPARK_WORKERS_NEWEST): requirements/spark-4.2.lock spark_jobs/requirements.txt $(INSTALLED_SPARK) | $(UV)
	@$(call environment,$(@D))
	@echo "Installing the Python of the newest Spark's workers into $(@D) ..."
	@$(UV) pip install $(UV_FLAGS) --python $(@D) --requirements spark_jobs/requirements.txt --constraints $<
	@touch $@

$(JARS): dev/pom.xml
	@sh dev/check.sh java maven
	@echo "Fetching the jars of Spark's Kafka connector (10 MB for each of two versions), of a Kafka broker (45 MB), of" \
	  "Avro's command line (60 MB), a catalog of Iceberg (34 MB), of Spark's reader of its tables (110 MB)" \
	  "and of a Hive metastore (53 MB) ..."
	@rm -rf $(@D)
	@mkdir -p $(@D)
	@for jars in spark-4.0=spark spark-4.2=spark,newest-spark kafka=kafka avro=avro iceberg=iceberg iceberg-spark=iceberg-spark hive=hive; do \
	  mvn --batch-mode --strict-checksums --file $< --activate-profiles "$${jars#*=}" dependency:copy-dependencies \
	    -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/$(@D)/$${jars%%=*}" >$(@D)/maven.log 2>&1 || \
	    { grep ERROR $(@D)/maven.log || cat $(@D)/maven.log; exit 1; } >&2; \
	done
	@touch $@

# Brokers of tests live for seconds, half of which Java would spend on reading and checking classes.
$(KAFKA_CLASSES): $(JARS) | $(INSTALLED)
	@$(RUN) -m dev.kafka_broker --archive

# Only for `make bench-peers`.
$(PEER_JARS): dev/peers.xml
	@sh dev/check.sh java maven
	@echo "Fetching the jars of the benchmark's peers: Kafka Connect (36 MB), Hadoop's S3A with the AWS SDK (560 MB) ..."
	@rm -rf $(@D)
	@mkdir -p $(@D)
	@for jars in connect s3a; do \
	  mvn --batch-mode --strict-checksums --file $< --activate-profiles $$jars dependency:copy-dependencies \
	    -DincludeScope=runtime -DoutputDirectory="$(CURDIR)/$(@D)/$$jars" >$(@D)/maven.log 2>&1 || \
	    { grep ERROR $(@D)/maven.log || cat $(@D)/maven.log; exit 1; } >&2; \
	done
	@touch $@

# The archive holds everything that it needs. So it is no dependency in dev/pom.xml, and the version of the plugin is an
# old one: others read its parent POM as well, which not every registry of jars has. In a local repository of its own,
# its path is known.
$(REGISTRY):
	@sh dev/check.sh java maven
	@echo "Fetching the schema registry of the tests, Apicurio $(APICURIO_VERSION) (130 MB, once) ..."
	@rm -rf $(@D)
	@mkdir -p $(@D)
	@mvn --batch-mode --strict-checksums -Dmaven.repo.local="$(CURDIR)/$(@D)/maven" \
	  org.apache.maven.plugins:maven-dependency-plugin:2.8:get -Dtransitive=false \
	  -Dartifact=io.apicurio:apicurio-registry-app:$(APICURIO_VERSION):tar.gz:all >$(@D)/maven.log 2>&1 || \
	  { grep ERROR $(@D)/maven.log || cat $(@D)/maven.log; exit 1; } >&2
	@tar -xzf $(@D)/maven/io/apicurio/apicurio-registry-app/$(APICURIO_VERSION)/*.tar.gz -C $(@D)
	@rm -rf $(@D)/maven
	@touch $@
