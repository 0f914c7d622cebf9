"""The requests that a run without faults never sends: aborts and checks of uploads, rewrites of lost objects, amends.

As in :mod:`tests.faults.test_every_fault` one of them meets a fault and the work succeeds; then all of them do, the
work fails with the error that fits or succeeds, and succeeds when it is repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest

from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import BatchLossError, KafkaS3Error, TransientError, UnknownOutcomeError
from airflow_provider_kafka_s3.maintenance import gc
from airflow_provider_kafka_s3.maintenance.accept_loss import accept_loss
from dev.faults import Answer, Fault, Flip, Lose, Rule, Truncate, Twice
from tests.faults.conftest import Site
from tests.faults.process import LARGE, SMALL, TOPIC, Process, Size, Topic
from tests.faults.test_every_fault import READS, REFUSALS, Request, expected, orphans

WHO: Final = {"reason": "a test", "operator": "somebody"}
DAYS: Final = 86_400.0

WRITES: Final[dict[str, Fault]] = {
    **{name: REFUSALS[name] for name in ("503", "500", "409", "expired", "reset", "reset in body")},
    "lost by RST": Lose("RST"),
    "lost by FIN": Lose("FIN"),
    "500 though applied": Answer(500, "InternalError", applied=True),
    "cut off": Truncate(),
    "twice": Twice(),
}
LOOKS: Final = {name: fault for name, fault in READS.items() if name not in ("hang", "late", "429")}


@dataclass
class Trouble:
    """A topic in a state from which the rare request is sent.

    Attributes:
        site: where.
        topic: that is landed.
        work: the function that sends the request; safe to repeat.
    """

    site: Site
    topic: Topic
    work: Callable[[Process], object]

    def meets(self, request: Request, fault: Fault, *, times: int | None, nth: int = 1) -> type[KafkaS3Error] | None:
        """Do the work while requests have a fault; returns its error."""
        rule = self.add(request, fault, times, nth)
        try:
            self.work(self.site.process(self.topic))
        except KafkaS3Error as e:
            return type(e)
        finally:
            assert rule.struck
        return None

    def add(self, request: Request, fault: Fault, times: int | None, nth: int = 1) -> Rule:
        """Add a fault to requests."""
        pattern = request.pattern(self.topic)
        return self.site.proxy.add(fault, operation=request.operation, key=pattern, nth=nth, times=times)


def a_decided_batch(site: Site, topic: Topic) -> Process:
    """A batch is decided and none of its objects is completed; returns a process without faults."""
    topic.records_arrive()
    site.proxy.add(Answer(500, "InternalError"), operation="CompleteMultipartUpload", times=None)
    with pytest.raises(UnknownOutcomeError, match="is decided and loses nothing"):
        site.process(topic).run("run")
    site.proxy.clear()
    return site.observer(topic)


def uploads_expire(process: Process) -> None:
    """Abort the uploads, as a lifecycle rule does."""
    for upload in process.store.pending_uploads(process.topic.data):
        process.store.abort_upload(upload.key, upload.upload_id)


@pytest.mark.parametrize("times", [1, None], ids=["once", "always"])
@pytest.mark.parametrize("name", [name for name in WRITES if name != "reset in body"])
def test_the_loser_of_a_decision_aborts_its_uploads_if_it_can(
    site: Site, name: str, times: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """An upload that cannot be aborted is left to the lifecycle rule and never fails a run."""
    topic = Topic()
    topic.records_arrive()
    winner, loser = site.observer(topic), site.process(topic)
    plan = loser.attempt("run").advance()
    assert isinstance(plan, Plan)
    won = winner.execute(plan, "run")
    fault = WRITES[name]
    rule = site.proxy.add(fault, operation="AbortMultipartUpload", times=times)

    assert loser.execute(plan, "run") == won

    assert rule.struck
    # An aborted upload is gone, with or without a response.
    refused = times is None and name in ("503", "500", "409", "expired", "reset")
    assert len(winner.pending()) == (2 if refused else 0)
    assert ("stays pending" in caplog.text) == (times is None and name not in ("cut off", "twice"))
    winner.check()


def test_an_upload_that_is_aborted_while_it_is_written_is_a_transient_error(site: Site) -> None:
    """A premature abort costs a retry and no record; the raw response is not shown."""
    topic = Topic()
    topic.records_arrive()
    other = site.observer(topic)
    held = site.proxy.hold("UploadPart", key=f"{topic.data}*")
    errors: list[BaseException] = []

    def work() -> None:
        try:
            site.process(topic).run("run")
        except KafkaS3Error as e:
            errors.append(e)

    thread = threading.Thread(target=work)
    thread.start()
    held.wait_until_held()
    uploads_expire(other)
    held.release()
    thread.join(60)

    (error,) = errors
    assert type(error) is TransientError
    assert "was aborted while its parts were sent" in str(error)
    assert other.pending() == set()
    assert other.run("run").status == "ok"
    other.check()


def test_a_response_truncated_before_the_metadata_is_no_foreign_object(site: Site) -> None:
    """The response has size and ETag, but not the metadata: no error suggests to move the topic's own object away."""
    topic = Topic()
    topic.records_arrive()
    rule = site.proxy.add(Truncate(before="x-amz-meta-"), operation="HeadObject", key=f"{topic.data}*")

    assert site.process(topic).run("run").status == "ok"

    assert rule.struck == 1
    site.observer(topic).check()


@pytest.mark.parametrize("site", ["versitygw-http", "moto-http"], indirect=True)
def test_bytes_damaged_in_transit_are_no_damaged_object(site: Site) -> None:
    """Verification reads again before it reports a damaged object."""
    topic = Topic()
    topic.records_arrive()
    assert site.process(topic).run("run").status == "ok"
    rule = site.proxy.add(Flip(), operation="GetObject", key=f"{topic.data}*")

    assert site.process(topic).run("run", action="verify").status == "ok"

    assert rule.struck == 1


@pytest.mark.parametrize("unseen", [False, True], ids=["checksum", "no checksum"])
@pytest.mark.parametrize(
    "document", ["runs/run.json", "marker.json", "0000000001.plan.json", "0000000001.manifest.json"]
)
def test_a_document_damaged_in_transit_is_not_a_corrupt_one(site: Site, document: str, unseen: bool) -> None:
    """Not even if the store returns no checksum: it is read again before an error suggests to restore it."""
    topic = Topic()
    topic.records_arrive()
    assert site.process(topic).run("run").status == "ok"
    rule = site.proxy.add(Flip(unseen), operation="GetObject", key=f"{topic.control}*{document}")

    result = site.process(topic).run("run")

    assert (result.status, result.wrote, rule.struck) == ("ok", False, 1)


REFUSED: Final = ("InvalidPart", "InvalidPartOrder", "EntityTooSmall", "MalformedXML", "BadDigest")
"""Refusals of Complete; some also occur for a request damaged in transit."""


@pytest.mark.parametrize("code", REFUSED)
def test_an_upload_that_is_refused_some_times_is_completed_later(site: Site, code: str) -> None:
    """Kafka has lost the records: the upload is the only copy of them, and it is not aborted."""
    topic = Topic()
    other = a_decided_batch(site, topic)
    topic.kafka.delete_records(TOPIC, 0, topic.kafka.bounds(TOPIC, 0)[1])
    for nth in (1, 3):
        site.proxy.add(Answer(400, code), operation="CompleteMultipartUpload", key=f"{topic.data}*", nth=nth)

    assert site.process(topic).run("run").status == "ok"

    assert other.pending() == set()
    other.check()


@pytest.mark.parametrize("code", REFUSED)
def test_an_upload_that_is_always_refused_is_kept_until_its_object_exists(site: Site, code: str) -> None:
    """The error reports records that Kafka lost, and the uploads are completed once the store accepts them."""
    topic = Topic()
    other = a_decided_batch(site, topic)
    uploads = other.pending()
    topic.kafka.delete_records(TOPIC, 0, topic.kafka.bounds(TOPIC, 0)[1])
    site.proxy.add(Answer(400, code), operation="CompleteMultipartUpload", key=f"{topic.data}*", times=None)

    # Bytes damaged in transit are no refusal: the request is retried.
    with pytest.raises(TransientError if code == "BadDigest" else BatchLossError):
        site.process(topic).run("run")

    assert other.pending() == uploads
    site.proxy.clear()
    assert site.process(topic).run("run").status == "ok"
    assert other.pending() == set()
    other.check()


def test_an_upload_that_is_always_refused_is_written_again_from_kafka(site: Site) -> None:
    """The refused upload is aborted afterwards."""
    topic = Topic()
    other = a_decided_batch(site, topic)
    rule = site.proxy.add(
        Answer(400, "InvalidPart"), operation="CompleteMultipartUpload", key=f"{topic.data}*", times=None
    )

    assert site.process(topic).run("run").status == "ok"

    assert rule.struck == 8
    assert other.pending() == set()
    other.check()


@pytest.mark.parametrize("name", LOOKS)
def test_without_an_answer_about_an_upload_nothing_is_built_again(site: Site, name: str) -> None:
    """If no Complete is answered the upload is checked: without an answer nothing is built again."""
    topic = Topic()
    request, complete = Request("ListParts", "events/*"), Request("CompleteMultipartUpload", "events/*")
    trouble = Trouble(site, topic, lambda process: process.run("run"))
    topic.records_arrive()
    trouble.add(complete, Answer(500, "InternalError"), None)

    assert trouble.meets(request, LOOKS[name], times=1) is UnknownOutcomeError
    assert trouble.meets(request, LOOKS[name], times=None) in expected(request, name, LOOKS[name])

    assert len(site.observer(topic).pending()) == 2
    site.proxy.clear()
    trouble.work(site.process(topic))
    site.observer(topic).check()
    assert site.observer(topic).pending() == set()


@pytest.mark.parametrize(
    ("operation", "size"), [("PutObject", SMALL), ("CompleteMultipartUpload", LARGE)], ids=["PUT", "Complete"]
)
@pytest.mark.parametrize("name", WRITES)
def test_a_lost_object_is_written_again_once(site: Site, name: str, operation: str, size: Size) -> None:
    """With any fault of the request that writes it."""
    request, fault, allowed = Request(operation, "events/*"), WRITES[name], set[str]()
    for times in (1, None):
        topic = Topic("json", size)
        trouble = Trouble(site, topic, lambda process: process.run("run"))
        other = a_decided_batch(site, topic)
        uploads_expire(other)
        # The Complete of the expired upload comes first.
        outcome = trouble.meets(request, fault, nth=2 if size == LARGE else 1, times=times)

        assert outcome in ({None} if times else expected(request, name, fault))
        allowed = orphans(site.proxy.calls)
        assert other.pending() <= allowed
        site.proxy.clear()
        trouble.work(site.process(topic))
        other.check()
        assert other.pending() <= allowed


@pytest.mark.parametrize("name", WRITES)
def test_a_loss_is_accepted_once(site: Site, name: str) -> None:
    """With any fault of the request that records it."""
    request, fault = Request("PutObject", "_kafka_s3/*.amend.*.json"), WRITES[name]
    for times in (1, None):
        topic = Topic()
        trouble = Trouble(site, topic, lambda process: accept_loss(process.committer, 1, **WHO))
        other = a_decided_batch(site, topic)
        uploads_expire(other)
        topic.kafka.delete_records(TOPIC, 0, topic.kafka.bounds(TOPIC, 0)[1])
        with pytest.raises(BatchLossError):
            other.run("run")

        outcome = trouble.meets(request, fault, times=times)

        assert outcome in ({None} if times else expected(request, name, fault))
        site.proxy.clear()
        trouble.work(site.process(topic))
        state = site.observer(topic)
        assert len(state.log.amended_keys(1)[0]) == 2
        assert state.log.amended_keys(1)[1] == 2
        topic.records_arrive()
        assert state.run("next").status == "ok"
        state.check()
        assert state.pending() == set()


@pytest.mark.parametrize("name", LOOKS)
def test_uploads_are_collected_only_after_a_complete_listing(site: Site, name: str) -> None:
    """A truncated listing is not complete."""
    topic = Topic()
    topic.records_arrive()
    other = site.observer(topic)
    other.run("run")
    key = f"{topic.data}partition=0/{TOPIC}+0+0000000000.bin"
    upload_id = other.store.create_upload(key)
    (pending,) = other.store.pending_uploads(topic.data)

    def collect(process: Process) -> None:
        found = gc.find_garbage(process.log, now=pending.initiated + 8 * DAYS)
        assert [upload.upload_id for upload in found.garbage] == [upload_id]
        gc.collect(process.log, found)

    request, trouble = Request("ListMultipartUploads", "events/*"), Trouble(site, topic, collect)

    assert trouble.meets(request, LOOKS[name], times=None) in expected(request, name, LOOKS[name])
    site.proxy.clear()
    assert trouble.meets(request, LOOKS[name], times=1) is None

    assert other.pending() == set()
    other.check()
