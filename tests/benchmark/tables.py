"""How adding a batch to a table of Iceberg slows with the batches before it: a commit for each batch.

The catalog and the S3 server are real ones over HTTP. Each batch has one record, so nearly all of the time is that of
requests and metadata. The same batches are added to two tables: in one old snapshots are expired, in the other none.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import uuid
from typing import Final

from airflow_provider_kafka_s3.config import JsonConverter, Layout, Parquet
from airflow_provider_kafka_s3.config.tables import TableSettings
from airflow_provider_kafka_s3.storage.s3 import S3Store, make_client
from airflow_provider_kafka_s3.tables.iceberg.catalog import file_properties, open_catalog
from airflow_provider_kafka_s3.tables.iceberg.topic_table import TopicTable
from dev.iceberg_catalog import IcebergCatalog
from tests.spark.pipeline import CREDENTIALS, ROOT, s3_settings
from tests.unit.batch.simulated_topic import Topic

COMMITS: Final = 2_000
GOALS: Final = {10: ("to_10th", 4.0), 200: ("to_200th", 1.25)}
"""How many times as long as an early commit one of the last ten takes, where snapshots are expired: the first early one
has few snapshots behind it, the second one as many as are kept.
"""
EXPIRED, ALL_KEPT = "snapshots expired", "all snapshots kept"
_TABLES: Final = {
    # The default keeps those of a day, which have no end in a benchmark.
    EXPIRED: TableSettings(keep_snapshots_hours=0.0),
    ALL_KEPT: TableSettings(keep_snapshots=None),
}
_SCHEMA: Final = '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}'


def tables(endpoint: str, commits: int = COMMITS) -> dict[str, dict[str, float]]:
    """Measure in a process of its own; by table the seconds of its commits, and the last ones by early ones.

    Args:
        endpoint: of the S3 server.
        commits: to each table.
    """
    command = [sys.executable, "-m", "tests.benchmark.tables", endpoint, str(commits)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return measured


def table(measured: dict[str, dict[str, float]]) -> list[str]:
    """The figures as lines of text."""
    return [
        f"    {name:20}" + ", ".join(f"{what} {value:.3f}" for what, value in figures.items())
        for name, figures in measured.items()
    ]


def main() -> None:
    """Land a batch, add it to both tables, and so on; print the figures as a line of JSON."""
    endpoint, commits = sys.argv[1], int(sys.argv[2])
    settings, bucket = s3_settings(endpoint), f"tables-{uuid.uuid4().hex}"
    client = make_client(settings, CREDENTIALS)
    client.create_bucket(Bucket=bucket)
    topic = Topic(Layout(topics_dir="lake", format=Parquet(), value_converter=JsonConverter(schema=_SCHEMA)))
    topic.bucket = S3Store(client, bucket)  # type: ignore[assignment]  # of memory else
    seconds: dict[str, list[float]] = {name: [] for name in _TABLES}
    with IcebergCatalog() as server:
        catalog = open_catalog("benchmark", {"uri": server.url, **file_properties(settings, CREDENTIALS)})
        catalog.create_namespace("lake")
        for number in range(commits):
            topic.append(b'{"n": %d}' % number)
            topic.land(f"run-{number}")
            for index, (name, of_table) in enumerate(_TABLES.items()):
                process = TopicTable(catalog, f"lake.orders_{index}", topic.pipeline.log, of_table)
                began = time.perf_counter()
                added = process.add()
                seconds[name].append(time.perf_counter() - began)
                assert (added.commits, added.files) == (1, 1)
            if number % 100 == 99:
                print(f"  {number + 1} commits", *(by[-1] for by in seconds.values()), file=sys.stderr, flush=True)
    print(json.dumps({name: _figures(by) for name, by in seconds.items()}), flush=True)


def _figures(seconds: list[float]) -> dict[str, float]:
    """Medians of ten commits; the worst of the last hundred is the one that merges their manifests."""
    tenth, two_hundredth, last = (statistics.median(seconds[end - 10 : end]) for end in (15, 200, len(seconds)))
    return {
        "10th_s": round(tenth, 4),
        "200th_s": round(two_hundredth, 4),
        "last_s": round(last, 4),
        "worst_of_last_100_s": round(max(seconds[-100:]), 4),
        "to_10th": round(last / tenth, 2),
        "to_200th": round(last / two_hundredth, 2),
    }


if __name__ == "__main__":
    main()
