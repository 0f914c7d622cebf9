"""What a replay is asked to send, and what it refuses before it sends anything."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents.addresses import validate_replay
from airflow_provider_kafka_s3.documents.codec import MAX_PARTITION
from airflow_provider_kafka_s3.documents.replay import ReplayPlan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, DataLossError
from airflow_provider_kafka_s3.kafka.offsets import TopicInfo
from airflow_provider_kafka_s3.layout.keys import validate_topic
from airflow_provider_kafka_s3.messages import few
from airflow_provider_kafka_s3.reading.record_times import window

__all__ = ["Missing", "ReplayRequest", "Writer", "new_plan", "require_acknowledged", "require_target"]

Missing: TypeAlias = Literal["key", "headers", "timestamp", "order", "bytes", "nulls", "lost", "gaps"]
"""What records may be sent without, if it is acknowledged: parts that the objects do not keep; ``order``: objects of
several folders do not keep the order of a Kafka partition; ``bytes``: a sink has written JSON documents again, which
are equal but for spaces and the form of numbers; ``nulls``: null values that were left out; ``lost``: offsets and
objects that were accepted as lost or have expired; ``gaps``: offsets that are not landed yet."""
Writer: TypeAlias = Literal["confluent", "deviantart"]
"""The sink that wrote the objects, instead of this package: Confluent's for S3, or DeviantArt's."""

_NAMED: Final = get_args(Missing)


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """A replay of landed records into a topic.

    Attributes:
        replay: its id. A run with the id of a replay that has ended sends nothing; one that was interrupted continues.
        target: the topic, which exists.
        at: number of the last batch; None: the latest complete state.
        since: records at or after this time.
        until: records before this time.
        offsets: ranges ``[start, end)`` per Kafka partition.
        partitions: only these Kafka partitions.
        key: only records with this key.
        generation: of the topic; None: the latest one.
        without: what is known to be missing, and accepted.
        same_topic: allow the topic that the records were landed from as target: it then has them twice.
        keeps_partitions: send to the same partition numbers; False: to that of the key's hash.
        records_per_second: of all partitions together, at most; None: no limit.
        written_by: the sink that wrote the objects, if it was not this package.
        folders: only objects in these folders of that sink's partitioner, such as ``year=2026/month=01``.
    """

    replay: str
    target: str
    at: int | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    offsets: Mapping[int, tuple[int, int]] | None = None
    partitions: tuple[int, ...] | None = None
    key: bytes | None = None
    generation: int | None = None
    without: tuple[Missing, ...] = ()
    same_topic: bool = False
    keeps_partitions: bool = True
    records_per_second: float | None = None
    written_by: Writer | None = None
    folders: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        validate_replay(self.replay)
        validate_topic(self.target)
        if unknown := set(self.without) - set(get_args(Missing)):
            raise ConfigurationError(
                f"without={sorted(unknown)}: use {', '.join(get_args(Missing))}; values and offsets cannot be left out"
            )
        if self.written_by is not None and self.written_by not in get_args(Writer):
            raise ConfigurationError(f"written_by={self.written_by!r}: use {', '.join(get_args(Writer))}, or None")
        if self.folders and self.written_by is None:
            raise ConfigurationError(
                f"folders={self.folders} select objects of other sinks, by written_by; use since, until, offsets or "
                f"partitions"
            )
        if self.records_per_second is not None and not 0 < self.records_per_second < math.inf:
            raise ConfigurationError(f"records_per_second={self.records_per_second} must be a number above 0, or None")
        window(self.since, self.until)
        for partition, (start, end) in (self.offsets or {}).items():
            if not (0 <= partition <= MAX_PARTITION and 0 <= start < end):
                raise ConfigurationError(f"offsets: {partition}: [{start}, {end}) is no range of offsets")

    @property
    def settings(self) -> dict[str, str]:
        """What decides which records are sent, and how; for the plan."""
        low, high = window(self.since, self.until)
        return {
            "since": str(low),
            "until": str(high),
            "offsets": str(sorted((self.offsets or {}).items())),
            "partitions": str(sorted(self.partitions) if self.partitions is not None else None),
            "key": self.key.hex() if self.key is not None else "None",
            "generation": str(self.generation),
            "without": ",".join(sorted(self.without)),
            "keeps_partitions": str(self.keeps_partitions),
            "written_by": str(self.written_by),
            "folders": ",".join(sorted(self.folders)),
        }


def require_target(log: TopicLog, request: ReplayRequest) -> None:
    """Refuse the landed topic as target, unless it is allowed.

    Raises:
        ConfigurationError: it is the target.
    """
    if request.target == log.topic and not request.same_topic:
        raise ConfigurationError(
            f"topic {log.topic!r} is the one that was landed, so it may still have these records, and would then have "
            f"them twice. Nothing was sent. Choose another target, or allow this one with same_topic (--same-topic)"
        )


def require_acknowledged(log: TopicLog, request: ReplayRequest, missing: Mapping[str, str]) -> None:
    """Refuse records that lack more than the request accepts.

    Args:
        log: of the landed topic.
        request: the replay.
        missing: what the records lack, and why: values of :data:`Missing`, or ``value``.

    Raises:
        ConfigurationError: they lack what ``without`` does not name, or what the selection needs.
        DataLossError: they lack what was accepted as lost or has expired, and nothing else.
    """
    if "value" in missing:
        raise ConfigurationError(
            f"topic {log.topic!r} cannot be replayed: its objects do not keep the values as Kafka had them "
            f"({missing['value']}). Nothing was sent"
        )
    needed = {
        "key": request.key is not None or not request.keeps_partitions,
        "timestamp": request.since is not None or request.until is not None,
    }
    if bad := [name for name, is_needed in needed.items() if is_needed and name in missing]:
        raise ConfigurationError(
            f"the selection of replay {request.replay!r} needs what the objects of topic {log.topic!r} do not keep: "
            f"{'; '.join(f'{name} ({missing[name]})' for name in bad)}. Nothing was sent. Select by offsets or "
            f"partitions"
        )
    named = [name for name in _NAMED if name in missing and name not in request.without]
    if named:
        kind = DataLossError if named == ["lost"] else ConfigurationError
        raise kind(
            f"records of topic {log.topic!r} would be sent without {few(named)}: "
            f"{'; '.join(f'{name}: {missing[name]}' for name in named)}. Nothing was sent. If that is right, say so: "
            f"without={tuple(named)} ({' '.join(f'--without {name}' for name in named)})"
        )


def new_plan(log: TopicLog, request: ReplayRequest, target: TopicInfo, **chosen: Any) -> ReplayPlan:
    """The plan of a replay that has not begun, bound to its target as it is now.

    Args:
        log: the control documents of the topic.
        request: the replay.
        target: the topic that records are sent to.
        chosen: what is sent, as fields of the plan.
    """
    return ReplayPlan(
        replay=request.replay,
        nonce=uuid.uuid4().hex[:8],
        topic=log.topic,
        target=request.target,
        cluster_id=target.cluster_id or "",
        target_id=target.topic_id or "",
        settings=request.settings,
        **chosen,
    )
