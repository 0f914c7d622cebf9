"""The simulation: several drivers, their Spark jobs and operators land one topic under faults, determined by a seed.

The product's code runs unchanged: ``TopicRun``, ``Committer`` and the manual operations on ``DurableStore`` and
``Retrier``. Its environment is simulated, request by request, in an order determined by the seed:

* processes end between any two requests, or sleep for long and continue as zombies; Spark tasks outlive their job, and
  run twice;
* requests are refused (503, 409), applied without an answer, sent twice, or applied much later, after their sender has
  ended; a Complete removes its upload at once and shows its object later, or never, or leaves the upload next to the
  object;
* uploads expire, or are refused once, several times or for good;
* retention and compaction delete records, partitions are added, the topic is deleted and created again; transactions
  stay open, and some records have timestamps in the future;
* in some worlds leaders are elected, and some of them have lost records, where they append others;
* in some worlds another pipeline reads what the first one has landed (:mod:`tests.protocol.above`), and in some of
  these people expire objects of the first one, and withdraw that;
* in some worlds keys are in objects beside those of values; in some, slices of several partitions share objects;
* in some worlds indexes of the log have few batches; users delete, damage and forge them, repair the log and collect
  garbage, and readers use the indexes;
* users delete committed objects; operators abandon, reset and accept losses at any time.

The invariants are checked inside the bucket at every write (:mod:`tests.protocol.watch`). At the end the faults stop:
new runs and the documented remedies have to land everything, every run is repeated, zombies continue, and the shipped
checker reads the bucket.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.config import Landed
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.expiry import WaitingExpiry
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import (
    BatchLossError,
    ConfigurationError,
    ControlError,
    DataLossError,
    ForeignObjectError,
    KafkaS3Error,
    MissingObjectError,
    RecordError,
    RunSupersededError,
    TerminalError,
    TopicRecreatedError,
    TransientError,
)
from airflow_provider_kafka_s3.storage.port import StoredObject
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import CONDITIONAL, Fault, Request
from airflow_provider_kafka_s3.testing.topic_state import accounted_for
from tests.protocol.actors import Actor, Scheduler
from tests.protocol.bucket import Bucket
from tests.protocol.engine import ADDRESS, LAYOUT, MERGED, NAMED, TOPIC, WITH_KEYS, check_landed
from tests.protocol.environment import Environment
from tests.protocol.process import INDEX_SIZES, Process
from tests.protocol.programs import accept_losses, drive, give_up_replaced, repair_chunk_markers, repair_log, reset
from tests.protocol.watch import Watch

__all__ = ["LOSSY", "MARKER_FILES", "World"]

_WORLDS: Final = {WITH_KEYS: "worlds with objects of keys", MERGED: "worlds with objects of several partitions"}

MARKER_FILES: Final = range(20_000, 30_000)
"""Seeds of worlds with marker files, apart from those that find the other mutants."""

LOSSY: Final = range(30_000, 40_000)
"""Seeds of worlds in which leaders lose records."""

_ENOUGH: Final = 50_000
"""Steps within which a process must end after the faults."""


@dataclass
class Odds:
    """Probabilities of faults, per request or per step of the world."""

    throttled: float
    lost: float
    twice: float
    late: float
    conflict: float
    killed: float
    paused: float


class World:
    """The simulated world. ``main`` runs it; a violated invariant raises InvariantViolation."""

    def __init__(self, seed: int, *, trim: bool = False) -> None:
        """Create a world.

        Args:
            seed: determines all events.
            trim: somebody deletes old control documents, which the documentation forbids.
        """
        self.rng = rng = random.Random(seed)
        self.trim = trim
        self.scheduler = Scheduler()
        self.kafka = SimulatedKafka(records_per_poll=2, before_request=lambda operation: self.scheduler.pause())
        self.kafka.create_topic(TOPIC, rng.choice((1, 1, 2, 3)))
        self.watch = Watch(self.is_optional)
        self.bucket = Bucket(self.on_write, self._on_abort, self._on_delete, conditional_complete=rng.random() < 0.7)
        self.address = ADDRESS
        self.source: SimulatedKafka | Landed = self.kafka
        # Pipelines that read what this one has landed.
        self.above: list[World] = []
        self.watch.exists = self.bucket.objects.__contains__
        self.watch.is_pending = self.bucket.uploads.__contains__
        self.senders: list[Process] = []
        self.sender: Process | None = None
        self.now = 0
        self.faulty = True
        level = rng.choice((0.0, 0.3, 1.0, 2.0))
        self.odds = Odds(
            throttled=0.03 * level,
            lost=0.04 * level,
            twice=0.01 * level,
            late=0.02 * level,
            conflict=0.01 * level,
            killed=0.006 * level,
            paused=0.01 * level,
        )
        # Not drawn, so that all other seeds keep their events.
        self.layout = NAMED if seed in MARKER_FILES else {4: WITH_KEYS, 2: MERGED}.get(seed % 5, LAYOUT)
        self.lossy = seed in LOSSY
        self.indexed = seed % 5 in (1, 3) and not trim
        self.counts: Counter[str] = Counter({_WORLDS[self.layout]: 1} if self.layout in _WORLDS else {})
        self.on_data_loss = rng.choice(("skip", "fail"))
        self.starting = rng.choice(("earliest", "earliest", "latest"))
        self.on_future_timestamp = rng.choice(("fail", "read_to_end"))
        self.environment = Environment(self, rng, self.kafka)
        self.requests: dict[str, dict[str, Any]] = {}
        # Per run over a window the topic id at its start, and the offsets that it has to land.
        self.due: dict[str, tuple[str, Offsets]] = {}
        # Runs that succeeded with their own target. A window that others had covered has no run record.
        self.landed: set[str] = set()
        # Whether somebody has put an index with a valid checksum and wrong content into the bucket.
        self.forged = False

    def main(self, steps: int) -> None:
        """Run the steps with faults, then the steps without."""
        try:
            for _ in range(3):
                self.environment.append_records()
            max_drivers = self.rng.choice((2, 3, 4))
            while self.now < steps:
                self.now += 1
                self.environment.step()
                self.start_drivers(max_drivers)
                self._run_an_actor()
                for world in self.above:
                    world.step()
                    self._run_an_actor()
            self._drain()
        finally:
            self.scheduler.kill_all()

    def is_optional(self, topic_id: str, partition: int, offset: int) -> bool:
        """Whether a complete read may lack an offset."""
        place = topic_id, partition, offset
        return place in self.environment.replaced or self.kafka.is_optional(*place)

    def step(self) -> None:
        """Let what another pipeline may cause occur; the first one has its own environment."""

    @property
    def live_topic_id(self) -> str:
        """The incarnation of the topic."""
        return self.kafka.topic_id(TOPIC)

    def start_drivers(self, most: int) -> None:
        """Start a run, at random, and always if there is none."""
        drivers = sum(isinstance(a, Process) and a.world is self and a.name == "driver" for a in self.scheduler.actors)
        if drivers == 0 or (drivers < most and self.rng.random() < 0.02):
            self.start_driver()

    # -- the scheduler ------------------------------------------------------------------------------------------------

    def spawn(self, name: str, body: Callable[[Process], Any], key: str = "") -> Process:
        process = Process(self, name, key)
        self.senders.append(process)
        self.scheduler.spawn(process, lambda: body(process))
        return process

    def _run_an_actor(self) -> None:
        awake = [a for a in self.scheduler.actors if a.asleep_until <= self.now]
        if not awake:
            return
        actor = self.rng.choice(awake)
        if self.rng.random() < self.odds.killed:
            actor.kill()
            self.scheduler.drop_finished()
            self.counts["killed"] += 1
        elif self.rng.random() < self.odds.paused:
            actor.asleep_until = self.now + self.rng.choice((20, 100, 600))
            self.counts["zombies"] += 1
        else:
            self._advance(actor, self.rng.choice((1, 1, 1, 2, 5, 20)))

    def _advance(self, actor: Actor, steps: int = 1) -> None:
        for _ in range(steps):
            if actor.step():
                self.scheduler.drop_finished()
                if isinstance(actor, Process):
                    actor.world.check_result(actor)
                return

    # -- faults -------------------------------------------------------------------------------------------------------

    def fault(self, process: Process, request: Request) -> Fault | None:
        """The fault of a request, if any."""
        self.bucket.assemble_slowly = None
        fault = self._draw_fault() if self.faulty else None
        if fault is None:
            return None
        if fault is Fault.CONFLICT and request.operation not in CONDITIONAL:
            return None
        self.counts[fault.name.lower()] += 1
        makes_visible = request.key if request.operation == "put_new" else None
        if fault is Fault.LATE and request.operation == "complete_upload" and self.rng.random() < 0.5:
            before = len(process.late)
            self.bucket.assemble_slowly = process.late
            # Nothing is stored unless the upload is still pending.
            process.late_keys = [*process.late_keys[:before], request.key]
            return None
        if fault is Fault.LATE and request.writes:
            process.late_keys = [*process.late_keys[: len(process.late)], makes_visible]
        return fault

    def _draw_fault(self) -> Fault | None:
        x = self.rng.random()
        odds = self.odds
        for fault, probability in (
            (Fault.THROTTLED, odds.throttled * 0.8),
            (Fault.THROTTLED_AFTER_APPLY, odds.throttled * 0.2),
            (Fault.LOST_RESPONSE, odds.lost),
            (Fault.SENT_TWICE, odds.twice),
            (Fault.LATE, odds.late),
            (Fault.CONFLICT, odds.conflict),
        ):
            if x < probability:
                return fault
            x -= probability
        return None

    def apply_late_request(self) -> None:
        """Apply a late request, whose sender does not wait for it any more, if still possible."""
        self.senders = [p for p in self.senders if p.late or not p.finished]
        late = [p for p in self.senders if p.late]
        if not late:
            return
        self.sender = self.rng.choice(late)
        number = self.rng.randrange(len(self.sender.late))
        key, apply = self.sender.late_keys.pop(number), self.sender.late.pop(number)
        if key in self.watch.expired:
            # No request is later than the time between the record of an expiry and the deletion.
            return
        self.bucket.assemble_slowly = None
        try:
            apply()
        except KafkaS3Error:
            self.counts["too late"] += 1
        self.sender = None

    def on_write(self, key: str, before: StoredObject | None, after: StoredObject) -> None:
        """Check one write to the bucket."""
        for world in self.above:
            world.on_write(key, before, after)
        writer = self.sender or self.scheduler.current
        self.watch.on_write(key, before, after, restoring=isinstance(writer, Process) and writer.restoring)

    def _on_abort(self, key: str, upload_id: str) -> None:
        for world in (self, *self.above):
            world.watch.on_abort(key, upload_id)

    def _on_delete(self, stored: StoredObject) -> None:
        for world in (self, *self.above):
            if world.watch.batch_of(stored.key) is not None:
                world.on_expire(stored)
                return
        self.watch.fail(f"I12 object {stored.key}, which no batch has, was deleted")

    def on_expire(self, stored: StoredObject) -> None:
        """Check the deletion of an object on purpose."""
        records = self.watch.on_expire(stored)
        self.counts["objects expired"] += 1
        for world in self.above:
            world.on_expire_below(stored, records)

    def on_expire_below(self, stored: StoredObject, records: Sequence[WaitingExpiry]) -> None:
        """Check the deletion of an object that this pipeline may need; the first one reads Kafka."""

    # -- drivers, jobs and tasks --------------------------------------------------------------------------------------

    def start_driver(self, key: str | None = None, offsets: str | None = None) -> Process:
        """Start a new run, or repeat one, as Airflow does after a failure or when somebody clears a task."""
        rng = self.rng
        known = sorted(self.requests)
        key = key or (rng.choice(known) if known and rng.random() < 0.5 else f"run-{len(known):03d}")
        if key not in self.requests:
            settings: dict[str, Any] = {
                "offsets": offsets or rng.choice(("incremental", "data_interval", "data_interval"))
            }
            settings["starting"] = self.starting
            if settings["offsets"] == "data_interval":
                start = rng.randint(0, self.environment.clock + 1)
                settings["window"] = window = (start, start + rng.choice((2, 5, 20)))
                settings["starting"] = rng.choice((self.starting, None))
                self.due[key] = self.live_topic_id, self.due_of(window)
            elif settings["offsets"] == "incremental" and offsets is None and rng.random() < 0.2:
                settings["limits"] = {"records_per_run": 7}
            self.requests[key] = settings
        succeeded = key in self.landed
        process = self.spawn("driver", self._drive, key)
        # Only a run that has succeeded may restore: it can only write objects that a user deleted.
        process.restoring = succeeded and rng.random() < 0.5
        process.intact = succeeded
        if key not in self.watch.state.runs:
            process.hidden = self._hidden()
        # Some repeated runs verify or restore instead.
        process.action = "land" if not succeeded or self.now % 3 else "restore" if process.restoring else "verify"
        return process

    def _drive(self, process: Process) -> TopicResult:
        settings = self.requests[process.key]
        limits = settings.get("limits", {}) | {"records_per_batch": self.rng.choice((4, 9, None))}
        if self.layout.rotation.merge_partitions:
            limits["records_per_slice"] = 6
        request = process.engine.request(
            process.key,
            **settings | {"limits": limits},
            layout=self.layout,
            on_future_timestamp=self.on_future_timestamp,
            on_data_loss=self.on_data_loss,
            on_missing="restore" if process.restoring else self.rng.choice(("fail", "ignore")),
            action=process.action,
            adopt_wait=self.rng.choice((0.0, 4.0, 20.0)),
        )
        return drive(self, process, request)

    # -- results ------------------------------------------------------------------------------------------------------

    def check_result(self, process: Process) -> None:
        if process.name != "driver":
            self._check_error(process)
            return
        outcome = process.result.status if process.result is not None else type(process.error).__name__
        self._check_error(process)
        if process.action != "land":
            self.counts[f"runs with action {process.action}"] += 1
        self.counts[f"runs that ended {outcome}"] += 1
        if outcome in ("ok", "empty") and process.action == "land":
            self._check_window(process)
            if hidden := process.hidden & self._hidden():
                self.watch.fail(f"I11 run {process.key} succeeded, and no run will land {sorted(hidden)[:3]}")
        if outcome == "ok":
            marker = self.watch.state.marker
            assert marker is not None
            covered = [marker.covered_in(g) for g in range(marker.generation + 1)]
            run = self.watch.state.runs.get(process.key)
            if run is not None and run.target == process.result.target:
                self.landed.add(process.key)
                covered = [covered[run.generation]]
            if not any(process.result.target <= c for c in covered):
                self.watch.fail(f"I4 run {process.key} reported success and is not covered: {process.result.target}")
            self._check_batches(process, marker)

    def _check_batches(self, process: Process, marker: Marker) -> None:
        """The batches that a run reports cover its target, whatever an index has."""
        state, reported = self.watch.state, Offsets()
        for batch in process.result.batches:
            plan, decision = state.plans[batch.batch], state.manifests[batch.batch]
            if (batch.offsets, batch.records, batch.objects) != (plan.claim, decision.records, len(decision.objects)):
                self.watch.fail(f"I4 run {process.key} reported batch {batch}, which differs from its documents")
            reported |= batch.offsets
        lost = [marker.lost_in(g) for g in range(marker.generation + 1)]
        left = process.result.target - reported
        if left and not any(left <= some for some in lost):
            self.watch.fail(f"I4 run {process.key} reported success, and no batch that it reported has {left}")

    def _check_window(self, process: Process) -> None:
        """A successful run over a window has landed its offsets, or another run has claimed them."""
        if process.key not in self.due:
            return
        topic_id, due = self.due[process.key]
        marker = self.watch.state.marker
        if self.environment.replaced:
            return  # times of records have changed
        if marker is None or topic_id != marker.topic_id or topic_id != self.live_topic_id:
            return
        # If retention has deleted the first record of a window, its start is unknown.
        due &= self.still_due(process.key)
        if missing := due - accounted_for(self.watch.state, marker):
            self.watch.fail(f"I8 run {process.key} succeeded and left {missing} of its window out")

    def due_of(self, window: tuple[int, int]) -> Offsets:
        """The offsets that a run over a window has to land."""
        return self.environment.due(window)

    def still_due(self, key: str) -> Offsets:
        """The same at the end of a run."""
        return self.due_of(self.requests[key]["window"])

    def _hidden(self) -> frozenset[bytes]:
        """Records where leaders have lost others, which count as landed and are in no object."""
        marker, topic_id = self.watch.state.marker, self.kafka.topic_id(TOPIC)
        if not self.environment.replaced or marker is None or marker.topic_id != topic_id:
            return frozenset()
        landed = marker.covered - marker.lost
        for batch, accepted in self.watch.state.amended.items():
            slices = {s.id: s.partition for s in self.watch.state.plans[batch].slices}
            for entry in self.watch.state.manifests[batch].objects:
                for part in entry.by_slice if entry.key in accepted else ():
                    landed -= Offsets({slices[part.id]: [(part.min_offset, part.max_offset + 1)]})
        in_kafka = self.kafka.all_records()[topic_id]
        return frozenset(
            value
            for _, p, offset in self.environment.replaced
            if (value := in_kafka.get(p, {}).get(offset)) is not None
            and Offsets({p: [(offset, offset + 1)]}) <= landed
            and value not in self.watch.landed
            and not self.kafka.is_optional(topic_id, p, offset)
        )

    @property
    def ever_deleted(self) -> set[str]:
        """Keys of all objects that a user deleted."""
        return {*self.watch.ever_deleted}

    def _check_error(self, process: Process) -> None:
        error = process.error
        if isinstance(error, ForeignObjectError) or (isinstance(error, ControlError) and not self.trim):
            self.watch.fail(f"I2 {process.name} {process.key} found an object that nobody can have written: {error}")
        # A task may end with UploadGone: Spark starts it again.
        if error is not None and process.name != "task" and not isinstance(error, TerminalError | TransientError):
            self.watch.fail(f"I6 {process.name} {process.key} raised an answer of the store: {error!r}")
        if isinstance(error, MissingObjectError) and not any(key in str(error) for key in self.ever_deleted):
            self.watch.fail(f"I4 {process.name} {process.key} misses objects that nobody deleted: {error}")
        if isinstance(error, RecordError) and "from the future" not in str(error):
            self.watch.fail(f"I6 {process.name} {process.key} found a record that it cannot land: {error}")
        if isinstance(error, ConfigurationError) and process.name != "operator":
            self.watch.fail(f"I6 {process.name} {process.key} ended with {error}")

    # -- after the faults ---------------------------------------------------------------------------------------------

    def run_to_end(self, process: Process) -> Process:
        """Run a process to its end; remaining processes may run in between."""
        for _ in range(_ENOUGH):
            if process.finished:
                return process
            others = self.scheduler.actors
            actor = self.rng.choice(others) if self.rng.random() < 0.2 else process
            self._advance(actor)
            for other in [a for a in others if a.name in ("task", "job")]:
                self._advance(other)
        self.watch.fail(f"I6 {process.name} {process.key} makes no progress")
        return process

    def _drain(self) -> None:
        worlds = (self, *self.above)
        self.environment.end_transactions()
        self.environment.grow_past_lost_records()
        for actor in self.scheduler.actors:
            actor.asleep_until = 0
        for world in worlds:
            world.faulty = False
        for world in worlds:
            world.land_the_rest("final")
        for world in self.above:
            world.after_the_rest()
        for world in worlds:
            for key in sorted(world.requests):
                world.repeat(key)
        while self.scheduler.actors or any(p.late for world in worlds for p in world.senders):
            if not self.scheduler.actors or self.rng.random() < 0.3:
                for world in worlds:
                    world.apply_late_request()
            else:
                self._advance(self.rng.choice(self.scheduler.actors), 50)
        for world in worlds:
            world.end()

    def after_the_rest(self) -> None:
        """Let people do what they do behind the last run."""

    def end(self) -> None:
        """Repair what may be repaired at any time, then check all that is in the bucket."""
        if self.indexed:
            self.run_to_end(self.spawn("operator", lambda p: repair_log(self, p, every_document=True)))
        if self.layout is NAMED:
            self.run_to_end(self.spawn("operator", repair_chunk_markers))
        self._check_the_end()

    def _is_open(self, batch: int) -> bool:
        return not self.watch.state.is_resolved(batch)

    def land_the_rest(self, name: str) -> None:
        """Start new runs, with the documented remedies, until neither these nor ``recover`` find anything to land.

        Args:
            name: of the runs.
        """
        offsets, outcome = "incremental", ""
        for i in range(90):
            owed, planned = self._owed(), set(self.watch.state.plans)
            driver = self.run_to_end(self.start_driver(f"{name}-{i:02d}", offsets))
            outcome = "" if driver.result is None else driver.result.status
            if outcome == "empty" and (left_out := owed & self._owed()):
                self.watch.fail(f"I6 left out: run {driver.key} found nothing to land, although {left_out} is owed")
            if self.rng.random() < 0.5:
                self.apply_late_request()
            if outcome == "empty":
                if offsets == "recover":
                    # Batches planned after it started belong to other runs.
                    if left := [n for n in sorted(planned) if self._is_open(n)]:
                        self.watch.fail(f"I6 batches {left} are left open")
                    return
                offsets = "recover"
            elif self.find_remedy(driver):
                continue
            elif isinstance(driver.error, TopicRecreatedError):
                self.run_to_end(self.spawn("operator", reset))
            elif isinstance(driver.error, DataLossError) and "the log was truncated (un" in str(driver.error):
                if "starting_offsets" in str(driver.error):
                    self._check_refusal(driver)
                    return
                self.run_to_end(self.spawn("operator", lambda p: give_up_replaced(self, p)))
            elif isinstance(driver.error, DataLossError):
                self.on_data_loss = "skip"
            elif isinstance(driver.error, BatchLossError):
                self.run_to_end(self.spawn("operator", lambda p: accept_losses(self, p)))
            elif outcome != "ok" and not isinstance(driver.error, TransientError | ControlError):
                self.watch.fail(f"I6 run {driver.key} ended with {driver.error!r}")
        self.watch.fail(f"I6 offsets are left after 90 runs, the last one ended {outcome or driver.error!r}")

    def find_remedy(self, driver: Process) -> bool:
        """Do what the error of a run needs, if that is special to this pipeline; whether it was done."""
        return False

    def _check_refusal(self, process: Process) -> None:
        """A log is refused for good only if a leader has lost landed records of it."""
        marker, topic_id = self.watch.state.marker, self.kafka.topic_id(TOPIC)
        assert marker is not None
        lost = Offsets()
        for t, p, offset in self.environment.replaced:
            if t == topic_id:
                lost |= Offsets({p: [(offset, offset + 1)]})
        if not lost & marker.covered:
            self.watch.fail(f"I11 run {process.key} was refused, although no landed record was lost: {process.error}")
        self.counts["pipelines that ended at a log without landed records"] += 1

    def _owed(self) -> Offsets:
        """Offsets that every incremental run has to land: debt, and the claims of open tail plans."""
        state = self.watch.state
        owed = Offsets() if state.marker is None else state.marker.debt
        for batch, plan in state.plans.items():
            if plan.tail and self._is_open(batch):
                owed |= plan.claim
        return owed

    def repeat(self, key: str) -> None:
        """Repeat a run, as when somebody clears it in Airflow."""
        allowed: tuple[type[KafkaS3Error], ...] = (BatchLossError, MissingObjectError, RecordError)
        if key not in self.landed or self.environment.replaced:
            allowed += (RunSupersededError, DataLossError)
        if self.trim:
            allowed += (ControlError,)
        driver = self.run_to_end(self.start_driver(key))
        if driver.error is not None and not isinstance(driver.error, allowed):
            self.watch.fail(f"I6 run {key} was repeated and ended with {driver.error!r}")

    def _check_the_end(self) -> None:
        state = self.watch.state
        assert state.marker is not None
        for plan, decision in state.committed():
            if state.is_resolved(plan.batch):
                self.watch.check_batch(plan, decision, self.watch.exists)
        if not self.trim:
            check_landed(
                self.bucket,
                self.kafka,
                is_optional=self.is_optional_at_end,
                deleted=self.watch.deleted,
                topics_dir=self.address.topics_dir,
                pipeline=self.address.pipeline,
                **self.to_compare(),
            )
        if self.layout is NAMED:
            self.counts["marker files"] += self.watch.check_chunk_markers(self.bucket.objects)
        if self.indexed:
            self.counts["indexes"] += len(state.indexes)
            self._check_indexes(state.marker)
        self.counts["batches"] += len(state.plans)
        self.counts["objects at the end"] += sum(self.watch.batch_of(key) is not None for key in self.bucket.objects)

    @property
    def is_optional_at_end(self) -> Callable[[str, int, int], bool]:
        """Whether the topic may lack an offset at the end."""
        return self.kafka.is_optional

    def to_compare(self) -> dict[str, Any]:
        """What the bucket is compared with, beside the records in Kafka."""
        # Records that a leader has lost are in no log any more, and others have their offsets.
        return {"source": None} if self.environment.replaced else {"times": self.kafka.all_times()}

    def _check_indexes(self, marker: Marker) -> None:
        """After the repair every index that can exist does."""
        for first, end in marker.resolved:
            for size in INDEX_SIZES:
                for last in range(size, end, size):
                    name = addresses.index_key(self.address.prefix, last - size + 1, size)
                    if last - size + 1 >= first and name not in self.bucket.objects:
                        self.watch.fail(f"I9 index {name} is missing")
