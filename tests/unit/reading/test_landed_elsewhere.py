"""Objects whose records another pipeline has landed may be deleted, and no others."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.batch.expiry import swap_expiry
from airflow_provider_kafka_s3.batch.given_away import give_to_table
from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import (
    Daily,
    Envelope,
    Hourly,
    JsonLines,
    Landed,
    Layout,
    Limits,
    RawBytes,
    Rotation,
    SiblingObjects,
)
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects, Expiry
from airflow_provider_kafka_s3.documents.offsets import coalesce
from airflow_provider_kafka_s3.exceptions import ConfigurationError, DataLossError, KafkaS3Error
from airflow_provider_kafka_s3.maintenance.expiry_rule import Expired, ExpiryRule
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.reading.landed_elsewhere import landed_elsewhere
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.testing.invariants import check_bucket
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.unit.batch.simulated_topic import Topic
from tests.unit.reading.test_landed_source import HOUR, HOURLY, Compacted, hourly, placed

TARGET = Landed(pipeline="orders-by-day", topics_dir="compacted")


def expired(
    topic: Topic, *, store: DurableStore | None = None, verify: bool = False, fewer: bool = False, **rule: Any
) -> Expired:
    """A call that deletes at once what the other pipeline has."""
    pipeline = topic.pipeline if store is None else topic.pipeline_with(store)
    made = ExpiryRule(**({"landed_in": TARGET, "least_age": 0.0, "grace": 0.0, "operator": "ann@desk"} | rule))
    pipeline._now = lambda: time.time() + 60
    guard = landed_elsewhere(pipeline, verify=verify, unsafe_fewer_parts=fewer)
    return pipeline.expire(made, landed_in=guard)


def left(topic: Topic) -> int:
    """Objects of the source in the bucket."""
    return len(topic.objects())


def test_what_is_compacted_is_deleted_and_the_rest_is_kept() -> None:
    """A batch that was landed since is not deleted; the rows of both pipelines together stay the same."""
    topic = hourly()
    compacted = Compacted(topic)
    compacted.land("1")
    before = placed(topic, "compacted", "orders-by-day")
    topic.append(b'{"n": 99}', timestamp=40 * HOUR)
    topic.land("more")
    done = expired(topic, verify=True)
    why = "pipeline 'orders-by-day' below 'compacted' has not landed all of their offsets"
    assert (done.batches, done.kept) == (3, {why: [4]})
    assert left(topic) == 1
    assert topic.check() == 1
    assert compacted.land("2") == 1
    assert placed(topic, "compacted", "orders-by-day").total() == before.total() + 1
    assert expired(topic).deleted == 1
    assert topic.check() == 0


def test_before_the_other_pipeline_has_begun_everything_is_kept() -> None:
    """And so it is for a pipeline of another topic's incarnation."""
    topic = hourly()
    done = expired(topic)
    assert done.kept == {"pipeline 'orders-by-day' below 'compacted' has not begun to land the topic": [1, 2, 3]}
    assert done.recorded == 0


def test_a_pipeline_does_not_have_its_own_records_as_well() -> None:
    """The name of the one whose objects would be deleted is refused."""
    topic = hourly()
    own = Landed(pipeline="orders-to-lake", topics_dir="lake")
    with pytest.raises(ConfigurationError, match="a topic has one pipeline below a prefix"):
        expired(topic, landed_in=own)


ENVELOPED = Layout(topics_dir="lake", format=JsonLines(), partitioner=Hourly(), content=Envelope())
WITH_KEYS = Layout(
    topics_dir="lake", format=JsonLines(), partitioner=Hourly(), content=SiblingObjects(keys=JsonLines())
)


@pytest.mark.parametrize("layout", [ENVELOPED, WITH_KEYS], ids=["envelope", "siblings"])
def test_parts_of_records_that_only_the_source_has_are_kept(layout: Layout) -> None:
    """Unless a person says that they are not needed."""
    topic = hourly(layout)
    Compacted(topic).land("1")
    done = expired(topic)
    (why,) = done.kept
    assert "does not keep all of each record as they do" in why
    assert "the key (content='values' has no objects of keys)" in why
    assert done.deleted == 0
    assert expired(topic, fewer=True).batches == 3
    assert left(topic) == 0


def lose(topic: Topic) -> None:
    """Delete an object of the other pipeline."""
    topic.bucket.delete(next(iter(topic.bucket.list("compacted/orders/"))).key)


def damage(topic: Topic) -> None:
    """Write other bytes of the same length in place of an object of the other pipeline."""
    key = next(iter(topic.bucket.list("compacted/orders/"))).key
    stored = topic.bucket.get(key)
    assert stored is not None
    topic.bucket.delete(key)
    topic.bucket.put_new(key, stored.body[:-2] + b" \n", metadata=stored.metadata)


def accept(topic: Topic) -> None:
    """Accept that an object of the other pipeline is lost."""
    lose(topic)
    Compacted(topic).pipeline.accept_deleted(1, reason="a test", operator="ann")


def expire_other(topic: Topic) -> None:
    """Delete the objects of the other pipeline on purpose."""
    pipeline = Compacted(topic).pipeline
    pipeline._now = lambda: time.time() + 60
    rule = ExpiryRule(older_than=0.0, least_age=0.0, grace=0.0, operator="ann@desk")
    assert pipeline.expire(rule, landed_in=landed_elsewhere(pipeline)).deleted == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(lose, "lacks objects that have these records", id="gone"),
        pytest.param(damage, "has other objects in place of those", id="damaged"),
        pytest.param(accept, "has lost or deleted objects", id="accepted as lost"),
        pytest.param(expire_other, "has lost or deleted objects", id="expired"),
    ],
)
@pytest.mark.parametrize("is_recorded", [False, True])
def test_what_the_other_pipeline_has_lost_is_kept(
    change: Callable[[Topic], None], why: str, *, is_recorded: bool
) -> None:
    """Also if it is lost between the record and the deletion."""
    topic = hourly()
    Compacted(topic).land("1")
    before = topic.objects()
    if is_recorded:
        expired(topic, grace=60.0, verify=True)
    change(topic)
    pipeline = topic.pipeline
    pipeline._now = lambda: time.time() + 200
    made = ExpiryRule(landed_in=TARGET, least_age=0.0, grace=0.0, operator="ann@desk")
    done = pipeline.expire(made, landed_in=landed_elsewhere(pipeline, verify=True))
    assert topic.objects() == before
    assert [batches for text, batches in done.kept.items() if "orders-by-day" in text]
    assert all(re.search(why, text) for text in done.kept)


def test_an_object_that_joins_old_and_new_batches_is_compared_as_a_whole() -> None:
    """Also where only the first of the joined batches would be deleted."""
    topic = hourly(batches=4)
    Compacted(topic).land("1", limits=Limits(records_per_slice=1000))
    pipeline = topic.pipeline
    start = time.time()
    pipeline._now = lambda: start + 60
    made = ExpiryRule(older_than=0.0, landed_in=TARGET, least_age=0.0, grace=0.0, operator="ann@desk")
    assert pipeline.expire(made, landed_in=landed_elsewhere(pipeline)).kept == {}
    assert left(topic) == 0


def test_a_source_begins_behind_what_has_expired() -> None:
    """As a log of Kafka behind its retention: a pipeline that has not landed it stops, or records the gap."""
    topic = hourly()
    pipeline = topic.pipeline
    pipeline._now = lambda: time.time() + 60
    rule = ExpiryRule(older_than=0.0, least_age=0.0, grace=0.0, operator="ann@desk")
    compacted = Compacted(topic)
    assert compacted.land("1", limits=Limits(records_per_run=8)) == 8
    pipeline.expire(rule, landed_in=landed_elsewhere(pipeline))
    topic.append(b'{"n": 99}', timestamp=40 * HOUR)
    topic.land("more")
    with pytest.raises(DataLossError, match=r"deleted objects of offsets 0: \[8, 24\) on purpose"):
        compacted.land("2")
    assert compacted.land("3", on_data_loss="skip") == 1
    assert sorted(row["n"] for rows in compacted.objects().values() for row in rows) == [*range(8), 99]
    check_bucket(topic.bucket, topics_dir="compacted", pipeline="orders-by-day", topic="orders")
    marker, _ = compacted.pipeline.log.require_marker()
    assert str(marker.lost) == "0: [8, 24)"


def expired_of(topic: Topic, *batches: int) -> None:
    """Record batches as deleted on purpose, and delete their objects."""
    log = topic.pipeline.log
    objects = ExpiredObjects(batches=coalesce((batch, batch + 1) for batch in batches))
    for batch in batches:
        for entry in log.require_decision(batch)[0].objects:
            topic.bucket.delete(entry.key)
    assert swap_expiry(log, Expiry(topic="orders", number=1, deleted=objects), None)


def test_what_has_expired_between_others_is_landed_as_a_gap_or_not_at_all() -> None:
    """Never as if it had no records; the gap can be accepted by the command of the error."""
    topic = hourly(batches=4)
    compacted = Compacted(topic)
    expired_of(topic, 2, 3)
    with pytest.raises(DataLossError, match=r"deleted objects of offsets 0: \[8, 24\) on purpose"):
        compacted.land("1")
    assert compacted.land("2", on_data_loss="skip") == 16
    marker, _ = compacted.pipeline.log.require_marker()
    assert str(marker.lost) == "0: [8, 24)"
    assert sorted(row["n"] for rows in compacted.objects().values() for row in rows) == [*range(8), *range(24, 32)]


def test_a_run_whose_source_expires_behind_its_plan_fails() -> None:
    """It lands nothing in place of the records."""
    topic = hourly()
    compacted = Compacted(topic)
    attempt = compacted.pipeline.run(
        RunRequest(run="1", offsets="incremental", layout=compacted.layout, starting="earliest")
    )
    attempt.advance()
    expired_of(topic, 2)
    with pytest.raises(DataLossError, match="was deleted on purpose"):
        compacted.land("1")
    assert compacted.objects() == {}


def test_a_loss_of_the_other_pipeline_is_not_hidden_by_what_is_deleted_here_already() -> None:
    """Both batches are in one slice there; the first one is deleted here, and the second one is lost there."""
    topic = Topic(HOURLY)
    for hour in (1, 30):
        topic.append(b'{"n": 1}', b'{"n": 2}', timestamp=hour * HOUR)
        topic.land(str(hour))
    compacted = Compacted(topic)
    compacted.land("1", limits=Limits(records_per_slice=1000))
    expired_of(topic, 1)
    _, second = [info.key for info in topic.bucket.list("compacted/orders/")]
    topic.bucket.delete(second)
    compacted.pipeline.accept_deleted(1, reason="a test", operator="ann")
    done = expired(topic)
    assert (done.recorded, len(topic.objects())) == (0, 1)
    (why,) = done.kept
    assert "has lost or deleted objects that have these records" in why


@pytest.mark.parametrize("is_accepted", [False, True])
def test_lost_keys_of_the_other_pipeline_keep_the_batches(*, is_accepted: bool) -> None:
    """Objects beside those of values count, too."""
    topic = hourly(WITH_KEYS)
    target = Layout(
        topics_dir="compacted", format=JsonLines(), partitioner=Daily(), content=SiblingObjects(keys=JsonLines())
    )
    compacted = Compacted(topic, target)
    compacted.land("1")
    (keys,) = [info.key for info in topic.bucket.list("compacted/orders/") if ".keys." in info.key]
    topic.bucket.delete(keys)
    if is_accepted:
        compacted.pipeline.accept_deleted(1, reason="a test", operator="ann")
    before = topic.objects()
    assert expired(topic).recorded == 0
    assert topic.objects() == before


def test_null_values_that_the_other_pipeline_left_out_keep_the_batches() -> None:
    """Their keys are in no other object."""
    layout = Layout(topics_dir="lake", format=JsonLines(on_null="write"), partitioner=Hourly(), content=Envelope())
    topic = Topic(layout)
    topic.append(b'{"n": 1}', None, timestamp=HOUR, key=b"k")
    topic.land()
    dropping = Layout(
        topics_dir="compacted", format=JsonLines(on_null="ignore"), partitioner=Daily(), content=Envelope()
    )
    Compacted(topic, dropping).land("1")
    done = expired(topic)
    assert done.kept == {
        "pipeline 'orders-by-day' below 'compacted' has another number of records at the same offsets": [1]
    }
    assert left(topic) == 1


def test_dead_letters_that_became_values_keep_the_batches() -> None:
    """They had keys, headers and times; a person may say that these are not needed."""
    topic = Topic(Layout(topics_dir="lake", format=JsonLines(), partitioner=Hourly(), errors="dead_letter"))
    topic.append(b'{"n": 1}', b"no JSON", timestamp=HOUR, key=b"k")
    topic.land()
    raw = Layout(topics_dir="compacted", format=RawBytes(separator="\n"), partitioner=Daily())
    Compacted(topic, raw).land("1")
    (why,) = expired(topic).kept
    assert "what dead letters keep beside the value" in why
    assert expired(topic, fewer=True).deleted == 2


def test_objects_that_the_other_pipeline_gave_to_a_table_keep_the_batches() -> None:
    """Its engines may have deleted them."""
    topic = hourly()
    compacted = Compacted(topic)
    compacted.land("1")
    give_to_table(compacted.pipeline.log, "lake.orders", 1)
    before = topic.objects()
    (why,) = expired(topic).kept
    assert "has given its objects to table lake.orders" in why
    assert topic.objects() == before


def test_an_earlier_incarnation_that_was_landed_elsewhere_may_be_deleted() -> None:
    """After a reset of both pipelines; also what was recorded before it."""
    topic = hourly()
    compacted = Compacted(topic)
    compacted.land("1")
    expired(topic, grace=30.0)
    topic.kafka.create_topic("orders")
    topic.pipeline.reset(operator="ann")
    topic.append(b'{"n": 0}', timestamp=HOUR)
    topic.land("new")
    compacted.pipeline.reset(operator="ann")
    compacted.land("2")
    pipeline = topic.pipeline
    pipeline._now = lambda: time.time() + 200
    rule = ExpiryRule(landed_in=TARGET, least_age=0.0, grace=0.0, operator="ann@desk")
    assert pipeline.expire(rule, landed_in=landed_elsewhere(pipeline)).kept == {}
    assert left(topic) == 0


class FromKafka(Compacted):
    """A pipeline that lands the same topic from Kafka."""

    @property
    def pipeline(self) -> TopicPipeline:
        """A new process."""
        store = DurableStore(self.topic.bucket, Retrier())
        place = {"topics_dir": "compacted", "pipeline": "orders-by-day", "topic": "orders"}
        return TopicPipeline(store, self.topic.kafka, **place)


def test_a_pipeline_that_lands_the_same_from_kafka_counts_as_well() -> None:
    """Its batches end elsewhere; what only one of the two has yet is kept."""
    topic = hourly(batches=3, per_batch=10)
    other = FromKafka(topic)
    other.land("1", limits=Limits(records_per_batch=7))
    assert expired(topic).kept == {}
    topic.append(*(b'{"n": 1}' for _ in range(5)), timestamp=40 * HOUR)
    topic.land("more")
    topic.append(*(b'{"n": 2}' for _ in range(5)), timestamp=41 * HOUR)
    other.land("2")
    why = "pipeline 'orders-by-day' below 'compacted' has them together with offsets that are not landed here yet"
    assert expired(topic).kept == {why: [4]}
    topic.land("even more")
    assert expired(topic).kept == {}
    assert left(topic) == 0


def test_each_document_is_read_once_however_many_batches_a_slice_has_joined() -> None:
    """Requests grow with the batches, and not with their square."""
    sent = []
    for batches in (80, 160):
        topic = Topic(HOURLY)
        for n in range(batches):
            topic.append(b'{"n": 1}', timestamp=n * HOUR)
            topic.land(str(n))
        Compacted(topic).land("1", limits=Limits(records_per_slice=100_000))
        store = FaultyStore(topic.bucket)
        assert expired(topic, store=DurableStore(store, Retrier())).deleted == batches
        sent.append(len(store.requests))
    assert sent[1] < 2.2 * sent[0], sent


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST_RESPONSE, Fault.LATE])
def test_kills_at_any_request_delete_nothing_that_nothing_else_has(fault: Fault) -> None:
    """In the middle, and at the end: every record is in one of the two pipelines."""
    topic = hourly(batches=2)
    Compacted(topic).land("1")
    topic.append(b'{"n": 99}', timestamp=40 * HOUR)
    topic.land("more")
    origin = topic.bucket
    number, sent = 0, 1
    while number < sent:
        number += 1
        topic.bucket = origin.copy()
        late: list[Any] = []
        store = FaultyStore(topic.bucket, choose=lambda r, n=number: fault if r.number == n else None, late=late)  # type: ignore[misc]
        try:
            expired(topic, store=DurableStore(store, Retrier(sleep=lambda _: None)))
        except (SimulatedCrash, KafkaS3Error):
            topic.check()
        sent = len(store.requests)
        expired(topic)
        store.apply_late()
        assert left(topic) == 1
        assert topic.check() == 1
        assert placed(topic, "compacted", "orders-by-day").total() == 16


@settings(max_examples=15, deadline=None)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), min_size=1, max_size=10), min_size=1, max_size=5
    ),
    merged=st.booleans(),
    per_slice=st.integers(1, 20),
    since=st.integers(0, 4),
)
def test_nothing_is_deleted_that_only_the_source_has(
    batches: list[list[tuple[int, int]]], merged: bool, per_slice: int, since: int
) -> None:
    """Whatever was landed before and behind the other pipeline's run, and however it has joined it."""
    topic = Topic(HOURLY, 3)
    compacted = Compacted(topic)
    compacted.layout = Layout(
        topics_dir="compacted", format=JsonLines(), partitioner=Daily(), rotation=Rotation(merge_partitions=merged)
    )
    number = 0
    for i, records in enumerate(batches):
        for partition, hours in records:
            topic.append(f'"{number}"'.encode(), partition=partition, timestamp=hours * HOUR)
            number += 1
        topic.land(str(i))
        if i == since:
            compacted.land("1", limits=Limits(records_per_slice=per_slice))
    done = expired(topic)
    kept = sorted(batch for numbers in done.kept.values() for batch in numbers)
    has_run = since < len(batches)
    assert kept == [*range(since + 2 if has_run else 1, len(batches) + 1)]
    assert topic.check() == sum(len(records) for records in batches[since + 1 if has_run else 0 :])
    compacted.land("2")
    assert expired(topic).kept == {}
    assert left(topic) == 0
    rows = placed(topic, "compacted", "orders-by-day")
    assert rows.total() == number
    assert sorted(int(value) for _, value in rows) == [*range(number)]
    check_bucket(topic.bucket, topics_dir="compacted", pipeline="orders-by-day", topic="orders")
