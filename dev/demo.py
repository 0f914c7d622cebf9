"""``make demo``: land a year of flights with a real Kafka, an S3 server and Airflow on this machine.

It lands three days by data interval and the rest incrementally, reads the bucket to check that every record is in
exactly one object, and repeats one interval to show that nothing is written and no JVM starts. A second pipeline makes
a dozen objects of all of them, without Kafka, and DuckDB counts both. Then it lands the same flights from Avro of a
schema registry as Parquet, adds them to a table of Iceberg, and compares queries of DuckDB and Spark over the table
with the source. With ``--keep`` Airflow's servers show the page of all pipelines. All servers listen on free loopback
ports and end with this process; all files are in one temporary folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import httpx

from dev import flights
from dev.airflow_connections import connection_variables, kafka_connection, s3_connection
from dev.airflow_home import AirflowHome, DagRun, spark_with_connector
from dev.airflow_servers import AirflowServers
from dev.iceberg_catalog import IcebergCatalog
from dev.kafka_broker import KafkaBroker
from dev.s3_server import S3Server
from dev.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
    from airflow_provider_kafka_s3.storage.s3 import S3Store
    from airflow_provider_kafka_s3.testing.topic_state import TopicState

__all__ = ["BUCKET", "Demo", "main"]

DAGS: Final = Path(__file__).resolve().parent.parent / "dags"
TOPIC: Final = "flights"
BUCKET: Final = "flights"
PIPELINE: Final = "flights-to-s3"
COMPACTED: Final = "compacted"
COMPACTED_PIPELINE: Final = "flights-by-month"
AVRO_TOPIC: Final = "flights-avro"
AVRO_PIPELINE: Final = "flights-avro"
FIRST_DAY: Final = date(2013, 1, 1)
DAYS: Final = 3
ACCESS_KEY: Final = "demo"
SECRET_KEY: Final = "demo-secret"

_PROGRESS: Final = re.compile(r"((?:topic )?flights(?:-avro)?: (?!ok,).*?)(?:\s+\[[\w.]+\].*)?$")
"""Lines of Airflow's and Spark's output about the progress."""

TABLE: Final = "lake.flights"

_QUERY: Final = f"SELECT origin, count(*), sum(dep_delay) FROM lake.{TABLE} GROUP BY origin ORDER BY origin"
"""Flights from each airport of New York City, and the sum of their delays at departure."""


class DemoError(Exception):
    """The demo failed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo.

    Returns:
        0 if all checks passed, 1 if not, 130 after an interrupt.
    """
    parser = argparse.ArgumentParser(prog="python -m dev.demo", description="Kafka to S3 by Airflow, on this machine.")
    parser.add_argument("--keep", action="store_true", help="leave the servers up at the end, until Ctrl-C")
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    began = time.monotonic()
    try:
        with contextlib.ExitStack() as servers:
            demo = Demo(servers)
            demo.run()
            print(f"\nAll of this took {time.monotonic() - began:.0f} s.")
            if options.keep:
                demo.show_page(servers)
            demo.print_addresses(kept=options.keep)
            if options.keep:
                _wait_for_interrupt()
    except (DemoError, RuntimeError, TimeoutError) as e:
        print(f"\nThe demo failed: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; the servers are down.", file=sys.stderr)
        return 130
    print("The servers are down and the temporary files are gone.")
    return 0


class Demo:
    """One run of the demo; its servers end with ``servers``."""

    def __init__(self, servers: contextlib.ExitStack) -> None:
        self._began = time.monotonic()
        folder = Path(servers.enter_context(tempfile.TemporaryDirectory(prefix="kafka-s3-demo-")))
        with self._step("Kafka broker (KRaft)"):
            self.broker = servers.enter_context(KafkaBroker())
        with self._step("S3 server (moto)"):
            self.s3 = servers.enter_context(S3Server(buckets=[BUCKET]))
        with self._step("schema registry (Apicurio)"):
            self.registry = servers.enter_context(SchemaRegistry())
        with self._step("catalog of Iceberg (REST)"):
            self.catalog = servers.enter_context(IcebergCatalog())
        with self._step("Airflow's database"):
            buckets = {"FLIGHTS_BUCKET": BUCKET, "KAFKA_TO_S3_BUCKET": BUCKET}
            stores = json.dumps([{"bucket": BUCKET, "kafka_conn_id": "kafka_default"}])
            page = {"AIRFLOW__KAFKA_S3__STORES": stores}
            settings = {**buckets, **page, **spark_with_connector(), **self._connections()}
            self.airflow = AirflowHome(folder, DAGS, environment=settings)
            self.airflow.migrate()

    def run(self) -> None:
        """Land, check, repeat; then land Avro as Parquet, and query it as a table."""
        with self._step(f"{flights.FLIGHTS:,} flights into topic {TOPIC!r}, 4 partitions"):
            flights.load(self.broker, TOPIC)
        for n in range(DAYS):
            day = FIRST_DAY + timedelta(days=n)
            with self._step(f"DAG flights_daily, data interval {day}"):
                self._test("flights_daily", day)
        with self._step("DAG flights_incremental, all that is left"):
            self._test("flights_incremental", None)
        state = self._check()
        _print_table(state)
        self._repeat()
        self._compact()
        self._land_parquet()
        self._add_to_table()
        self._query_table()

    def show_page(self, servers: contextlib.ExitStack) -> None:
        """Start Airflow's servers, which show the page of all pipelines."""
        with self._step("Airflow's servers, for its web interface"):
            self.url = servers.enter_context(AirflowServers(self.airflow)).url
            page = httpx.get(f"{self.url}/kafka-s3/", trust_env=False, follow_redirects=True)
            if page.is_error or AVRO_TOPIC not in page.text:
                raise DemoError(f"the page of all pipelines answers {page.status_code}: {page.text[:500]}")

    def print_addresses(self, *, kept: bool) -> None:
        """Print the addresses of the servers and commands to inspect them."""
        aws = (
            f"AWS_ACCESS_KEY_ID={ACCESS_KEY} AWS_SECRET_ACCESS_KEY={SECRET_KEY} AWS_DEFAULT_REGION=us-east-1 "
            f"aws --endpoint-url {self.s3.endpoint}"
        )
        marker = f"s3://{BUCKET}/topics/_kafka_s3/{PIPELINE}/{TOPIC}/marker.json"
        intro = "The servers are up" if kept else "The servers stop now; `make demo KEEP=1` leaves them up"
        print(f"\n{intro}. Commands to inspect them:")
        print(f"  all keys         {aws} s3 ls --recursive s3://{BUCKET}/")
        print(f"  stored offsets   {aws} s3 cp {marker} -")
        print(f"  Kafka            {self.broker.bootstrap_servers}")
        print(f"  schema registry  {self.registry.url}")
        print(f"  Iceberg          {self.catalog.url}, table {TABLE}")
        if kept:
            print(f"  Airflow's UI     {self.url}")
            print(f"  all pipelines    {self.url}/plugin/kafka-s3")
            used = ("AIRFLOW", "SPARK_", "FLIGHTS", "KAFKA_TO_S3", "JAVA_HOME")
            names = [n for n in self.airflow.environment if n.startswith(used)]
            file = self.airflow.folder / "environment"
            file.write_text("".join(f"export {n}='{self.airflow.environment[n]}'\n" for n in sorted(names)))
            print(f"  Airflow's CLI    . {file} && {' '.join(self.airflow.command('flights_daily', '2013-01-05'))}")
            print("Press Ctrl-C to stop them.", flush=True)

    # -- parts --------------------------------------------------------------------------------------------------------

    def _connections(self) -> dict[str, str]:
        return connection_variables(
            {
                "kafka_default": kafka_connection({"bootstrap.servers": self.broker.bootstrap_servers}),
                "aws_default": s3_connection(self.s3.endpoint, ACCESS_KEY, SECRET_KEY),
                "spark_default": {"conn_type": "spark", "host": "local[2]"},
                "registry_default": {"conn_type": "http", "host": self.registry.url},
                "iceberg_default": {"conn_type": "iceberg", "host": self.catalog.url},
            }
        )

    def _test(self, dag_id: str, day: date | None, name: str = TOPIC) -> dict[str, Any]:
        """Run a DAG; returns the topic's part of its task's return value."""
        # The interval of a manual run is the last one that has ended at its date.
        logical_date = None if day is None else (day + timedelta(days=1)).isoformat()
        run = self.airflow.test(dag_id, logical_date, on_line=_print_progress)
        self.last_run = run
        if not run.succeeded:
            raise DemoError(f"DAG {dag_id} failed; its output ends with:\n{_tail(run.output)}")
        (returned,) = run.returned.values()
        topic: dict[str, Any] = returned["topics"][name]
        batches = ", ".join(str(b["batch"]) for b in topic["batches"])
        print(f"      {topic['status']}: batch {batches}, {topic['records']:,} records in {topic['objects']:,} objects")
        return topic

    def _store(self) -> S3Store:
        from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client

        settings = S3Settings(endpoint_url=self.s3.endpoint, region="us-east-1", addressing_style="path")
        credentials = S3Credentials(access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY)
        return S3Store(make_client(settings, credentials), BUCKET)

    def _check(self) -> TopicState:
        from airflow_provider_kafka_s3.kafka.source import KafkaSource
        from airflow_provider_kafka_s3.testing.invariants import (
            InvariantViolation,
            check_bucket,
            read_source,
            read_state,
        )

        with self._step("reading Kafka and the bucket, to compare them"):
            store = self._store()
            source = read_source(KafkaSource({"bootstrap.servers": self.broker.bootstrap_servers}), TOPIC)
            try:
                found = check_bucket(
                    store,
                    topics_dir="topics",
                    pipeline=PIPELINE,
                    topic=TOPIC,
                    source=source,
                    recovered=True,
                    complete=True,
                )
            except InvariantViolation as e:
                raise DemoError(f"the bucket does not hold what Kafka holds: {e}") from e
            if found.records != flights.FLIGHTS:
                raise DemoError(f"the bucket holds {found.records} records of {flights.FLIGHTS}")
        print(f"      every one of {found.records:,} offsets is in exactly one of {found.objects:,} objects")
        return read_state(store, topics_dir="topics", pipeline=PIPELINE, topic=TOPIC)

    def _repeat(self) -> None:
        from airflow_provider_kafka_s3.testing.invariants import InvariantViolation, check_unchanged, snapshot

        before = snapshot(self._store())
        with self._step(f"DAG flights_daily once more, data interval {FIRST_DAY}"):
            topic = self._test("flights_daily", FIRST_DAY)
        try:
            check_unchanged(before, snapshot(self._store()))
        except InvariantViolation as e:
            raise DemoError(f"the repeated run changed the bucket: {e}") from e
        if topic["wrote"] or not topic["batches"] or self.last_run.java_starts:
            raise DemoError(f"the repeated run started {self.last_run.java_starts} JVMs and returned {topic}")
        for batch in topic["batches"]:
            print(f"      already covered by batch {batch['batch']}: {batch['manifest']}")
        print(f"      nothing was written ({len(before):,} keys with the same ETags), and no JVM was started")

    def _compact(self) -> None:
        """Make few objects of many, count both, and show what could be deleted then."""
        from dev.iceberg_readers import duckdb_over_s3

        with self._step("DAG flights_compact, from the landed objects"):
            self._test("flights_compact", None)
        counts: dict[str, tuple[int, int, int]] = {}
        with self._step("DuckDB, over both"), duckdb_over_s3(self.s3.endpoint) as database:
            for folder in ("topics", COMPACTED):
                objects = f"s3://{BUCKET}/{folder}/{TOPIC}/**/*.json.gz"
                rows = f"read_json('{objects}', columns = {{dep_delay: 'BIGINT'}}, format = 'newline_delimited')"
                (sums,) = database.execute(f"SELECT count(*), sum(dep_delay) FROM {rows}").fetchall()
                (number,) = database.execute(f"SELECT count(*) FROM glob('{objects}')").fetchone() or (0,)
                counts[folder] = (number, *sums)
                print(f"      {folder}: {number:,} objects, {sums[0]:,} flights, {int(sums[1]):,} minutes of delay")
        landed, compacted = counts["topics"], counts[COMPACTED]
        if landed[1:] != compacted[1:] or landed[1] != flights.FLIGHTS or compacted[0] >= landed[0]:
            raise DemoError(f"DuckDB counts {landed} in the landed objects, and {compacted} in the compacted ones")
        self._command(
            f"expire --aws-conn-id aws_default --bucket {BUCKET} --pipeline {PIPELINE} --topic {TOPIC} "
            f"--landed-in {COMPACTED_PIPELINE} --landed-in-topics-dir {COMPACTED} --least-age 0 --verify --dry-run"
        )

    def _land_parquet(self) -> None:
        with self._step(f"the flights in Avro into topic {AVRO_TOPIC!r}, their schema into the registry"):
            schema_id = self.registry.register(f"{AVRO_TOPIC}-value", json.dumps(flights.AVRO_SCHEMA))
            flights.load_avro(self.broker, AVRO_TOPIC, schema_id)
        with self._step("DAG kafka_to_s3_avro_to_parquet"):
            self._test("kafka_to_s3_avro_to_parquet", None, AVRO_TOPIC)

    def _add_to_table(self) -> None:
        from airflow_provider_kafka_s3.tables.iceberg.catalog import open_catalog

        open_catalog("demo", {"uri": self.catalog.url}).create_namespace(TABLE.partition(".")[0])
        self._command(
            f"table add --aws-conn-id aws_default --iceberg-conn-id iceberg_default --bucket {BUCKET} "
            f"--pipeline {AVRO_PIPELINE} --topic {AVRO_TOPIC} --table {TABLE}"
        )

    def _command(self, options: str) -> None:
        """Run a command of the command line, and print what it prints."""
        with self._step(f"kafka-s3 {options}"):
            command = [sys.executable, "-m", "airflow_provider_kafka_s3.cli", *options.split()]
            done = subprocess.run(
                command, env=self.airflow.environment, capture_output=True, text=True, check=False, cwd=DAGS.parent
            )
            if done.returncode:
                raise DemoError(f"kafka-s3 {options.split(maxsplit=1)[0]} failed:\n{done.stdout}{_tail(done.stderr)}")
            for line in done.stdout.strip().splitlines():
                print(f"      {line}")

    def _query_table(self) -> None:
        from dev.iceberg_readers import SparkWithIceberg, duckdb_with_iceberg

        expected = _airports()
        with self._step("DuckDB, over the table"), duckdb_with_iceberg(self.catalog.url, self.s3.endpoint) as database:
            by_duckdb = database.execute(_QUERY).fetchall()
        with self._step("Spark, over the table"), SparkWithIceberg(self.catalog.url, self.s3.endpoint) as spark:
            by_spark = [tuple(row.values()) for row in spark.query(_QUERY).to_pylist()]
        print(f"      {_QUERY}\n")
        columns = (f"{reader}: flights  minutes of delay" for reader in ("DuckDB", "Spark", "source"))
        print(f"           {'  '.join(columns)}")
        for (origin, *first), (_, *second), (_, *third) in zip(by_duckdb, by_spark, expected, strict=False):
            numbers = zip((*first, *second, *third), (16, 16, 14, 16, 15, 16), strict=True)
            print(f"  {origin:6}  " + "  ".join(f"{int(number):>{width},}" for number, width in numbers))
        print(flush=True)
        if not by_duckdb == by_spark == expected:
            raise DemoError(f"DuckDB has {by_duckdb} over the table, Spark {by_spark}, the source {expected}")

    @contextlib.contextmanager
    def _step(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        print(f"[{started - self._began:4.0f} s] {what} ...", flush=True)
        yield
        print(f"      done in {time.monotonic() - started:.1f} s", flush=True)

    last_run: DagRun
    url: str


def _print_progress(line: str) -> None:
    if (found := _PROGRESS.search(line)) is not None:
        print(f"      {found[1]}"[:150], flush=True)


def _print_table(state: TopicState) -> None:
    """The first days, then totals, as the manifests have them."""
    partitions: dict[str, list[ObjectEntry]] = {}
    kafka_partition: dict[str, int] = {}
    for plan, manifest in state.committed():
        of_slice = {s.id: s.partition for s in plan.slices}
        for entry in manifest.objects:
            encoded = entry.key.removeprefix(f"topics/{TOPIC}/").rpartition("/")[0]
            partitions.setdefault(encoded, []).append(entry)
            kafka_partition[entry.key] = of_slice[entry.slices[0]]
    header = ("encoded partition", "objects", "records", "bytes", "offsets (Kafka partition: first-last)")
    rows = [
        (encoded, *_sums(entries), _offsets(entries, kafka_partition))
        for encoded, entries in sorted(partitions.items())[:DAYS]
    ]
    rest = len(partitions) - DAYS
    rows.append((f"... {rest} more days", *_sums([e for _, es in sorted(partitions.items())[DAYS:] for e in es]), ""))
    rows.append(("total", *_sums([e for es in partitions.values() for e in es]), ""))
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(4)]
    print()
    for row in [header, *rows]:
        numbers = "".join(f"  {row[i]:>{widths[i]}}" for i in (1, 2, 3))
        print(f"  {row[0]:<{widths[0]}}{numbers}  {row[4]}".rstrip())
    print(flush=True)


def _sums(entries: Sequence[ObjectEntry]) -> tuple[str, str, str]:
    return f"{len(entries):,}", f"{sum(e.records for e in entries):,}", f"{sum(e.size for e in entries):,}"


def _offsets(entries: Sequence[ObjectEntry], kafka_partition: Mapping[str, int]) -> str:
    ranges: dict[int, tuple[int, int]] = {}
    for e in entries:
        p = kafka_partition[e.key]
        first, last = ranges.get(p, (e.min_offset, e.max_offset))
        ranges[p] = (min(first, e.min_offset), max(last, e.max_offset))
    return "  ".join(f"{p}: {first}-{last}" for p, (first, last) in sorted(ranges.items()))


def _airports() -> list[tuple[str, int, int]]:
    """The result of the query, computed from the source."""
    found: dict[str, list[int]] = {}
    for flight in flights.flights():
        count_and_delay = found.setdefault(str(flight["origin"]), [0, 0])
        count_and_delay[0] += 1
        count_and_delay[1] += int(flight["dep_delay"] or 0)
    return [(origin, count, delay) for origin, (count, delay) in sorted(found.items())]


def _tail(text: str, lines: int = 40) -> str:
    return "\n".join(text.splitlines()[-lines:])


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _wait_for_interrupt() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            signal.pause()
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
