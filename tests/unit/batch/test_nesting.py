"""A topics_dir in the folder of another pipeline's topic is refused; an existing one does no harm."""

from __future__ import annotations

import msgspec
import pytest

from airflow_provider_kafka_s3.batch import log
from airflow_provider_kafka_s3.config import Naming
from airflow_provider_kafka_s3.exceptions import PipelineConflictError
from airflow_provider_kafka_s3.maintenance import gc
from airflow_provider_kafka_s3.maintenance.release import release
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import check_bucket, check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.protocol.engine import LAYOUT, Engine

EIGHT_DAYS = 8 * 86_400


class Pipelines:
    """Pipelines of any topics_dir over one bucket."""

    def __init__(self) -> None:
        self.bucket = MemoryStore("lake", clock=lambda: 0.0)
        self.kafka = SimulatedKafka()
        for topic in ("y", "z"):
            self.kafka.create_topic(topic)
            for i in range(4):
                self.kafka.append(topic, 0, b"%d" % i, i)

    def engine(self, topics_dir: str, topic: str, store: FaultyStore | None = None) -> Engine:
        return Engine(store or self.bucket, self.kafka, topics_dir=topics_dir, pipeline=f"to-{topic}", topic=topic)

    def lands(
        self, topics_dir: str, topic: str, *, delim: str = "/", prefix: str = "", store: FaultyStore | None = None
    ) -> None:
        naming = Naming(directory_delim=delim, topic_prefix=prefix)
        layout = msgspec.structs.replace(LAYOUT, topics_dir=topics_dir, naming=naming)
        assert self.engine(topics_dir, topic, store).run("run", layout=layout).status == "ok"

    def check(self, topics_dir: str, topic: str) -> int:
        """Check the invariants; returns the number of records."""
        return check_bucket(
            self.bucket, topics_dir=topics_dir, pipeline=f"to-{topic}", topic=topic, source=self.kafka.all_records()
        ).records


NESTED = [
    # Outer, inner: topics_dir and topic of each.
    (("x", "y"), ("x/y", "y")),
    (("x", "y"), ("x/y", "z")),
    (("x", "y"), ("x/y/deep/er", "z")),
    (("", "y"), ("y", "z")),
    (("a/x", "y"), ("a/x/y", "y")),
]


@pytest.mark.parametrize(("outer", "inner"), NESTED)
def test_a_released_topic_is_in_nobodys_way(outer: tuple[str, str], inner: tuple[str, str]) -> None:
    """Neither around another pipeline's folder nor in it: none of its objects exist."""
    for first, second in ((outer, inner), (inner, outer)):
        pipelines = Pipelines()
        store = FaultyStore(pipelines.bucket)
        store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.plan.json")
        with pytest.raises(SimulatedCrash):
            pipelines.lands(*first, store=store)
        release(pipelines.engine(*first).committer, reason="typo", operator="me")
        pipelines.lands(*second)
        assert pipelines.check(*second) == 4


@pytest.mark.parametrize(("outer", "inner"), NESTED)
def test_a_topics_dir_in_the_folder_of_a_topic_is_refused(outer: tuple[str, str], inner: tuple[str, str]) -> None:
    """Whichever of the two comes second; the error names both, and nothing is written."""
    for first, second in ((outer, inner), (inner, outer)):
        pipelines = Pipelines()
        pipelines.lands(*first)
        before = snapshot(pipelines.bucket)
        with pytest.raises(PipelineConflictError) as caught:
            pipelines.lands(*second)
        assert f"topic {second[1]!r} cannot be landed under topics_dir {second[0]!r}" in str(caught.value)
        assert repr(first[0]) in str(caught.value)
        assert str(caught.value).endswith(f"{first[0]}/_kafka_s3/_owners/{first[1]}.json".removeprefix("/"))
        check_unchanged(before, snapshot(pipelines.bucket))


@pytest.mark.parametrize("prefix", ["topic=", "~"])
def test_the_folder_of_a_topic_with_a_prefix_is_no_topics_dir_either(prefix: str) -> None:
    """Whichever of the two comes second."""
    inner = f"x/{prefix}y/deep"
    pipelines = Pipelines()
    pipelines.lands("x", "y", prefix=prefix)
    with pytest.raises(PipelineConflictError, match="that is a folder of topic 'y' of pipeline 'to-y'"):
        pipelines.lands(inner, "z")
    pipelines = Pipelines()
    pipelines.lands(inner, "z", prefix=prefix)
    with pytest.raises(PipelineConflictError, match="holds another topics_dir"):
        pipelines.lands("x", "y", prefix=prefix)
    assert pipelines.check(inner, "z") == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("x", "y"), ("x", "z")),
        (("x", "y"), ("x/z", "y")),
        (("x", "y"), ("x/yy", "y")),
        (("x", "y"), ("x/t/y", "y")),
        (("x", "y"), ("", "z")),
        (("", "y"), ("t", "y")),
    ],
)
def test_folders_beside_one_another_are_not_refused(one: tuple[str, str], other: tuple[str, str]) -> None:
    """In either order; each holds its own records."""
    for first, second in ((one, other), (other, one)):
        pipelines = Pipelines()
        pipelines.lands(*first)
        pipelines.lands(*second)
        assert (pipelines.check(*first), pipelines.check(*second)) == (4, 4)


def test_an_inner_topics_dir_is_seen_with_any_delimiter_of_folders() -> None:
    """Names have a common prefix, but no common folder."""
    pipelines = Pipelines()
    pipelines.lands("x-y-z", "z")
    with pytest.raises(PipelineConflictError, match="its folder 'x-y-' holds another topics_dir, 'x-y-z'"):
        pipelines.lands("x", "y", delim="-")


def test_only_one_page_of_foreign_objects_in_the_folder_is_listed() -> None:
    """A connector may have left millions of objects; the first run needs no more requests than in an empty folder."""
    pipelines = Pipelines()
    for n in range(1_100):
        pipelines.bucket.put_new(f"x/y/a/{n:04d}", b"")
    pipelines.lands("x/y/deeper", "z")
    pipelines.lands("x", "y")
    pipelines = Pipelines()
    for n in range(1_100):
        pipelines.bucket.put_new(f"x/y/a/{n:04d}", b"")
    pipelines.lands("x/y", "z")
    with pytest.raises(PipelineConflictError):
        pipelines.lands("x", "y")


@pytest.mark.parametrize("prefix", ["", "topic="])
@pytest.mark.parametrize("below", ["", "/deep/er"])
def test_where_topics_dirs_are_nested_gc_and_checks_ignore_the_objects_of_the_other(
    monkeypatch: pytest.MonkeyPatch, below: str, prefix: str
) -> None:
    """As left by a version without the refusal: the key of the inner decided upload is valid in the outer topic too."""
    named = f"{prefix}y"
    inner = f"x/{named}{below}"
    monkeypatch.setattr(log, "refuse_nesting", lambda *_, **__: None)
    pipelines = Pipelines()
    pipelines.lands("x", "y", prefix=prefix)
    store = FaultyStore(pipelines.bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.manifest.json")
    with pytest.raises(SimulatedCrash):
        pipelines.lands(inner, "y", prefix=prefix, store=store)
    decided = {upload.upload_id for upload in pipelines.bucket.pending_uploads("")}
    orphan = pipelines.bucket.create_upload(f"x/{named}/parity=0/{named}+0+0000000000.bin")
    outer_log = pipelines.engine("x", "y").log
    found = gc.find_garbage(outer_log, now=EIGHT_DAYS)
    assert [upload.upload_id for upload in found.garbage] == [orphan]
    gc.collect(outer_log, found)
    assert {upload.upload_id for upload in pipelines.bucket.pending_uploads("")} == decided
    pipelines.lands(inner, "y", prefix=prefix)
    assert (pipelines.check("x", "y"), pipelines.check(inner, "y")) == (4, 4)
