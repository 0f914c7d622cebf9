"""A store that answers some kinds of requests from a state that is minutes old: nothing that exists is given up."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import pytest

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    MarkerMissingError,
    MissingObjectError,
    TransientError,
    UnknownOutcomeError,
)
from airflow_provider_kafka_s3.maintenance.accept_loss import Absent, absent, accept_deleted, accept_loss
from airflow_provider_kafka_s3.maintenance.repair import GoneRule, repair
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectInfo, Part, StoredObject
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.protocol.engine import CONTROL, TOPIC, Clock, Engine, check_landed, crash_after

LAG: Final = 600.0
"""Seconds."""
OBJECTS: Final = "topics/events/"


class Behind(MemoryStore):
    """A store that is as it was before some objects were written, for some kinds of requests and for :data:`LAG`.

    Attributes:
        answer: to Complete requests, whatever they do; None: the right one.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock.monotonic)
        self.answer: Exception | None = None
        self._kinds: tuple[str, ...] = ()
        self._begin = ""
        self._until = 0.0

    def fall_behind(self, begin: str, *kinds: str) -> None:
        """From now on, requests of these kinds do not show objects whose keys begin so."""
        self._begin, self._kinds, self._until = begin, kinds, self._clock() + LAG

    def _hides(self, kind: str, key: str) -> bool:
        return kind in self._kinds and key.startswith(self._begin) and self._clock() < self._until

    def get(self, key: str, *, start: int | None = None, end: int | None = None) -> StoredObject | None:
        """See the class."""
        return None if self._hides("GET", key) else super().get(key, start=start, end=end)

    def head(self, key: str) -> ObjectInfo | None:
        """See the class."""
        return None if self._hides("HEAD", key) else super().head(key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """See the class."""
        return (info for info in super().list(prefix, after=after) if not self._hides("LIST", info.key))

    def upload_exists(self, key: str, upload_id: str) -> bool:
        """See the class."""
        return self._hides("uploads", key) or super().upload_exists(key, upload_id)

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        """See the class."""
        try:
            super().complete_upload(key, upload_id, parts)
        finally:
            if self.answer is not None:
                raise self.answer


class World:
    """A topic of six records, which Kafka deletes as soon as they are landed."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.bucket = Behind(self.clock)
        self.kafka = SimulatedKafka()
        self.kafka.create_topic(TOPIC)
        for i in range(6):
            self.kafka.append(TOPIC, 0, b"%d" % i, timestamp=0)

    def engine(self) -> Engine:
        """A process."""
        return Engine(self.bucket, self.kafka, sleep=self.clock.sleep, monotonic=self.clock.monotonic)

    def land(self, *behind: str) -> None:
        """Land all records; afterwards requests of these kinds do not show the objects."""
        self.engine().run("first")
        self.kafka.delete_records(TOPIC, 0, 6)
        self.bucket.fall_behind(OBJECTS, *behind)

    def complete(self) -> None:
        """Make all objects visible by a process that ends before the marker has them."""
        crash_after("*.manifest.json", self.bucket, self.kafka, "first")
        decision = self.engine().log.read_manifest(1)
        assert decision is not None
        for entry in decision.objects:
            self.bucket.complete_upload(entry.key, entry.upload_id, entry.upload_parts())
        self.kafka.delete_records(TOPIC, 0, 6)

    def is_intact(self) -> bool:
        """Whether nothing was given up, and everything is found once the lag is over."""
        self.clock.sleep(LAG)
        self.bucket.answer = None
        self.engine().run("first")
        check_landed(self.bucket, self.kafka, recovered=True, complete=True)
        return [info.key for info in self.bucket.list("") if ".amend." in info.key] == []


@contextlib.contextmanager
def contradiction(behind: Sequence[str], first: str = "HEAD") -> Iterator[None]:
    """An error that may be tried again, if the first look is by a kind of request that is behind."""
    with contextlib.ExitStack() as stack:
        if first in behind:
            why = rf"a {first} request does not find an object, and a \w+ request finds it.*Nothing was given up"
            stack.enter_context(pytest.raises(TransientError, match=why))
        yield


BEHIND = pytest.mark.parametrize("behind", [("HEAD",), ("LIST",), ("HEAD", "LIST"), ("HEAD", "GET")], ids="+".join)


@BEHIND
@pytest.mark.parametrize("answer", [None, UnknownOutcomeError("time-out")])
def test_an_object_that_one_kind_of_request_finds_is_not_accepted_as_lost(
    behind: tuple[str, ...], answer: Exception | None
) -> None:
    """Kafka has deleted its records; its upload is gone, or seems to be pending and no Complete is answered."""
    world = World()
    world.complete()
    world.bucket.answer = answer
    world.bucket.fall_behind(OBJECTS, *behind, *(["uploads"] if answer else []))
    with contradiction(behind):
        world.engine().run("first")
    with contradiction(behind):
        assert accept_loss(world.engine().committer, 1, reason="", operator="me") == ()
    assert world.is_intact()


class LeftOver(MemoryStore):
    """A store that stops behind the object of an upload, which stays, and that shows the object to the fifth HEAD."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: Counter[str] = Counter()

    def head(self, key: str) -> ObjectInfo | None:
        """See the class."""
        self.looks[key] += 1
        return super().head(key) if self.looks[key] > 4 else None

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        """See the class."""
        upload = self._uploads[upload_id]
        try:
            super().complete_upload(key, upload_id, parts)
        finally:
            self._uploads[upload_id] = upload
        raise UnknownOutcomeError("the server stopped")


def test_an_object_that_the_last_look_finds_has_no_pending_upload() -> None:
    """It is aborted, as where an earlier look finds the object."""
    world = World()
    store = LeftOver()
    assert Engine(store, world.kafka).run("first").status == "ok"
    assert list(store.pending_uploads("")) == []
    assert {*store.looks.values()} == {5}
    check_landed(store, world.kafka, recovered=True, complete=True)


@BEHIND
def test_an_object_that_one_kind_of_request_finds_is_not_called_missing(behind: tuple[str, ...]) -> None:
    """A repeated run neither suggests to accept it nor reads it again from Kafka, and nobody can accept it."""
    world = World()
    world.land(*behind)
    for on_missing in ("fail", "restore"):
        with contradiction(behind):
            assert world.engine().run("first", on_missing=on_missing).verified == 2
    with contradiction(behind):
        assert absent(world.engine().committer, 1) == Absent((), ())
    with contradiction(behind):
        assert accept_deleted(world.engine().committer, 1, reason="", operator="me") == ()
    assert world.is_intact()


@BEHIND
def test_an_object_that_one_kind_of_request_finds_does_not_stay_gone_by_a_repair(behind: tuple[str, ...]) -> None:
    """The rule of a person is for objects that no request finds."""
    world = World()
    world.land(*behind)
    world.bucket.delete(addresses.marker_key(CONTROL))
    rule = GoneRule(before=1e9, reason="gone", operator="me")
    with contradiction(behind):
        repair(world.engine().committer, start={0: 0}, rule=rule)
    world.clock.sleep(LAG)
    repair(world.engine().committer, start={0: 0}, rule=rule)
    assert world.is_intact()


@pytest.mark.parametrize("action", ["verify", "restore"])
def test_an_object_that_cannot_be_read_yet_is_not_called_missing(action: Literal["verify", "restore"]) -> None:
    """Objects are read by GET requests."""
    world = World()
    world.land("GET")
    with contradiction(["GET"], "GET"):
        world.engine().run("other", action=action)
    assert world.is_intact()


@pytest.mark.parametrize(
    "document", ["marker.json", "batches/0000000001.plan.json", "batches/0000000001.manifest.json"]
)
def test_a_document_that_cannot_be_read_yet_is_not_called_gone(document: str) -> None:
    """Marker, plan and decision of what is landed: a run is tried again, and nobody has to repair anything."""
    world = World()
    world.land()
    world.bucket.fall_behind(CONTROL + document, "GET")
    with contradiction(["GET"], "GET"):
        world.engine().run("first")
    with contradiction(["GET"], "GET"):
        world.engine().log.require_plan(1)
        world.engine().log.require_decision(1)
        world.engine().log.require_marker()
    assert world.is_intact()


def test_a_log_that_is_not_listed_yet_is_not_called_gone() -> None:
    """A repair lists the log: without its first plan, it would be damaged."""
    world = World()
    world.land()
    marker = world.engine().log.require_marker()
    for part in ("batches/", "batches/0000000001.plan"):
        world.bucket.fall_behind(CONTROL + part, "LIST")
        with contradiction(["LIST"], "LIST"):
            repair(world.engine().committer, start={0: 0})
    assert world.engine().log.require_marker() == marker
    assert world.is_intact()


def test_what_is_gone_is_said_to_be_found_by_no_request() -> None:
    """Of objects and of the marker."""
    world = World()
    world.land()
    for info in tuple(world.bucket.list(OBJECTS)):
        world.bucket.delete(info.key)
    looked = "Neither HEAD nor GET nor LIST requests find them, the last ones after a pause"
    with pytest.raises(MissingObjectError, match=looked):
        world.engine().run("first")
    with pytest.raises(BatchLossError, match=looked):
        world.engine().run("first", on_missing="restore")
    world.bucket.delete(addresses.marker_key(CONTROL))
    with pytest.raises(MarkerMissingError, match="neither GET nor HEAD nor LIST requests find it"):
        world.engine().run("first")
