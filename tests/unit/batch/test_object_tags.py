"""Tags of objects: the user's from the first moment, those of the offsets before the batch is resolved."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.config import (
    JsonLines,
    Layout,
    OnTagError,
    RawBytes,
    Rotation,
    SiblingObjects,
    Upload,
)
from airflow_provider_kafka_s3.exceptions import AccessDeniedError, ConfigurationError, TransientError, message_of
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.unit.batch.simulated_topic import Topic

UPLOAD = Upload(tags={"team": "lake"}, offset_tags=True)
LAYOUT = Layout(topics_dir="lake", format=RawBytes(), rotation=Rotation(flush_size=2), tags=UPLOAD.object_tags)


def tags_of(topic: Topic) -> dict[str, dict[str, str]]:
    """The tags of all objects, by the end of their names."""
    return {key.rpartition("+")[2]: dict(topic.bucket.tags(key)) for key in topic.objects()}


def expected(first: int, last: int, records: int) -> dict[str, str]:
    """All tags of an object."""
    return {"team": "lake", "startOffset": str(first), "endOffset": str(last), "recordCount": str(records)}


ALL = {
    "0000000000.bin": expected(0, 1, 2),
    "0000000002.bin": expected(2, 3, 2),
    "0000000004.bin": expected(4, 4, 1),
}


def five(layout: Layout = LAYOUT) -> Topic:
    """A topic of five records."""
    topic = Topic(layout)
    topic.append(*(b"%d" % n for n in range(5)))
    return topic


def process(topic: Topic, store: ObjectStore, on_tag_error: OnTagError = "fail") -> TopicPipeline:
    """A process with a store, that does not wait between its tries."""
    return TopicPipeline(
        DurableStore(store, Retrier(RetryPolicy(max_retries=1), sleep=lambda _: None)),
        topic.kafka,
        topics_dir="lake",
        pipeline="orders-to-lake",
        topic="orders",
        upload=Upload(on_tag_error=on_tag_error),
    )


def test_objects_have_the_tags_of_their_records() -> None:
    """First and last offset and number of records, as Kafka Connect writes them, beside the user's own."""
    topic = five()
    topic.land()
    assert tags_of(topic) == ALL


def test_offsets_between_records_are_not_in_the_count() -> None:
    """Compaction and transactions leave gaps: the count is that of the records."""
    topic = Topic(LAYOUT)
    topic.append(b"0")
    for _ in range(3):
        topic.kafka.append_marker("orders", 0)
    topic.append(b"4")
    topic.land()
    assert tags_of(topic) == {"0000000000.bin": expected(0, 4, 2)}


def test_without_offset_tags_no_request_is_sent_for_tags() -> None:
    """The user's own are sent with the beginning of the upload."""
    topic = five(Layout(topics_dir="lake", format=RawBytes(), tags=Upload(tags={"team": "lake"}).object_tags))
    store = FaultyStore(topic.bucket)
    process(topic, store).land(topic.request("a"))
    assert tags_of(topic) == {"0000000000.bin": {"team": "lake"}}
    assert "put_tags" not in {request.operation for request in store.requests}


def test_objects_beside_values_and_dead_letters_have_tags() -> None:
    """With the numbers of their own records."""
    layout = Layout(
        topics_dir="lake",
        format=JsonLines(),
        content=SiblingObjects(),
        errors="dead_letter",
        tags=UPLOAD.object_tags,
    )
    topic = Topic(layout)
    topic.append(b"{}", b"no JSON", b"{}", key=b"k")
    topic.land()
    found = {key.removeprefix("lake/orders/"): dict(topic.bucket.tags(key)) for key in topic.objects()}
    values, keys, dead = (next(n for n in found if part in n) for part in ("0.json", ".keys.", "_dead_letters"))
    assert found[values] == found[keys] == expected(0, 2, 2)
    assert found[dead] == expected(1, 1, 1)


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_run_that_follows_a_crash_tags_what_the_first_did_not(fault: Fault, nth: int) -> None:
    """A batch is resolved only when all its objects have their tags."""
    topic = five()
    store = FaultyStore(topic.bucket)
    store.inject(fault, operation="put_tags", nth=nth)
    with pytest.raises(SimulatedCrash):
        process(topic, store).land(topic.request("a"))
    topic.land("b")
    assert tags_of(topic) == ALL
    assert topic.check() == 5


@pytest.mark.parametrize("fault", [Fault.LOST_RESPONSE, Fault.SENT_TWICE, Fault.SERVER_ERROR, Fault.THROTTLED])
def test_tags_survive_faults_of_single_requests(fault: Fault) -> None:
    """The request is repeated."""
    topic = five()
    store = FaultyStore(topic.bucket)
    store.inject(fault, operation="put_tags", nth=2)
    process(topic, store).land(topic.request("a"))
    assert tags_of(topic) == ALL


def test_a_store_that_does_not_answer_leaves_the_batch_open() -> None:
    """The objects are visible, the next run tags them."""
    topic = five()
    store = FaultyStore(topic.bucket)
    store.inject(Fault.SERVER_ERROR, operation="put_tags", times=1_000)
    with pytest.raises(TransientError):
        process(topic, store).land(topic.request("a"))
    assert len(topic.objects()) == 3
    topic.land("b")
    assert tags_of(topic) == ALL


class Refusing(MemoryStore):
    """A store that accepts no tags behind the beginning of an upload."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error: Exception | None = error

    def put_tags(self, key: str, tags: object) -> bool:
        """Refuse."""
        if self.error is not None:
            raise self.error
        return super().put_tags(key, tags)  # type: ignore[arg-type]


REFUSALS = pytest.mark.parametrize("error", [AccessDeniedError("403"), ConfigurationError("501 not implemented")])


@REFUSALS
def test_refused_tags_are_an_error_that_says_what_to_do(error: Exception) -> None:
    """No object is lost; after the right is granted, the next run tags all objects."""
    topic = five()
    topic.bucket = store = Refusing(error)
    with pytest.raises(type(error)) as caught:
        process(topic, store).land(topic.request("a"))
    assert "allow s3:PutObjectTagging, or set upload={'on_tag_error': 'ignore'}" in message_of(caught.value)  # type: ignore[arg-type]
    assert len(topic.objects()) == 3
    store.error = None
    topic.land("b")
    assert tags_of(topic) == ALL
    assert topic.check() == 5


@REFUSALS
def test_refused_tags_can_be_ignored(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka Connect: the objects keep the user's tags, and a warning names them. It is not pinned by the plan."""
    topic = five()
    topic.bucket = store = Refusing(error)
    with pytest.raises(type(error)):
        process(topic, store).land(topic.request("a"))
    process(topic, store, "ignore").land(topic.request("b"))
    assert set(map(str, tags_of(topic).values())) == {"{'team': 'lake'}"}
    assert "stays without the tags of its offsets" in caplog.text
    assert topic.check() == 5


def test_an_object_that_was_deleted_meanwhile_needs_no_tags() -> None:
    """A user may delete an object as soon as it is visible."""
    topic = five()

    class Deleting(FaultyStore):
        def put_tags(self, key: str, tags: object) -> bool:
            topic.bucket.delete(key)
            return super().put_tags(key, tags)  # type: ignore[arg-type]

    process(topic, Deleting(topic.bucket)).land(topic.request("a"))
    assert topic.objects() == {}


def test_a_resolved_batch_is_not_tagged_again() -> None:
    """Tags that a user has changed since stay."""
    topic = five()
    topic.land()
    for key in topic.objects():
        topic.bucket.put_tags(key, {"mine": "1"})
    topic.land("b")
    topic.pipeline.roll_forward()
    assert set(map(str, tags_of(topic).values())) == {"{'mine': '1'}"}


def test_an_object_that_is_written_again_has_all_tags() -> None:
    """From Kafka: after its upload expired, and by a restore. The plan has the tags, whatever the process has."""
    topic = five()
    store = FaultyStore(topic.bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.manifest.json")
    with pytest.raises(SimulatedCrash):
        process(topic, store).land(topic.request("a"))
    topic.bucket.expire_uploads()
    topic.pipeline.roll_forward()
    assert tags_of(topic) == ALL
    for key in topic.objects():
        topic.bucket.delete(key)
    restored = topic.pipeline.run(topic.request("a", action="restore")).advance()
    assert restored.wrote  # type: ignore[union-attr]
    assert tags_of(topic) == ALL


def test_a_large_object_that_is_written_again_has_all_tags() -> None:
    """It is uploaded in parts."""
    topic = Topic(Layout(topics_dir="lake", format=RawBytes(), part_size=5 * 1024 * 1024, tags=UPLOAD.object_tags))
    topic.append(b"x" * 3_000_000, b"x" * 3_000_000)
    topic.land()
    (key,) = topic.objects()
    topic.bucket.delete(key)
    topic.pipeline.run(topic.request("a", action="restore")).advance()
    assert dict(topic.bucket.tags(key)) == expected(0, 1, 2)


def test_the_committer_fails_by_default() -> None:
    """Nothing is ignored silently."""
    assert Committer.__init__.__kwdefaults__["on_tag_error"] == Upload().on_tag_error == "fail"
