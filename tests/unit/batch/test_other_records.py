"""Objects are written again only from the records that were landed, whatever Kafka has at their offsets by now."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider_kafka_s3.batch.records_digest import RecordsDigest
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.exceptions import BatchLossError, DataLossError
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.unit.batch.simulated_topic import Topic
from tests.unit.batch.test_records_kafka_still_has import HOUR, LAYOUTS, filled, value

RECORDS = [(0, n // 3 % 2, n % 4) for n in range(12)]
OTHERS = "Kafka has other records at these offsets now"


def replace_log(topic: Topic, name: str, *, values: bool = True, keys: bool = True) -> None:
    """Append other records of the same sizes and times at the same offsets, in place of those of :data:`RECORDS`."""
    topic.kafka.elect("orders", 0, end=0)
    for n, (_, hour, kind) in enumerate(RECORDS):
        # Numbers of as many digits.
        other = n + 9 - 2 * n if n < 10 else n + 40
        topic.append(
            value(topic, name, kind, other if values else n),
            timestamp=hour * HOUR,
            key=b'"%d"' % (other if keys else n),
        )


def restore(topic: Topic) -> None:
    """A run with the action ``restore``."""
    topic.pipeline.run(topic.request("b", action="restore")).advance()


def rerun(topic: Topic) -> None:
    """The run again, which restores."""
    topic.pipeline.land(topic.request("a", on_missing="restore"))


@pytest.mark.parametrize("again", [restore, rerun])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_deleted_object_does_not_come_back_with_other_records(name: str, again: Callable[[Topic], None]) -> None:
    """Each is named, with the reason, and nothing is written."""
    topic = filled(name, 1, RECORDS)
    topic.land()
    gone = topic.objects()
    replace_log(topic, name)
    for key in gone:
        topic.bucket.delete(key)
    with pytest.raises(BatchLossError, match=OTHERS):
        again(topic)
    assert topic.objects() == {}


@pytest.mark.parametrize("name", ["siblings", "envelope", "dead letters"])
def test_other_keys_are_other_records_where_keys_are_landed(name: str) -> None:
    """The values are the same."""
    topic = filled(name, 1, RECORDS)
    topic.land()
    gone = topic.objects()
    replace_log(topic, name, values=False)
    for key in gone:
        topic.bucket.delete(key)
    with pytest.raises(BatchLossError, match=OTHERS):
        restore(topic)
    assert topic.objects() == {}


@pytest.mark.parametrize("name", ["by time", "by field", "siblings", "blocks", "merged"])
def test_the_same_records_in_another_log_come_back(name: str) -> None:
    """Other keys do not count where keys are not landed; nor do the epochs of the log."""
    topic = filled(name, 1, RECORDS)
    topic.land()
    before = topic.objects()
    replace_log(topic, name, values=False, keys=name == "by time")
    topic.restore(*before)
    assert topic.objects() == before


def decided(name: str) -> Topic:
    """A topic of which a batch is decided, and its uploads have expired."""
    topic = filled(name, 1, RECORDS)
    store = FaultyStore(topic.bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.manifest.json")
    with pytest.raises(SimulatedCrash):
        topic.pipeline_with(DurableStore(store, Retrier(sleep=lambda _: None))).land(topic.request("a"))
    topic.bucket.expire_uploads()
    return topic


def process(topic: Topic) -> TopicPipeline:
    """A process that does not wait for uploads that other processes may complete."""
    return topic.pipeline_with(DurableStore(topic.bucket, Retrier(sleep=lambda _: None)))


def recover(topic: Topic) -> None:
    """What the log refuses is completed without it."""
    with pytest.raises(DataLossError, match="decided-only"):
        process(topic).recover(operator="me")
    process(topic).roll_forward()


def carry_out(topic: Topic) -> None:
    """A rerun, whose target is claimed."""
    process(topic).land(topic.request())


@pytest.mark.parametrize("complete", [recover, carry_out])
@pytest.mark.parametrize("name", ["by time", "by field", "siblings", "merged", "forward"])
def test_a_decided_batch_is_not_completed_with_other_records(name: str, complete: Callable[[Topic], None]) -> None:
    """Its uploads are gone, and Kafka's records are not those that were decided: they are lost, as a person may say."""
    topic = decided(name)
    replace_log(topic, name)
    with pytest.raises(BatchLossError, match=f"{OTHERS}.*accept-loss"):
        complete(topic)
    assert topic.objects() == {}
    assert process(topic).accept_loss(1, reason="the log was lost", operator="me")
    assert topic.objects() == {}


# -- manifests of earlier versions ------------------------------------------------------------------------------------


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """Objects that an earlier version has landed, and the same version of the libraries."""
    topic = filled("by time", 1, RECORDS)
    with monkeypatch.context() as then:
        then.setattr(RecordsDigest, "hexdigest", lambda _: "")
        topic.land()
    manifest = topic.pipeline.log.read_manifest(1)
    assert manifest is not None
    assert {entry.digest for entry in manifest.objects} == {""}
    return topic


def vouching(topic: Topic) -> TopicPipeline:
    """A process of a person who knows that Kafka has the landed records."""
    return TopicPipeline(
        DurableStore(topic.bucket, Retrier(sleep=lambda _: None)),
        topic.kafka,
        topics_dir="lake",
        pipeline="orders-to-lake",
        topic="orders",
        registry=topic.registry,
        unsafe_unproven_records=True,
    )


def test_equal_bytes_need_no_digest(earlier: Topic) -> None:
    """An object of an earlier version comes back from the same records."""
    before = earlier.objects()
    earlier.restore(*before)
    assert earlier.objects() == before


def test_other_bytes_without_a_digest_need_the_word_of_a_person(earlier: Topic) -> None:
    """Neither bytes nor manifest show which records Kafka has; the error names each way out."""
    before = earlier.objects()
    replace_log(earlier, "by time")
    with pytest.raises(
        BatchLossError,
        match=r"does not show whether.*install the versions.*`kafka-s3 verify .*--restore --batch 1 "
        r"--unsafe-unproven-records`.*accept-loss",
    ):
        earlier.restore(*before)
    assert earlier.objects() == {}
    vouching(earlier).run(earlier.request("c", action="restore")).advance()
    after = earlier.objects()
    assert after.keys() == before.keys()
    assert all(after[key] != before[key] for key in before)


def test_a_decided_batch_without_digests_needs_the_word_of_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is that of an open batch."""
    with monkeypatch.context() as then:
        then.setattr(RecordsDigest, "hexdigest", lambda _: "")
        topic = decided("by time")
    replace_log(topic, "by time")
    with pytest.raises(BatchLossError, match=r"`kafka-s3 recover .*--decided-only --unsafe-unproven-records`"):
        process(topic).roll_forward()
    assert topic.objects() == {}
    assert vouching(topic).roll_forward().batches == (1,)
    assert topic.objects()


def test_a_word_does_not_outweigh_a_digest() -> None:
    """Where the manifest shows that the records are others, nobody can know better."""
    topic = Topic(Layout(topics_dir="lake", format=JsonLines()))
    topic.append(b"1")
    topic.land()
    (key,) = topic.objects()
    topic.kafka.elect("orders", 0, end=0)
    topic.append(b"2")
    topic.bucket.delete(key)
    with pytest.raises(BatchLossError, match=OTHERS):
        vouching(topic).run(topic.request("c", action="restore")).advance()
    assert topic.objects() == {}
