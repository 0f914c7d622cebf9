"""A pipeline of the simulation that reads what another one has landed, in place of Kafka, at the same time.

Both have their faults, people and invariants. The one below is that of :mod:`tests.protocol.simulation`: it lands,
abandons, is reset, and loses objects while this one reads them; somebody accepts some of these losses. In some worlds
people also expire objects of the one below: those that this one has landed, or old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from airflow_provider_kafka_s3.config import Landed
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.expiry import WaitingExpiry
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.exceptions import BatchLossError, DataLossError, MissingObjectError, TopicRecreatedError
from airflow_provider_kafka_s3.storage.port import StoredObject
from airflow_provider_kafka_s3.testing.topic_state import accounted_for
from tests.protocol.engine import ADDRESS, KEY, LAYOUT, MERGED, TOPIC, WITH_KEYS
from tests.protocol.process import Process
from tests.protocol.programs import accept_deleted, expire, expiry_rule, withdraw
from tests.protocol.simulation import World
from tests.protocol.watch import Watch, record

__all__ = ["EXPIRING", "LANDED", "Above"]

LANDED: Final = range(40_000, 60_000)
"""Seeds of worlds in which another pipeline reads what the first one has landed."""

EXPIRING: Final = range(50_000, 60_000)
"""Those of them in which people delete objects of the first pipeline on purpose."""

_ADDRESS: Final = TopicAddress(topics_dir="compacted", pipeline="compaction", topic=TOPIC)
_END: Final = 2**63 - 1


class Above(World):
    """A pipeline over another one.

    Args:
        below: the pipeline that it reads, with which it shares bucket, time and Kafka.
        seed: determines its events.
    """

    def __init__(self, below: World, seed: int) -> None:
        super().__init__(seed)
        self.below = below
        self.scheduler, self.kafka, self.bucket, self.counts = below.scheduler, below.kafka, below.bucket, below.counts
        self.environment.kafka = below.kafka
        self.address = _ADDRESS
        self.source = Landed(pipeline=ADDRESS.pipeline, topics_dir=ADDRESS.topics_dir)
        self.watch = Watch(self.is_optional, _ADDRESS)
        self.watch.exists, self.watch.is_pending = below.watch.exists, below.watch.is_pending
        of_values = MERGED if seed // 5 % 2 else LAYOUT
        self.layout = replace(WITH_KEYS if below.layout is WITH_KEYS else of_values, topics_dir=_ADDRESS.topics_dir)
        # Whether people delete only what this pipeline has landed, or also what is old.
        self._expires = LANDED.start + seed in EXPIRING
        self._expires_old = self._expires and bool(seed % 2)
        self._left_out: tuple[tuple[int, int], frozenset[bytes]] = ((0, 0), frozenset())

    def step(self) -> None:
        """Let people and late requests do what they may, and start runs."""
        self.now, self.environment.clock = self.below.now, self.below.environment.clock
        if self.below.watch.state.marker is None:
            return
        if self.watch.state.marker is not None:
            self.environment.act_as_people()
        if self.rng.random() < 0.05:
            self.apply_late_request()
        if self.rng.random() < 0.004:
            self._accept_deleted_below()
        if self._expires:
            self._expire_below()
        self.start_drivers(2)

    # -- what it has to land ------------------------------------------------------------------------------------------

    @property
    def live_topic_id(self) -> str:
        marker = self.below.watch.state.marker
        return "" if marker is None else marker.topic_id

    def _readable(self) -> Offsets:
        """What the pipeline below has landed in batches before which all are complete."""
        state, offsets = self.below.watch.state, NO_OFFSETS
        if (marker := state.marker) is None or not marker.resolved or marker.resolved[0][0] != 1:
            return offsets
        for plan, _ in state.committed():
            if plan.generation == marker.generation and plan.batch < marker.resolved[0][1]:
                offsets |= plan.claim
        return offsets

    def due_of(self, window: tuple[int, int]) -> Offsets:
        """None that the simulation could compute: a window takes whole batches."""
        return NO_OFFSETS

    def start_driver(self, key: str | None = None, offsets: str | None = None) -> Process:
        """Start a run; a new incremental one without a limit has to land all that is readable now."""
        process = super().start_driver(key, offsets)
        settings = self.requests[process.key]
        if settings["offsets"] == "incremental" and "limits" not in settings:
            self.due.setdefault(process.key, (self.live_topic_id, self._readable()))
        return process

    def still_due(self, key: str) -> Offsets:
        marker = self.watch.state.marker
        return NO_OFFSETS if marker is None else self._from_start(self.due[key][1])

    def _from_start(self, offsets: Offsets) -> Offsets:
        assert self.watch.state.marker is not None
        start = self.watch.state.marker.start
        return offsets & Offsets({p: [(start.get(p, 0), _END)] for p in offsets})

    def is_optional(self, topic_id: str, partition: int, offset: int) -> bool:
        """Whether it may lack a record: the pipeline below never had it, or has accepted its loss."""
        value = record(topic_id, partition, offset)
        watch = self.below.watch
        if value not in watch.landed or self.kafka.is_optional(topic_id, partition, offset):
            return True
        state = len(watch.values_of_deleted), len(watch.expired) + sum(map(len, watch.state.amended.values()))
        if state != self._left_out[0]:
            accepted = {key for keys in watch.state.amended.values() for key in keys}
            # What is deleted because this pipeline has it is not optional.
            accepted |= watch.expired if self._expires_old else set()
            lost = [values for key, values in watch.values_of_deleted.items() if key in accepted]
            self._left_out = state, frozenset(value for values in lost for value in values)
        return value in self._left_out[1]

    # -- expiry -------------------------------------------------------------------------------------------------------

    def _expire_below(self) -> None:
        """Let people delete objects of the pipeline below, and withdraw that; in some worlds, old ones of this one."""
        if self.rng.random() < 0.02:
            self._expire(at_once=False)
        if self._expires_old and self.watch.state.marker is not None and self.rng.random() < 0.005:
            rule = expiry_rule(self, landed_in=None, at_once=False)
            self.spawn("operator", lambda p: expire(self, p, rule, verify=False))
        if self.rng.random() < 0.005:
            self.below.spawn("operator", lambda p: withdraw(self.below, p))

    def _expire(self, *, at_once: bool) -> Process:
        is_old = self._expires_old and self.rng.random() < 0.5
        landed_in = None if is_old else Landed(pipeline=_ADDRESS.pipeline, topics_dir=_ADDRESS.topics_dir)
        rule = expiry_rule(self.below, landed_in=landed_in, at_once=at_once)
        verify = self.rng.random() < 0.3
        return self.below.spawn("operator", lambda p: expire(self.below, p, rule, verify=verify))

    def on_expire_below(self, stored: StoredObject, records: Sequence[WaitingExpiry]) -> None:
        """Check that this pipeline has what is deleted for that reason, but for what users have deleted meanwhile."""
        if not records or any(record.landed_in is None for record in records):
            return
        writer = self.below.sender or self.scheduler.current
        assert isinstance(writer, Process)
        excused = {
            value
            for key, step in self.watch.ever_deleted.items()
            if step >= writer.began
            for value in self.watch.values_of_deleted[key]
        }
        for value in self.below.watch.values_of_deleted[stored.key]:
            topic_id, partition, offset = value.removeprefix(KEY).decode().split("/")
            # The key of a record whose value was accepted as lost is in no other pipeline.
            is_left = value.startswith(KEY) and self.is_optional(topic_id, int(partition), int(offset))
            if not self.watch.has(value) and value not in excused and not is_left:
                self.watch.fail(f"I12 the last copy of {value.decode()}, object {stored.key}, was deleted")
        self.counts["objects expired that another pipeline has"] += 1

    def after_the_rest(self) -> None:
        """Delete all that may be, before the runs are repeated."""
        if self._expires:
            self.below.run_to_end(self._expire(at_once=True))

    # -- remedies -----------------------------------------------------------------------------------------------------

    @property
    def ever_deleted(self) -> set[str]:
        return {*self.watch.ever_deleted, *self.below.watch.ever_deleted, *self.below.watch.expired}

    def _accept_deleted_below(self) -> Process | None:
        """Let a person accept the deleted objects of a batch of the pipeline below, if there are some to accept."""
        if not (batches := self._batches_to_accept()):
            return None
        batch = self.rng.choice(batches)
        return self.below.spawn("operator", lambda p: accept_deleted(self.below, p, batch))

    def _batches_to_accept(self) -> list[int]:
        """The batches of the pipeline below with deleted objects that are neither accepted as lost nor expired."""
        state, batches = self.below.watch.state, set[int]()
        for key in self.below.watch.deleted:
            batch = self.below.watch.batch_of(key)
            assert batch is not None
            entry = self.below.watch.entry_of(batch, key)
            if key not in state.amended.get(batch, ()) and not state.may_be_deleted(batch, entry):
                batches.add(batch)
        return sorted(batches)

    def find_remedy(self, driver: Process) -> bool:
        """Let somebody accept a loss of the pipeline below; whether that is all that the error needs."""
        if isinstance(driver.error, TopicRecreatedError):
            return False
        if (
            isinstance(driver.error, MissingObjectError | BatchLossError | DataLossError)
            and (person := self._accept_deleted_below()) is not None
        ):
            self.below.run_to_end(person)
            return isinstance(driver.error, MissingObjectError | BatchLossError)
        return False

    @property
    def is_optional_at_end(self) -> Callable[[str, int, int], bool]:
        return self.is_optional

    def to_compare(self) -> dict[str, Any]:
        """No times: a window takes whole batches."""
        return {}

    def end(self) -> None:
        """After both have ended, the next runs land what is left, and all that was readable is accounted for."""
        self.land_the_rest("last")
        marker = self.watch.state.marker
        assert marker is not None
        if left := self._from_start(self._readable()) - accounted_for(self.watch.state, marker):
            self.watch.fail(f"I8 offsets {left} are readable below, and no run will land them")
        super().end()
        self.counts["batches of a pipeline over another one"] += len(self.watch.state.plans)
