"""``python -m dev.screenshots``: the pictures of the page that README and docs show.

The page is shown over a lake that is the same in every run, with a fixed clock. Each picture keeps a digest of the HTML
that it shows, and is taken again only when that has changed: so the fonts of a machine change no committed picture.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import struct
import sys
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from unittest import mock

from airflow_provider_kafka_s3.batch import log as batch_log
from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import Daily, JsonLines, Layout
from airflow_provider_kafka_s3.documents.planner import PlannerTask
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.ui.pages import Pages
from airflow_provider_kafka_s3.ui.places import Connected, Place
from airflow_provider_kafka_s3.ui.server import local_server
from dev.browser import chromium

__all__ = ["PICTURES", "Lake", "main"]

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "ui"
PICTURES: Final[Mapping[str, tuple[str, int]]] = {
    "topics.png": ("", 420),
    "topic.png": ("topic/0/shop/orders", 900),
}
"""Files with the path of the page that each shows, and its height at most."""

_WIDTH: Final = 1200
_VALUE: Final = b'{"text": "' + b"x" * 4_000 + b'"}'
_FIRST_DAY: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_DAYS: Final = 100
_LAST_DAYS: Final = 5
_EMPTY_DAY: Final = 77
_KEYWORD: Final = b"Source\0"
"""Of the chunk of text with the digest."""


class Lake:
    """A bucket with pipelines: some are well, and some are not."""

    def __init__(self) -> None:
        self.bucket = MemoryStore("lake")
        self.kafka = SimulatedKafka()
        self.now = _FIRST_DAY
        self.place = Place("s3://lake/topics", "topics", self._connect)
        with mock.patch.object(batch_log, "write_stamp", self._stamp):
            self._fill()
        self.pages = Pages(lambda: [self.place], now=self.now.timestamp)

    def _connect(self) -> Connected:
        store = DurableStore(self.bucket, Retrier(RetryPolicy(max_retries=0)))
        options = ("--kafka-conn-id", "kafka_default", "--aws-conn-id", "aws_default")
        return Connected(store, self.kafka, options)

    def _stamp(self, attempt: str = "") -> dict[str, str]:
        time = self.now.isoformat(timespec="milliseconds")
        return {"written_by": attempt, "write_id": "0" * 32, "created_at": time, "version": "0.1.0"}

    def _fill(self) -> None:
        topics = {"orders": ("shop", 4), "refunds": ("shop", 2), "clicks": ("web", 3), "payments": ("billing", 2)}
        for topic, (_, partitions) in topics.items():
            self.kafka.create_topic(topic, partitions)
        for day in range(_DAYS):
            self.now = _FIRST_DAY + dt.timedelta(days=day, hours=23, minutes=30)
            for number, (topic, (pipeline, _)) in enumerate(topics.items()):
                # One topic has a long history, with an empty day and some dead letters.
                if day == _EMPTY_DAY or (topic != "orders" and day < _DAYS - _LAST_DAYS):
                    continue
                if topic == "orders" and day % 9 == 0:
                    self.kafka.append(topic, 0, b'{"text": ', int(self.now.timestamp() * 1000))
                # A week has a shape.
                self._append(topic, 12 + 8 * (day % 7) + 5 * ((day * 7 + number) % 11))
                self._land(pipeline, topic, day)
        self._append("clicks", 400)
        self._append("payments", 3)
        self.kafka.delete_records("orders", 2, self.kafka.bounds("orders", 2)[1] - 40)
        self._append("orders", 60)
        self.kafka.delete_records("orders", 1, self.kafka.bounds("orders", 1)[1] - 4)

    def _append(self, topic: str, count: int) -> None:
        for n in range(count):
            partition = n % self.kafka.partition_count(topic)
            self.kafka.append(topic, partition, _VALUE, int(self.now.timestamp() * 1000) - n)

    def _land(self, pipeline: str, topic: str, day: int) -> None:
        opened = TopicPipeline(self._connect().store, self.kafka, topics_dir="topics", pipeline=pipeline, topic=topic)
        self.now += dt.timedelta(minutes=6)
        run = f"scheduled__{self.now:%Y-%m-%d}T00:05:00+00:00"
        opened.land(
            RunRequest(
                run=run,
                offsets="incremental",
                layout=Layout(topics_dir="topics", partitioner=Daily(), format=JsonLines(), errors="dead_letter"),
                starting="earliest",
                attempt=f"try 1 on worker-{day % 3 + 1}",
                task=PlannerTask(dag_id=f"{pipeline}_hourly", task_id="land", run_id=run),
                adopt_wait=0.0,
            )
        )


def main() -> int:
    """Take the pictures whose pages have changed.

    Returns:
        0, also without a browser: then the committed pictures stay as they are.
    """
    pages = Lake().pages
    style = pages.respond("style.css").body
    digests = {
        name: hashlib.sha256((pages.respond(path).body + style).encode()).hexdigest()
        for name, (path, _) in PICTURES.items()
    }
    changed = [name for name, digest in digests.items() if _digest_of(FOLDER / name) != digest]
    if not changed:
        return 0
    FOLDER.mkdir(exist_ok=True)
    try:
        with local_server(pages, 0) as server, chromium() as browser:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            for name in changed:
                path, height = PICTURES[name]
                page = browser.new_page(
                    viewport={"width": _WIDTH, "height": height}, color_scheme="light", locale="en-US"
                )
                page.goto(f"http://127.0.0.1:{server.server_port}/{path}")
                (FOLDER / name).write_bytes(_with_digest(page.screenshot(), digests[name]))
                print(f"{(FOLDER / name).relative_to(Path.cwd())} shows the page as it is now")
            server.shutdown()
    except RuntimeError as e:
        print(f"the pictures of the page are kept as they are, although it has changed: {e}", file=sys.stderr)
    return 0


def _with_digest(picture: bytes, digest: str) -> bytes:
    """A PNG with a chunk of text behind its header, which has 33 bytes."""
    chunk = b"tEXt" + _KEYWORD + digest.encode()
    length, checksum = (struct.pack(">I", number) for number in (len(chunk) - 4, zlib.crc32(chunk)))
    return picture[:33] + length + chunk + checksum + picture[33:]


def _digest_of(file: Path) -> str:
    """The digest in a PNG; empty: there is none."""
    begin = (head := file.read_bytes()[:200] if file.exists() else b"").find(b"tEXt" + _KEYWORD)
    return "" if begin < 0 else head[begin + 4 + len(_KEYWORD) :][:64].decode()


if __name__ == "__main__":
    sys.exit(main())
