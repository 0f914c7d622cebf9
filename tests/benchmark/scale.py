"""How the protocol scales: many objects in a batch, many batches before it, many topics in one run.

Each case runs in a process of its own, so that its memory can be measured. The S3 server is a real one over HTTP; Kafka
is simulated where no record is read, and real for the topics.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.derived.log_indexes import build_index, write_missing
from airflow_provider_kafka_s3.batch.log_index import summaries
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import JsonLines, Layout, Limits, RawBytes
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.codec import encode
from airflow_provider_kafka_s3.documents.manifest import SliceResult, SliceRows
from airflow_provider_kafka_s3.documents.owner import Owner
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.documents.topic_summary import Activity
from airflow_provider_kafka_s3.inspect.status import topic_status
from airflow_provider_kafka_s3.kafka.offsets import TopicInfo
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.maintenance.gc import find_garbage
from airflow_provider_kafka_s3.maintenance.repair import repair
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.pipeline import Run, TopicPipeline
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.replay.plan import plan_replay
from airflow_provider_kafka_s3.replay.request import ReplayRequest
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Store, make_client
from airflow_provider_kafka_s3.submit.topic_runs import land_topics
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import FaultyStore, Request
from airflow_provider_kafka_s3.ui.model import topic_rows
from airflow_provider_kafka_s3.ui.places import Connected, Place
from dev.kafka_broker import KafkaBroker, Message
from tests.benchmark.data import START
from tests.benchmark.measure import peak_memory
from tests.protocol.history import batch_of, documents_of, marker_of, summary_of
from tests.protocol.made_history import LongTopic, MadeHistory
from tests.spark.pipeline import CREDENTIALS, ROOT, Pipeline, s3_settings, spark_conf

OBJECTS: Final = 10_000
BATCHES: Final = 10_000
TOPICS: Final = {"topics": (500, 1), "topics of four partitions": (1_000, 4)}
"""Number of topics of a run, and of their Kafka partitions."""
RECORDS_PER_PARTITION: Final = 10

_TOPIC: Final = "events"
_PIPELINE: Final = "lake"
_LAYOUT: Final = Layout(format=RawBytes())
_MEGABYTE: Final = 1_000_000
_ROUNDS: Final = 25


def scale(config: dict[str, Any], broker: KafkaBroker) -> dict[str, dict[str, Any]]:
    """Run all cases.

    Args:
        config: ``endpoint`` and ``bootstrap_servers``.
        broker: for the topics.
    """
    figures = {case: _case(case, config) for case in _CASES if case not in {*TOPICS, "page"}}
    for case, (topics, partitions) in TOPICS.items():
        # The first one warms Spark up.
        names = [f"scale-{partitions}-{n:04d}" for n in range(topics + 1)]
        for name in names:
            broker.create_topic(name, partitions)
        records = [
            Message(b'{"n":%d}' % n, partition=n % partitions, timestamp=START + n)
            for n in range(RECORDS_PER_PARTITION * partitions)
        ]
        for name in names:
            broker.produce(name, records)
        figures[case] = _case(case, {**config, "topics": names})
        if partitions == 1:
            figures["page"] = _case("page", {**config, "topics": names[1:]})
    return figures


def many_objects(config: dict[str, Any]) -> dict[str, Any]:
    """The case of many objects alone; ``config`` has the ``endpoint``."""
    return _case("objects", config)


def _case(case: str, config: dict[str, Any]) -> dict[str, Any]:
    print(f"Scale: {case} …", flush=True)
    measured = in_own_process(case, config)
    print(*table({case: measured}), sep="\n", flush=True)
    return measured


def in_own_process(case: str, config: dict[str, Any], module: str = "tests.benchmark.scale") -> dict[str, Any]:
    """The figures of a case: the last line that a module prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", module, case],
        cwd=ROOT,
        input=json.dumps(config),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def table(figures: dict[str, dict[str, Any]]) -> list[str]:
    """The figures as lines of text."""
    return [
        f"  {case}: " + ", ".join(f"{what} {value}" for what, value in values.items())
        for case, values in figures.items()
    ]


class SimulatedPipeline:
    """A bucket on the server and a simulated topic."""

    def __init__(self, config: dict[str, Any]) -> None:
        client = make_client(s3_settings(config["endpoint"]), CREDENTIALS)
        bucket = f"scale-{uuid.uuid4().hex}"
        client.create_bucket(Bucket=bucket)
        self.raw = FaultyStore(S3Store(client, bucket))
        self.store = DurableStore(self.raw, Retrier())
        self.kafka = SimulatedKafka()
        self.topic_id = self.kafka.create_topic(_TOPIC)

    def pipeline(self) -> TopicPipeline:
        """The pipeline, without anything cached."""
        return TopicPipeline(self.store, self.kafka, topics_dir=_LAYOUT.topics_dir, pipeline=_PIPELINE, topic=_TOPIC)

    def committer(self) -> Committer:
        """The committer, without anything cached."""
        return self.pipeline().committer

    def attempt(self, run: str, **settings: Any) -> Run:
        """A try of a run."""
        defaults: dict[str, Any] = {
            "offsets": "incremental",
            "starting": "earliest",
            "limits": Limits(records_per_slice=10**8),
        }
        return self.pipeline().run(RunRequest(run=run, layout=_LAYOUT, **(defaults | settings)))

    def timed(self, what: Callable[[], object]) -> tuple[float, int]:
        """Seconds and requests."""
        before, started = len(self.raw.requests), time.perf_counter()
        what()
        return round(time.perf_counter() - started, 3), len(self.raw.requests) - before


def _rss() -> float:
    return peak_memory() / _MEGABYTE


def _objects(config: dict[str, Any]) -> dict[str, Any]:
    """One batch of many objects of one record."""
    simulated = SimulatedPipeline(config)
    for _ in range(OBJECTS):
        simulated.kafka.append(_TOPIC, 0, b"x")
    attempt = simulated.attempt("first")
    plan = attempt.advance()
    assert isinstance(plan, Plan)
    _, fake, bodies = batch_of(
        1, plan.claim, topic=_TOPIC, topic_id=simulated.topic_id, layout=plan.layout, objects=OBJECTS
    )

    def upload(n: int) -> Any:
        key, body, metadata = bodies[n]
        upload_id = simulated.store.create_upload(key, metadata)
        part = simulated.store.upload_part(key, upload_id, 1, body)
        entry = fake.objects[n]
        fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
        return type(entry)(**fields | {"upload_id": upload_id, "parts": ((part.etag, part.checksum),)})

    started = time.perf_counter()
    entries = in_threads(upload, range(OBJECTS), threads=16)
    uploading = time.perf_counter() - started
    result = SliceResult(id=0, records=OBJECTS, ignored=0, next_offset=OBJECTS)
    rows = SliceRows(result=result, objects=tuple(entries))
    committer, before = simulated.committer(), _rss()
    plan, _ = committer.log.require_plan(1)
    decide, _ = simulated.timed(lambda: committer.decide(plan, [rows], run="first"))
    decision = committer.log.read_manifest(1)
    assert decision is not None
    complete, requests = simulated.timed(lambda: committer.carry_out(plan, decision))
    manifest = simulated.store.get(addresses.manifest_key(committer.log.prefix, 1))
    assert manifest is not None
    grown = _rss() - before
    again: list[Any] = []
    rerun, _ = simulated.timed(lambda: again.append(simulated.attempt("first").advance()))
    assert again[0].verified == OBJECTS
    return {
        "objects": OBJECTS,
        "upload_s": round(uploading, 2),
        "decide_s": decide,
        "complete_s": complete,
        "objects_per_s": round(OBJECTS / complete),
        "requests": requests,
        "manifest_mb": round(len(manifest.body) / _MEGABYTE, 2),
        "driver_grows_mb": round(grown),
        "driver_mb": round(_rss()),
        "rerun_s": rerun,
    }


def _with_past(config: dict[str, Any], batches: int) -> tuple[SimulatedPipeline, float]:
    """A pipeline after so many batches of two records, and the seconds that a run without new records takes there."""
    simulated = SimulatedPipeline(config)
    for _ in range(2 * batches):
        simulated.kafka.append(_TOPIC, 0, b"x")
    where = {"prefix": simulated.committer().log.prefix, "topics_dir": _LAYOUT.topics_dir, "pipeline": _PIPELINE}
    found = documents_of(batches, topic=_TOPIC, topic_id=simulated.topic_id, indexed=True, **where)
    in_threads(lambda item: simulated.raw.put_new(item[0], item[1], metadata=item[2]), found, threads=32)
    times = [simulated.timed(simulated.attempt(f"nothing {n}").advance)[0] for n in range(_ROUNDS)]
    return simulated, statistics.median(times)


def _history(config: dict[str, Any]) -> dict[str, Any]:
    """A run, and every read-only command, after few and after many batches."""
    _, few = _with_past(config, 10)
    simulated, many = _with_past(config, BATCHES)
    before, committer = _rss(), simulated.committer()
    figures: dict[str, Any] = {"batches": BATCHES, "look_s": many, "look_after_10_s": few}
    figures["look_ratio"] = round(many / few, 2)
    figures["status_s"], figures["status_requests"] = simulated.timed(
        lambda: topic_status(committer.log, simulated.kafka)
    )
    for what, window in (("latest", (2 * BATCHES - 2, 2 * BATCHES)), ("oldest", (0, 2))):
        run = simulated.attempt(what, offsets="data_interval", window={0: window})
        figures[f"{what}_window_s"], figures[f"{what}_window_requests"] = simulated.timed(run.advance)
    unaided = simulated.attempt("oldest, by plans", offsets="data_interval", window={0: (0, 2)})
    # No index has so many batches, so none is used.
    unaided.log.index_sizes = (10 * BATCHES,)
    figures["oldest_window_without_index_s"], figures["oldest_window_without_index_requests"] = simulated.timed(
        unaided.advance
    )
    marker, _ = committer.log.require_marker()
    looks: dict[str, Callable[[], object]] = {
        "summaries": lambda: list(summaries(committer.log, marker)),
        "gc": lambda: find_garbage(simulated.committer().log, now=time.time()),
        "index_of_100": lambda: build_index(simulated.committer().log, marker, range(1, 101)),
        "repair": lambda: repair(simulated.committer(), start={0: 0}, dry_run=True),
    }
    for what, look in looks.items():
        figures[f"{what}_s"], figures[f"{what}_requests"] = simulated.timed(look)
    found: list[Any] = []
    verify = simulated.attempt("verify", action="verify")
    figures["verify_s"], figures["verify_requests"] = simulated.timed(lambda: found.append(verify.advance()))
    assert found[0].verified == BATCHES
    figures["grows_mb"] = round(_rss() - before)
    simulated.kafka.append(_TOPIC, 0, b"x")
    next_run = simulated.attempt("next")
    figures["plan_s"], figures["plan_requests"] = simulated.timed(lambda: found.append(next_run.advance()))
    assert isinstance(found[1], Plan)
    return figures


class _Made(SimulatedPipeline):
    """A bucket whose documents are made when they are read, and a topic without records."""

    def __init__(self, batches: int) -> None:
        self.made = MadeHistory(batches, topics_dir=_LAYOUT.topics_dir, pipeline=_PIPELINE, topic=_TOPIC)
        self.raw = FaultyStore(self.made)
        self.store = DurableStore(self.raw, Retrier())
        self.kafka = LongTopic(_TOPIC, 2 * batches)

    def timed(self, what: Callable[[], object]) -> tuple[float, int]:
        """CPU seconds without those in which documents were made, and requests, pages of listings among them."""
        self.raw.requests = counted = CountedRequests()
        self.made.pages, self.made.seconds = 0, 0.0
        started = time.process_time()
        what()
        seconds = time.process_time() - started - self.made.seconds
        return round(seconds, 3), counted.counts.total() - counted.counts["list"] + self.made.pages


class CountedRequests(list[Request]):
    """Counts requests by operation and keeps none: they would be most of the memory that is measured."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def append(self, request: Request) -> None:
        """Count a request."""
        with self._lock:
            self.counts[request.operation] += 1


def _million(config: dict[str, Any]) -> dict[str, Any]:
    """What reads the log, after each of several numbers of batches; each look in a process of its own."""
    del config  # There is no server: the log is made.
    figures: dict[str, Any] = {}
    for look in _LOOKS:
        found = [in_own_process("look", {"look": look, "batches": batches}) for batches in _MANY_BATCHES]
        for what in ("cpu_s", "requests", "mb"):
            figures[f"{look}_{what}"] = "/".join(str(one[what]) for one in found)
        print(f"  {look}: " + ", ".join(str(one) for one in found), file=sys.stderr, flush=True)
    return {"batches": "/".join(map(str, _MANY_BATCHES)), **figures}


def _look(config: dict[str, Any]) -> dict[str, Any]:
    """One look at a history: CPU seconds, requests, and the megabytes that the process grows by."""
    made = _Made(config["batches"])
    # What is imported when it is needed is not to be measured.
    made.attempt("warm").advance()
    before = _rss()
    seconds, requests = made.timed(_LOOKS[config["look"]](made))
    return {"cpu_s": seconds, "requests": requests, "mb": round(_rss() - before)}


def _window(made: _Made, first: int, batches: int = 1, **settings: Any) -> Callable[[], object]:
    """A run over the window of some batches."""
    window = {0: (2 * first - 2, 2 * (first + batches - 1))}
    return made.attempt(f"window {first}", offsets="data_interval", window=window, **settings).advance


def _new_records(made: _Made) -> Callable[[], object]:
    made.kafka.records += 2
    return made.attempt("new").advance


def _snapshot(made: _Made, **options: Any) -> Snapshot:
    return Snapshot(made.pipeline().log, **options)


def _at(batch: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(batch, dt.UTC)


def _objects_by_time(made: _Made) -> Callable[[], object]:
    """The objects of ten batches in the middle, by their time."""
    middle = made.made.batches // 2
    return lambda: _snapshot(made).objects(since=_at(middle), until=_at(middle + 10))


def _objects_again(made: _Made) -> Callable[[], object]:
    """The objects of ten other batches, of a snapshot that has answered before."""
    snapshot, batch = _snapshot(made), made.made.batches // 3
    snapshot.objects(since=_at(1), until=_at(2))
    return lambda: snapshot.objects(since=_at(batch), until=_at(batch + 10))


_LOOKS: Final[dict[str, Callable[[_Made], Callable[[], object]]]] = {
    "nothing_new": lambda made: made.attempt("nothing").advance,
    "plan": _new_records,
    "status": lambda made: lambda: topic_status(made.pipeline().log, made.kafka),
    "oldest_window": lambda made: _window(made, 1),
    "middle_window": lambda made: _window(made, made.made.batches // 2 + 17),
    "latest_window": lambda made: _window(made, made.made.batches),
    "verify_1000": lambda made: _window(made, made.made.batches // 2, 1_000, action="verify"),
    "missing_indexes": lambda made: (
        lambda: write_missing(made.pipeline().log, made.pipeline().log.require_marker()[0], most=4)
    ),
    "new_batches": lambda made: lambda: _snapshot(made, since=made.made.batches - 50).objects(),
    "objects_by_time": _objects_by_time,
    "objects_by_offsets": lambda made: (
        lambda: _snapshot(made).objects(offsets={0: (made.made.batches, made.made.batches + 20)})
    ),
    "objects_again": _objects_again,
    "records": lambda made: lambda: _snapshot(made).records,
    "replay": lambda made: (
        lambda: plan_replay(
            made.pipeline().log,
            ReplayRequest(
                replay="again",
                target="again",
                offsets={0: (made.made.batches, made.made.batches + 20)},
                without=("key", "headers", "timestamp"),
            ),
            TopicInfo(name="again", topic_id="id", cluster_id="c", partitions=(0,)),
        )
    ),
    "gc": lambda made: lambda: find_garbage(made.pipeline().log, now=time.time()),
    "repair": lambda made: lambda: repair(made.committer(), start={0: 0}, dry_run=True),
}


def _topics(config: dict[str, Any]) -> dict[str, Any]:
    """Many topics by one task: planned, read by one Spark job, committed; and again, with nothing new."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder
    for name, value in spark_conf(spark_driver_memory="2g", spark_log_level="ERROR").items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    kafka = {"bootstrap.servers": config["bootstrap_servers"]}
    pipeline = Pipeline(kafka=kafka, endpoint=config["endpoint"], layout=Layout(format=JsonLines()))
    first, *topics = config["topics"]
    warm = pipeline.execute(spark, first, run="warm")
    assert all(outcome.status == "decided" for outcome in warm.values())
    jobs: list[tuple[float, float]] = []

    def submit(plans: Any) -> dict[str, Exception]:
        begun = time.perf_counter()
        result = pipeline.job(pipeline.spec(plans, "run", "unused"), spark)
        jobs.append((begun, time.perf_counter()))
        assert result.succeeded, Counter(outcome.message for outcome in result.topics)
        return {}

    started = time.perf_counter()
    landed = land_topics({topic: pipeline.topic_run(topic, "run") for topic in topics}, submit)
    ended = time.perf_counter()
    assert not landed.errors
    assert all(isinstance(result, TopicResult) for result in landed.results.values())
    again = land_topics({topic: pipeline.topic_run(topic, "later") for topic in topics}, submit)
    nothing = time.perf_counter() - ended
    assert {result.status for result in again.results.values()} == {"empty"}
    figures = {
        "topics": len(topics),
        "plan_s": round(jobs[0][0] - started, 2),
        "job_s": round(jobs[0][1] - jobs[0][0], 2),
        "end_s": round(ended - jobs[0][1], 2),
        "s_per_topic": round((ended - started) / len(topics), 3),
        "nothing_new_s": round(nothing, 2),
        "driver_mb": round(_rss()),
    }
    pipeline.close()
    spark.stop()
    return figures


def _page(config: dict[str, Any]) -> dict[str, Any]:
    """The list of all topics: the first look of a process, and one after a topic has landed something."""
    simulated, source = SimulatedPipeline(config), KafkaSource({"bootstrap.servers": config["bootstrap_servers"]})
    topics = config["topics"]

    landed = Activity(batches=BATCHES, objects=BATCHES, records=2 * BATCHES)

    def put(topic: str) -> None:
        address = TopicAddress(topics_dir="topics", pipeline=_PIPELINE, topic=topic)
        marker = marker_of(BATCHES, topic=topic, topic_id=source.describe(topic).topic_id or "")
        for key, document in (
            (address.owner_key, Owner(pipeline=_PIPELINE, topic=topic)),
            (addresses.summary_key(address), msgspec.structs.replace(summary_of(address, marker, []), activity=landed)),
        ):
            simulated.raw.store.put_new(key, encode(document, {}))

    in_threads(put, topics, threads=32)
    place = Place("s3://lake", "topics", lambda: Connected(simulated.store, source))
    now = dt.datetime.now(dt.UTC)

    def look() -> None:
        assert {row.state for row in topic_rows({0: place}, now)} == {"well"}

    figures: dict[str, Any] = {"topics": len(topics), "batches": BATCHES}
    figures["first_s"], figures["first_requests"] = simulated.timed(look)
    key = addresses.summary_key(TopicAddress(topics_dir="topics", pipeline=_PIPELINE, topic=topics[0]))
    stored = simulated.raw.store.get(key)
    assert stored is not None
    simulated.raw.store.put_if_match(key, stored.body + b" ", etag=stored.etag)
    figures["later_s"], figures["later_requests"] = simulated.timed(look)
    return figures


_CASES: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "objects": _objects,
    "history": _history,
    "million": _million,
    "page": _page,
    **dict.fromkeys(TOPICS, _topics),
}
_MANY_BATCHES: Final = (10_000, 100_000, 1_000_000)


def main() -> None:
    """Run one case with the configuration from standard input; print its figures as a line of JSON."""
    logging.basicConfig(level=logging.WARNING)
    case = _look if sys.argv[1] == "look" else _CASES[sys.argv[1]]
    print(json.dumps(case(json.load(sys.stdin))), flush=True)


if __name__ == "__main__":
    main()
