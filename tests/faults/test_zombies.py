"""Stale drivers: a request is held while other processes continue, then it arrives and its sender continues.

Whatever was decided meanwhile stays decided: no record is lost, doubled or brought back, and no upload stays behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    ConfigurationError,
    KafkaS3Error,
    RunSupersededError,
    TopicRecreatedError,
    UnknownOutcomeError,
)
from airflow_provider_kafka_s3.maintenance.abandon import abandon
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_loss
from airflow_provider_kafka_s3.maintenance.reset import reset
from dev.faults import Answer, Hold
from tests.faults.conftest import Site
from tests.faults.process import TOPIC, Process, Topic

WHO: Final = {"reason": "a test", "operator": "somebody"}


class Zombie:
    """A driver that lands a run in a thread, one of whose requests is held."""

    def __init__(self, site: Site, topic: Topic, held: Hold) -> None:
        self.result: TopicResult | None = None
        self.error: KafkaS3Error | None = None
        self._held = held
        self._process = site.process(topic)
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()
        held.wait_until_held()

    def _live(self) -> None:
        try:
            self.result = self._process.run("stale")
        except KafkaS3Error as e:
            self.error = e

    def wakes(self) -> None:
        """Its request arrives, and it continues to its end."""
        self._held.release()
        self._thread.join(60)
        assert not self._thread.is_alive()


@dataclass(frozen=True)
class Point:
    """A request at which a driver may be stopped; ``decided``: its batch is decided by then."""

    operation: str
    key: str
    condition: str | None = None
    decided: bool = False
    applied: bool = False


POINTS: Final = {
    "run record": Point("PutObject", "*/runs/stale.json"),
    "plan": Point("PutObject", "*.plan.json"),
    "UploadPart": Point("UploadPart", "*/events/*"),
    "manifest": Point("PutObject", "*.manifest.json"),
    "manifest that was stored": Point("PutObject", "*.manifest.json", decided=True, applied=True),
    "Complete": Point("CompleteMultipartUpload", "*/events/*", decided=True),
    "Complete that was done": Point("CompleteMultipartUpload", "*/events/*", decided=True, applied=True),
    "marker": Point("PutObject", "*/marker.json", "if-match", decided=True),
    "marker that was stored": Point("PutObject", "*/marker.json", "if-match", decided=True, applied=True),
}


def retry_commits(topic: Topic, other: Process) -> None:
    """The scheduler started the same run again."""
    assert other.run("stale").status == "ok"


def another_run_commits(topic: Topic, other: Process) -> None:
    """The next run of the pipeline lands these records and more."""
    topic.records_arrive()
    assert other.run("next").status == "ok"


def topic_is_reset(topic: Topic, other: Process) -> None:
    """The topic is deleted, created again with other records, and the pipeline reset to it."""
    topic.kafka.create_topic(TOPIC)
    topic.records_arrive()
    reset(other.committer, operator="somebody")
    assert other.run("after the reset").status == "ok"


def batch_is_abandoned(topic: Topic, other: Process) -> None:
    """An operator abandons the batch, unless it is decided; the next run lands its records."""
    if other.log.read_manifest(2) is None:
        abandon(other.committer, 2, release="debt", **WHO)
    else:
        with pytest.raises(ConfigurationError, match="can only be rolled forward"):
            abandon(other.committer, 2, release="debt", **WHO)
    assert other.run("after it").status == "ok"


def batch_is_abandoned_as_lost(topic: Topic, other: Process) -> None:
    """An operator abandons the batch as lost; the next run continues after it."""
    abandon(other.committer, 2, release="lost", **WHO)
    topic.records_arrive()
    assert other.run("after it").status == "ok"


Event = Callable[[Topic, Process], None]


def cases() -> Iterator[object]:
    """Every event at every point where it can occur."""
    for label, point in POINTS.items():
        events: list[Event] = [retry_commits, another_run_commits, topic_is_reset]
        if label in ("UploadPart", "manifest", "manifest that was stored", "Complete"):
            events.append(batch_is_abandoned)
        if label in ("UploadPart", "manifest"):
            events.append(batch_is_abandoned_as_lost)
        for event in events:
            yield pytest.param("versitygw-http", point, event, id=f"{label}, {event.__name__}")
    yield pytest.param("moto-http", POINTS["Complete"], retry_commits, id="Complete, retry_commits, moto")
    yield pytest.param("moto-http", POINTS["UploadPart"], batch_is_abandoned, id="UploadPart, batch_is_abandoned, moto")


@pytest.mark.parametrize(("site", "point", "event"), [*cases()], indirect=["site"])
def test_a_driver_that_wakes_late_changes_nothing(site: Site, point: Point, event: Event) -> None:
    """It reads the decision made meanwhile, and applies it or fails with the reason."""
    topic, other = a_topic_with_a_batch(site)
    topic.records_arrive()
    held = site.proxy.hold(point.operation, key=point.key, condition=point.condition, applied=point.applied)
    zombie = Zombie(site, topic, held)

    event(topic, other)
    # An upload of the stale driver may still be pending, but nothing else is open.
    other.check()
    before = {info.key: info.etag for info in other.store.list(topic.data)}
    zombie.wakes()

    if event is topic_is_reset:
        assert zombie.result is not None or isinstance(zombie.error, TopicRecreatedError | RunSupersededError)
    else:
        assert zombie.error is None
    assert {info.key: info.etag for info in other.store.list(topic.data)} == before
    other = site.observer(topic)
    other.check()
    assert other.pending() == set()
    topic.records_arrive()
    assert other.run("the last").status == "ok"
    other.check()


def test_an_object_accepted_as_lost_does_not_come_back_when_its_driver_wakes(site: Site) -> None:
    """Its upload expired and Kafka deleted the records: the operator accepted the loss, and it does not come back."""
    topic, other = a_topic_with_a_batch(site)
    topic.records_arrive()
    zombie = Zombie(site, topic, site.proxy.hold("CompleteMultipartUpload"))
    decision = other.log.read_manifest(2)
    assert decision is not None
    uploads_expire(other)
    topic.kafka.delete_records(TOPIC, 0, topic.kafka.bounds(TOPIC, 0)[1])
    with pytest.raises(BatchLossError):
        other.run("next")

    lost = accept_loss(other.committer, 2, **WHO)
    zombie.wakes()

    assert zombie.error is None
    there = {info.key for info in other.store.list(topic.data)}
    assert lost
    assert there.isdisjoint(lost)
    assert {entry.key for entry in decision.objects} <= there | set(lost)
    other.check()
    assert other.pending() == set()


def test_a_driver_that_writes_a_lost_object_again_does_not_bring_a_deleted_one_back(site: Site) -> None:
    """Held at its last read of the marker: when it continues, the batch is resolved and a user has deleted objects."""
    topic, other = a_topic_with_a_batch(site)
    topic.records_arrive()
    rule = site.proxy.add(Answer(500, "InternalError"), operation="CompleteMultipartUpload", times=None)
    with pytest.raises(UnknownOutcomeError):
        site.process(topic).run("stale")
    assert rule.struck
    site.proxy.clear()
    uploads_expire(other)
    # Plan and manifest are cached: its third read of the marker is the last one before the first PUT.
    zombie = Zombie(site, topic, site.proxy.hold("GetObject", key="*/marker.json", nth=3))

    assert other.run("stale").status == "ok"
    decision = other.log.read_manifest(2)
    assert decision is not None
    for entry in decision.objects:
        site.direct.delete_object(Bucket="lake", Key=entry.key)
    zombie.wakes()

    other.check(deleted=[entry.key for entry in decision.objects])
    assert other.pending() == set()


def a_topic_with_a_batch(site: Site) -> tuple[Topic, Process]:
    """A landed batch, and a process."""
    topic = Topic()
    topic.records_arrive()
    other = site.observer(topic)
    assert other.run("first").status == "ok"
    return topic, other


def uploads_expire(process: Process) -> None:
    """Abort the uploads, as a lifecycle rule does."""
    for upload in process.store.pending_uploads(process.topic.data):
        process.store.abort_upload(upload.key, upload.upload_id)
