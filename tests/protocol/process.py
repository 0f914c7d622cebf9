"""A process of the simulation: an actor with its own engine, whose requests get the faults of the world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.batch.rebuild import BuildObjects, BuiltObject, ReadSlice
from airflow_provider_kafka_s3.batch.request import Action
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, Request
from tests.protocol.actors import Actor
from tests.protocol.engine import TOPIC, TOPICS_DIR, Engine, builder

if TYPE_CHECKING:
    from tests.protocol.simulation import World

__all__ = ["INDEX_SIZES", "Process"]

INDEX_SIZES: Final = (3, 6)
"""Batches of an index: with those of the product, no simulation would be long enough."""


class Process(Actor):
    """An actor with its own engine.

    Attributes:
        key: key of its run, if any.
        began: the step in which it began.
        late: its requests that will be applied later, even after its end.
        late_keys: per late request the key that it would make visible by itself, or None.
        intact: its run succeeded before, so it may only write objects deleted since, and marker files of other runs.
        restoring: it may write deleted objects again.
        action: of its run.
        hidden: records of the topic that no run would land, when it began.
        rebuilt: keys of objects that it built again from Kafka.
        writing_again: like ``rebuilt``, since its last read of the marker.
    """

    def __init__(self, world: World, name: str, key: str = "") -> None:
        super().__init__(world.scheduler, name)
        self.world = world
        self.key = key
        self.began = world.now
        self.late: list[Callable[[], object]] = []
        self.late_keys: list[str | None] = []
        self.intact = False
        self.restoring = False
        self.action: Action = "land"
        self.hidden: frozenset[bytes] = frozenset()
        self.rebuilt: frozenset[str] = frozenset()
        self.writing_again: frozenset[str] = frozenset()
        self.engine = Engine(
            FaultyStore(world.bucket, choose=self.choose, late=self.late),
            world.source,
            seed=world.rng.getrandbits(32),
            sleep=self.sleep,
            monotonic=self.monotonic,
            now=world.environment.now,
            build=self._builder,
            topics_dir=world.address.topics_dir,
            pipeline=world.address.pipeline,
        )
        if world.indexed:
            self.engine.log.index_sizes = INDEX_SIZES

    def choose(self, request: Request) -> Fault | None:
        """Let other actors run before each request, then choose its fault."""
        self.pause()
        if request.writes and self.action == "verify":
            self.world.watch.fail(f"I5 run {self.key}, which only verifies, sent {request.operation} {request.key}")
        if request.writes and self.intact and not self._may_be_absent(request.key):
            self.world.watch.fail(f"I5 a rerun of intact run {self.key} sent {request.operation} {request.key}")
        if request.key == addresses.marker_key(self.world.address.prefix) and request.operation == "get":
            self.writing_again = self.rebuilt
        return self.world.fault(self, request)

    def _may_be_absent(self, key: str) -> bool:
        """Whether a user has deleted it, or another process may have ended before it wrote it."""
        is_marker_file = keys.chunk_marker_partition(TOPICS_DIR, TOPIC, key) is not None
        return (
            is_marker_file or key == addresses.summary_key(self.world.address) or key in self.world.watch.ever_deleted
        )

    def _builder(self, store: DurableStore) -> BuildObjects:
        build = builder(store)

        def watched(plan: Plan, entries: Sequence[ObjectEntry], read: ReadSlice) -> dict[str, BuiltObject]:
            built = build(plan, entries, read)
            self.rebuilt = frozenset(entry.key for entry in entries)
            self.world.counts["objects built again"] += len(entries)
            return {key: _Watched(rebuilt, self) for key, rebuilt in built.items()}

        return watched


@dataclass
class _Watched:
    """An object that was built again, by a process that may pause between its last check and its write."""

    built: BuiltObject
    process: Process

    @property
    def content(self) -> str:
        return self.built.content

    @property
    def digest(self) -> str:
        return self.built.digest

    @property
    def size(self) -> int:
        return self.built.size

    @property
    def crc32(self) -> str:
        return self.built.crc32

    def put(self, metadata: dict[str, str]) -> None:
        try:
            self.built.put(metadata)
        finally:
            self.process.writing_again = frozenset()
