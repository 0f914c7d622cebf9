"""The protocol at its limits: a thousand topics in a run, 100,000 objects in a batch, 10,000 partitions of a topic.

Kafka is simulated, and the store is in memory but for the topics: what is measured are the documents and the requests.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from unittest import mock

from airflow_provider_kafka_s3.batch.execute import execute_plan
from airflow_provider_kafka_s3.batch.object_metadata import BATCH_METADATA, NONCE_METADATA
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.cli import main as command_line
from airflow_provider_kafka_s3.config import Daily, JsonLines, Layout, Limits, Rotation
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry, SliceResult, SliceRows
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import UploadGone
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage import bucket as s3_bucket
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectInfo
from airflow_provider_kafka_s3.submit.topic_runs import land_topics
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, Request, SimulatedCrash
from airflow_provider_kafka_s3.ui.pages import Pages
from airflow_provider_kafka_s3.ui.places import Connected, Place
from tests.benchmark.measure import peak_memory
from tests.benchmark.scale import CountedRequests, SimulatedPipeline, in_own_process
from tests.protocol.history import batch_of, documents_of

TOPICS: Final = 1_000
PARTITIONS_OF_A_TOPIC: Final = 10
OBJECTS: Final = 100_000
PARTITIONS: Final = 10_000

_PIPELINE: Final = "lake"
_MEGABYTE: Final = 1_000_000
_LAYOUT: Final = Layout(format=JsonLines())
_BATCHES: Final = 6
_THREADS: Final = 16
"""Topics that a driver settles at the same time."""


def wide(case: str, config: dict[str, Any]) -> dict[str, Any]:
    """The figures of a case, measured in a process of its own.

    Args:
        case: of ``CASES``.
        config: ``endpoint``.
    """
    return in_own_process(case, config, module=__name__)


class _Measured:
    """Seconds, CPU seconds and requests of steps, and the memory of the process."""

    def __init__(self, store: FaultyStore) -> None:
        self.store = store
        self.figures: dict[str, Any] = {}

    def step(self, name: str, action: Callable[[], Any]) -> Any:
        """Run a step and keep its figures."""
        self.store.requests = counted = CountedRequests()
        began, cpu = time.perf_counter(), time.process_time()
        result = action()
        self.figures |= {
            f"{name}_s": round(time.perf_counter() - began, 2),
            f"{name}_cpu_s": round(time.process_time() - cpu, 2),
            f"{name}_requests": counted.counts.total(),
        }
        return result


class _Tasks:
    """A committer in whose place the tasks of a job end: it keeps their rows, and decides nothing."""

    def __init__(self, pipeline: TopicPipeline) -> None:
        self._committer = pipeline.committer
        self.rows: list[SliceRows] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._committer, name)

    def decide(self, plan: Plan, rows: list[SliceRows], **_: Any) -> None:
        """Keep the rows."""
        self.rows = rows

    def carry_out(self, *_: Any) -> None:
        """Do nothing."""


def _land(measured: _Measured, topics: list[str], open_topic: Callable[[str], TopicPipeline], layout: Layout) -> None:
    """One run over topics: planned, read without Spark, committed as the driver does; and again, with nothing new."""
    timed: dict[str, float] = {}

    def request(run: str) -> RunRequest:
        return RunRequest(run=run, layout=layout, offsets="incremental", starting="earliest", limits=Limits())

    def runs(name: str) -> dict[str, Any]:
        return {topic: open_topic(topic).run(request(name)) for topic in topics}

    def submit(plans: Mapping[str, Plan]) -> dict[str, Exception]:
        timed["planned"] = time.perf_counter()
        measured.figures["plan_requests"] = measured.store.requests.counts.total()  # type: ignore[attr-defined]
        read = {topic: _Tasks(open_topic(topic)) for topic in plans}
        in_threads(lambda t: execute_plan(read[t], plans[t], run="run"), [*plans], threads=_THREADS)  # type: ignore[arg-type]
        measured.store.requests = counted = CountedRequests()
        timed["read"] = time.perf_counter()

        def settle(topic: str) -> None:
            committer = open_topic(topic).committer
            plan, _ = committer.log.require_plan(plans[topic].batch)
            committer.carry_out(plan, committer.decide(plan, read[topic].rows, run="run"))

        in_threads(settle, [*plans], threads=_THREADS)
        timed["committed"] = time.perf_counter()
        measured.figures["commit_requests"] = counted.counts.total()
        measured.store.requests = CountedRequests()
        return {}

    measured.store.requests = CountedRequests()
    began, before = time.perf_counter(), rss()
    landed = land_topics(runs("run"), submit)
    ended = time.perf_counter()
    assert not landed.errors, next(iter(landed.errors.values()))
    assert all(isinstance(result, TopicResult) for result in landed.results.values())
    measured.figures |= {
        "plan_s": round(timed["planned"] - began, 2),
        "commit_s": round(timed["committed"] - timed["read"], 2),
        "end_s": round(ended - timed["committed"], 2),
        "end_requests": measured.store.requests.counts.total(),
        "grows_mb": round(rss() - before),
        "mb": round(rss()),
    }
    again = measured.step("nothing_new", lambda: land_topics(runs("later"), submit))
    assert {result.status for result in again.results.values()} == {"empty"}


def _many_topics(config: dict[str, Any]) -> dict[str, Any]:
    """The first run over many topics of several Kafka partitions."""
    simulated, kafka = SimulatedPipeline(config), SimulatedKafka()
    topics = [f"topic-{n:04d}" for n in range(config.get("topics", TOPICS))]
    for topic in topics:
        kafka.create_topic(topic, PARTITIONS_OF_A_TOPIC)
        for partition in range(PARTITIONS_OF_A_TOPIC):
            kafka.append(topic, partition, b'{"n": 1}', 1_700_000_000_000)

    def open_topic(topic: str) -> TopicPipeline:
        return TopicPipeline(simulated.store, kafka, topics_dir=_LAYOUT.topics_dir, pipeline=_PIPELINE, topic=topic)

    measured = _Measured(simulated.raw)
    _land(measured, topics, open_topic, _LAYOUT)
    return {"topics": len(topics), "partitions": PARTITIONS_OF_A_TOPIC, **measured.figures}


def _many_partitions(config: dict[str, Any]) -> dict[str, Any]:
    """The first run over a topic of many Kafka partitions, each with an object of its own, or all in one."""
    figures: dict[str, Any] = {"partitions": PARTITIONS}
    for name, rotation in (("", Rotation()), ("merged_", Rotation(merge_partitions=True))):
        kafka = SimulatedKafka()
        kafka.create_topic("wide", config.get("partitions", PARTITIONS))
        for partition in range(kafka.partition_count("wide")):
            kafka.append("wide", partition, b'{"n": 1}', 1_700_000_000_000)
        raw = FaultyStore(MemoryStore())
        store, layout = DurableStore(raw, Retrier()), Layout(format=JsonLines(), partitioner=Daily(), rotation=rotation)

        def open_topic(topic: str, store: DurableStore = store, kafka: SimulatedKafka = kafka) -> TopicPipeline:
            return TopicPipeline(store, kafka, topics_dir=_LAYOUT.topics_dir, pipeline=_PIPELINE, topic=topic)

        measured = _Measured(raw)
        _land(measured, ["wide"], open_topic, layout)
        status = measured.step("status", lambda: open_topic("wide").status(last=5))
        assert status is not None
        assert len(status.partitions) == kafka.partition_count("wide")
        log = open_topic("wide").log
        for document, key in (
            ("plan", addresses.plan_key(log.prefix, 1)),
            ("manifest", addresses.manifest_key(log.prefix, 1)),
            ("marker", addresses.marker_key(log.prefix)),
        ):
            stored = store.get(key)
            assert stored is not None
            measured.figures[f"{document}_mb"] = round(len(stored.body) / _MEGABYTE, 2)
        figures |= {name + figure: value for figure, value in measured.figures.items()}
    return figures


class _ListedUploads(MemoryStore):
    """A bucket with the uploads of a manifest, of which it holds only whether they are completed."""

    def __init__(self) -> None:
        super().__init__("uploads")
        self._entries: dict[str, ObjectEntry] = {}
        self.completed: set[str] = set()

    def hold(self, manifest: Manifest) -> None:
        """Have the uploads of a batch."""
        self._entries = {entry.key: entry for entry in manifest.objects}

    def complete_upload(self, key: str, upload_id: str, parts: Any) -> None:
        """See the port."""
        if key in self.completed:
            raise UploadGone(upload_id)
        assert self._entries[key].upload_id == upload_id
        self.completed.add(key)

    def head(self, key: str) -> ObjectInfo | None:
        """See the port."""
        if key not in self._entries:
            return super().head(key)
        entry = self._entries[key]
        metadata = {BATCH_METADATA: "1", NONCE_METADATA: entry.nonce}
        return ObjectInfo(key, entry.size, '"e"', metadata) if key in self.completed else None


def _many_objects(config: dict[str, Any]) -> dict[str, Any]:
    """A batch of many objects whose driver is killed half way; the next one completes it; a rerun checks it."""
    objects, kafka, bucket = config.get("objects", OBJECTS), SimulatedKafka(), _ListedUploads()
    topic_id = kafka.create_topic("events")
    for _ in range(objects):
        kafka.append("events", 0, b"x")
    completed = 0

    def fault(request: Request) -> Fault | None:
        nonlocal completed
        completed += request.operation == "complete_upload"
        return Fault.CRASH_BEFORE if completed >= objects // 2 else None

    def pipeline(raw: FaultyStore) -> TopicPipeline:
        return TopicPipeline(
            DurableStore(raw, Retrier()), kafka, topics_dir=_LAYOUT.topics_dir, pipeline=_PIPELINE, topic="events"
        )

    def run(raw: FaultyStore, name: str = "run") -> Any:
        settings: dict[str, Any] = {"offsets": "incremental", "starting": "earliest"}
        limits = Limits(records_per_slice=10**8)
        return pipeline(raw).run(RunRequest(run=name, layout=_LAYOUT, limits=limits, **settings)).advance()

    plan = run(FaultyStore(bucket))
    killed = FaultyStore(bucket, choose=fault)
    measured = _Measured(killed)
    committer = pipeline(killed).committer
    plan, _ = committer.log.require_plan(1)
    _, fake, _ = batch_of(1, plan.claim, topic="events", topic_id=topic_id, layout=plan.layout, objects=objects)
    bucket.hold(fake)
    rows = SliceRows(result=SliceResult(id=0, records=objects, ignored=0, next_offset=objects), objects=fake.objects)
    before = rss()
    decision = measured.step("decide", lambda: committer.decide(plan, [rows], run="run"))
    with contextlib.suppress(SimulatedCrash):
        measured.step("killed", lambda: committer.carry_out(plan, decision))
    measured.figures["grows_mb"] = round(rss() - before)
    assert len(bucket.completed) == objects // 2 - 1
    stored = bucket.get(addresses.manifest_key(committer.log.prefix, 1))
    assert stored is not None
    measured.figures["manifest_mb"] = round(len(stored.body) / _MEGABYTE, 1)
    measured.store, before = FaultyStore(bucket), rss()
    result = measured.step("resume", lambda: run(measured.store))
    assert result.batches[0].objects == objects
    measured.figures["resume_grows_mb"] = round(rss() - before)
    measured.store, before = FaultyStore(bucket), rss()
    assert measured.step("rerun", lambda: run(measured.store)).verified == objects
    return {"objects": objects, **measured.figures, "mb": round(rss())}


def rss() -> float:
    """The largest memory of the process so far."""
    return peak_memory() / _MEGABYTE


def _page(config: dict[str, Any]) -> dict[str, Any]:
    """The list of many topics of six batches: as a page, its first look and a later one, and by ``kafka-s3 status``."""
    raw, kafka = FaultyStore(MemoryStore()), SimulatedKafka()
    store, topics = DurableStore(raw, Retrier()), [f"topic-{n:04d}" for n in range(config.get("topics", TOPICS))]

    def put(topic: str) -> None:
        address = TopicAddress(topics_dir="topics", pipeline=_PIPELINE, topic=topic)
        topic_id = kafka.create_topic(topic)
        for _ in range(2 * _BATCHES):
            kafka.append(topic, 0, b"x")
        where: dict[str, Any] = {"prefix": address.prefix, "topics_dir": "topics", "pipeline": _PIPELINE}
        for key, body, metadata in documents_of(_BATCHES, topic=topic, topic_id=topic_id, **where):
            raw.store.put_new(key, body, metadata=metadata)

    for topic in topics:
        put(topic)
    measured = _Measured(raw)
    place = Place("s3://lake", "topics", lambda: Connected(store, kafka))
    clock = iter(range(0, 1_000, 100))
    pages = Pages(lambda: [place], monotonic=lambda: next(clock))
    page = measured.step("first", lambda: pages.respond(""))
    measured.figures["page_kb"] = len(page.body) // 1_000
    assert page.status == 200
    assert measured.step("later", lambda: pages.respond("")).body.count("<tr") > len(topics)
    text = io.StringIO()
    with (
        mock.patch.object(s3_bucket, "open_bucket", return_value=store),
        mock.patch("airflow_provider_kafka_s3.kafka.source.KafkaSource", return_value=kafka),
        contextlib.redirect_stdout(text),
    ):
        arguments = ["status", "--bucket", "b", "--bootstrap-server", "simulated:9092"]
        assert measured.step("status", lambda: command_line.main(arguments)) == 0
    measured.figures["status_lines"] = text.getvalue().count("\n")
    return {"topics": len(topics), **measured.figures, "mb": round(rss())}


CASES: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "objects": _many_objects,
    "page": _page,
    "partitions": _many_partitions,
    "topics": _many_topics,
}


def main() -> None:
    """Run one case with the configuration from standard input; print its figures as a line of JSON."""
    logging.basicConfig(level=logging.ERROR)
    print(json.dumps(CASES[sys.argv[1]](json.load(sys.stdin))), flush=True)


if __name__ == "__main__":
    main()
