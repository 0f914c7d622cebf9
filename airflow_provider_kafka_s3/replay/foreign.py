"""Chooses and reads objects that other software wrote: Confluent's or DeviantArt's S3 sink.

No document describes them, so a replay pins their keys and their ETags, and is complete when the sink has stopped.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
import pyarrow as pa

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.codec import corrupt
from airflow_provider_kafka_s3.documents.owner import read_owner
from airflow_provider_kafka_s3.documents.replay import ForeignReplayObject, PinnedObject, ReplayPlan
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    ForeignObjectError,
    MissingObjectError,
    NothingToReplayError,
)
from airflow_provider_kafka_s3.kafka.offsets import TopicInfo
from airflow_provider_kafka_s3.messages import few
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.reading.foreign import ForeignObject, compression_of, list_foreign_objects
from airflow_provider_kafka_s3.reading.lines import expanded, lines_of
from airflow_provider_kafka_s3.reading.record import Records
from airflow_provider_kafka_s3.reading.remote_file import RemoteFile
from airflow_provider_kafka_s3.replay.request import ReplayRequest, Writer, new_plan, require_acknowledged
from airflow_provider_kafka_s3.replay.source import without_first

__all__ = ["ForeignReplaySource", "plan_foreign_replay"]

_NOTES: Final[Mapping[Writer, str]] = {
    "confluent": "value: one with newlines in an object of bytes is sent as several records",
    "deviantart": "value: one that ends with a newline is sent without it",
}
_NOT_KEPT: Final = "the sink keeps none in its objects"


def plan_foreign_replay(log: TopicLog, request: ReplayRequest, target: TopicInfo) -> ReplayPlan:
    """Choose the objects of a replay by their names, and the indices of DeviantArt's sink.

    Args:
        log: of the topic, below the prefix of the sink's keys. It holds the replay's documents only.
        request: the replay, whose ``written_by`` names the sink.
        target: the topic that records are sent to.

    Raises:
        ConfigurationError: there are none, their format does not keep records, they lack what ``without`` does not
            name, or the selection needs what is not known of them.
    """
    assert request.written_by is not None, "they are of another sink"
    unknown = {
        "at": request.at,
        "since": request.since,
        "until": request.until,
        "offsets": request.offsets,
        "generation": request.generation,
    }
    if names := [name for name, value in unknown.items() if value is not None]:
        raise ConfigurationError(
            f"replay {request.replay!r} selects by {few(names)}, which objects of other sinks do not have. Nothing was "
            f"sent. Select by partitions, folders or key"
        )
    nulls: dict[int, str] = {}
    listed = list_foreign_objects(
        log.store,
        topics_dir=log.topics_dir,
        topic=log.topic,
        layout=request.written_by,
        # A pipeline that has taken over writes objects with the same names.
        before=_first_offsets(log),
        on_alone=nulls.setdefault,
    )
    chosen = {
        partition: selected
        for partition, objects in listed.items()
        if request.partitions is None or partition in request.partitions
        if (selected := [one for one in objects if _is_in(one, request.folders)])
    }
    if not chosen:
        raise NothingToReplayError(
            f"there is no object of topic {log.topic!r} with a name of {request.written_by}'s sink in the selection "
            f"at {log.store.url(log.topics_dir)}. Nothing was sent. Compare topics_dir, topic, partitions and folders "
            f"with the keys there"
        )
    has_keys = request.written_by == "confluent" and all(
        one.beside.get("keys", "").removesuffix(".gz").endswith(".keys.bin") for some in chosen.values() for one in some
    )
    require_acknowledged(log, request, _missing(log, request, chosen, nulls, has_keys=has_keys))
    pinned_keys: dict[str, PinnedObject] = {}
    if has_keys:
        named = [one.beside["keys"] for some in chosen.values() for one in some]
        pinned_keys = dict(zip(named, in_threads(lambda key: _pinned(log, key), named, threads=16), strict=True))
    return new_plan(
        log,
        request,
        target,
        batch=0,
        partitions={},
        foreign={
            partition: tuple(
                ForeignReplayObject(
                    values=PinnedObject(key=one.key, etag=one.etag, size=one.size),
                    records=one.records,
                    keys=pinned_keys[one.beside["keys"]] if has_keys else None,
                )
                for one in some
            )
            for partition, some in chosen.items()
        },
        notes=(_NOTES[request.written_by],),
    )


def _first_offsets(log: TopicLog) -> dict[int, int] | None:
    """Where the pipeline begins that lands the topic into the same folders; None: there is none.

    The documents of the replay may be those of another pipeline.
    """
    stored = read_owner(log.store, log.address.owner_key, topics_dir=log.topics_dir)
    if stored is None:
        return None
    of_owner = TopicLog(log.store, msgspec.structs.replace(log.address, pipeline=stored[0].pipeline))
    first = of_owner.read_plan(1)
    # One that has released the topic has landed nothing; its log says so before the owner document does.
    if first is None or of_owner.released() is not None:
        return None
    if first.start is None:
        raise corrupt(of_owner.plan_url(1), "it is the first plan, and has no offsets where the pipeline begins")
    return first.start


def _is_in(one: ForeignObject, folders: tuple[str, ...]) -> bool:
    return not folders or any(f"{one.folders}/".startswith(f"{folder.strip('/')}/") for folder in folders)


def _pinned(log: TopicLog, key: str) -> PinnedObject:
    info = log.store.head(key)
    if info is None:
        raise MissingObjectError(f"an object was listed and is gone. Nothing was sent: {log.store.url(key)}")
    return PinnedObject(key=key, etag=info.etag, size=info.size)


def _missing(
    log: TopicLog,
    request: ReplayRequest,
    chosen: dict[int, list[ForeignObject]],
    nulls: dict[int, str],
    *,
    has_keys: bool,
) -> dict[str, str]:
    """What the records lack, and why."""
    missing = {"headers": _NOT_KEPT, "timestamp": _NOT_KEPT}
    if not has_keys:
        missing["key"] = "there are no objects of keys in bytes beside all of them"
    for foreign_object in itertools.chain.from_iterable(chosen.values()):
        if foreign_object.format not in ("json", "bytes"):
            missing["value"] = f"{log.store.url(foreign_object.key)} is no object of lines"
        elif foreign_object.format == "json":
            missing["bytes"] = f"the sink has read and written the documents of {log.store.url(foreign_object.key)}"
    for partition, key in nulls.items():
        if request.partitions is None or partition in request.partitions:
            missing["nulls"] = f"{log.store.url(key)} has keys or headers of null values, which are not read"
    if request.written_by == "confluent":
        for partition, objects in chosen.items():
            if len({one.folders for one in objects}) > 1:
                missing.setdefault("order", f"objects of partition {partition} are in several folders, without offsets")
    return missing


class ForeignReplaySource:
    """The records of a planned replay of objects of other software, always the same ones in the same order.

    Args:
        log: as for :func:`plan_foreign_replay`, for this thread alone.
        request: the replay.
        plan: as it is stored.
        on_read: called for each lines that are read, whether they are sent or not.
    """

    def __init__(
        self, log: TopicLog, request: ReplayRequest, plan: ReplayPlan, *, on_read: Callable[[], None] = lambda: None
    ) -> None:
        self._store = log.store
        self._on_read = on_read
        self._key = request.key
        self._plan = plan

    def records(self, partition: int, skip: int = 0) -> Iterator[Records]:
        """The records of a Kafka partition without the first ones, some at a time."""
        objects = self._plan.foreign[partition]
        if self._key is None:
            # Objects that are sent as a whole need not be read again.
            while objects and (count := objects[0].records) is not None and count <= skip:
                objects, skip = objects[1:], skip - count
        pieces: Iterator[Records] = itertools.chain.from_iterable(self._object(one, partition) for one in objects)
        if self._key is not None:
            pieces = (Records.of(one for one in records if one.key == self._key) for records in pieces)
        yield from without_first(pieces, skip)

    def _object(self, one: ForeignReplayObject, partition: int) -> Iterator[Records]:
        self._require_counts(one)
        row_keys = None if one.keys is None else itertools.chain.from_iterable(self._rows(one.keys))
        for rows in self._rows(one.values):
            keys = None if row_keys is None else [*itertools.islice(row_keys, len(rows))]
            yield Records([partition] * len(rows), [None] * len(rows), None, keys, rows)

    def _require_counts(self, one: ForeignReplayObject) -> None:
        """Read an object to its end before any of it is sent, if the number of its lines shows what they are."""
        if one.records is None and one.keys is None:
            return
        number = self._count(one.values)
        if one.records not in (None, number):
            raise self._unreadable(
                one.values,
                f"it has {number:,} lines for {one.records:,} records of its index, so values have newlines, and where "
                f"they end is not known",
            )
        if one.keys is not None and (of_keys := self._count(one.keys)) != number:
            more = "more" if of_keys > number else "fewer"
            raise self._unreadable(
                one.values,
                f"the object of its keys has {more} keys ({of_keys:,} lines for {number:,}), so some have newlines",
            )

    def _count(self, pinned: PinnedObject) -> int:
        return sum(map(len, self._rows(pinned)))

    def _rows(self, pinned: PinnedObject) -> Iterator[list[bytes]]:
        """Lines of an object."""
        file = RemoteFile(functools.partial(self._get, pinned), pinned.size)
        try:
            for rows in lines_of(expanded(file, compression_of(pinned.key)), b"\n"):
                self._on_read()
                yield rows
        except (ValueError, OSError, EOFError, zlib.error, pa.ArrowException) as e:
            raise self._unreadable(pinned, str(e)) from e

    def _get(self, pinned: PinnedObject, start: int, end: int) -> bytes:
        stored = self._store.get(pinned.key, start=start, end=end)
        if stored is None:
            raise MissingObjectError(
                f"an object of replay {self._plan.replay!r} is gone. What was sent before it is known: bring it back, "
                f"and repeat the replay: {self._store.url(pinned.key)}"
            )
        if stored.etag != pinned.etag or len(stored.body) != end - start:
            raise self._unreadable(pinned, "it was written again since the replay was planned")
        return stored.body

    def _unreadable(self, pinned: PinnedObject, why: str) -> ForeignObjectError:
        return ForeignObjectError(
            f"an object of replay {self._plan.replay!r} cannot be read: {why}. The records from there on were not "
            f"sent. Look at the object, which another sink wrote: {self._store.url(pinned.key)}"
        )
