"""How a run works: settings that decide neither the names nor the content of objects."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from airflow_provider_kafka_s3.config.layout import PartSize
from airflow_provider_kafka_s3.config.partitioners import require_timezone
from airflow_provider_kafka_s3.config.sizes import MIB
from airflow_provider_kafka_s3.config.stored import (
    ENCRYPTIONS,
    CannedAcl,
    Encryption,
    ObjectTags,
    OnTagError,
    StorageClass,
)
from airflow_provider_kafka_s3.config.values import Value, make_value, require

__all__ = ["Limits", "Seconds", "Upload", "Window", "parse_upload", "stored_options"]

Records = Annotated[int, Meta(ge=1, description="records")]
Seconds = Annotated[float, Meta(ge=0, description="seconds")]


class Limits(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a run, a batch and a Spark task take; all count offsets.

    Attributes:
        records_per_run: of an incremental run at most, shared evenly by the partitions; None: all there is.
        records_per_batch: of one commit at most; a run may need several. None: no limit.
        records_per_slice: that one Spark task reads at most; smaller means more tasks and smaller objects. Without
            effect with ``whole_partitions`` of :class:`~airflow_provider_kafka_s3.config.Rotation`.
    """

    records_per_run: Records | None = None
    records_per_batch: Records | None = 100_000_000
    records_per_slice: Records = 5_000_000


class Upload(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a Spark task uploads, and what objects are stored with.

    How the store is reached (endpoint, proxy, acceleration, role), and the secrets of it, are the AWS connection's.

    Attributes:
        part_size: bytes of one part, 5 MiB to 512 MiB. It is pinned in the plan of a batch, since the parts of an
            object are part of its manifest.
        threads: that upload parts beside the one that reads and encodes.
        memory: bytes of the buffers of all open objects of one task together; what goes beyond them waits in a
            temporary file. The same for the rows of open Parquet files. Names and bytes of objects do not depend on it.
        spill_dir: folder on the executors for this file, which takes ``part_size`` for each open object at most, and
            for that of rows, which takes 256 MiB; None: the executor's temporary folder.
        encryption: by the store, of objects and of control documents:
            :class:`~airflow_provider_kafka_s3.config.SseS3`, :class:`~airflow_provider_kafka_s3.config.SseKms` or
            :class:`~airflow_provider_kafka_s3.config.SseCustomer`, a mapping such as ``{"kind": "kms", "key_id":
            "alias/lake"}``, or ``"s3"``, ``"kms"`` or ``"customer"``; None: ``"customer"`` if the AWS connection has a
            key for it, else as the bucket is configured.
        acl: canned access control list of objects. Control documents have it only if it grants rights to nobody but the
            owner of the bucket. None: none is sent.
        storage_class: of objects; control documents have that of the bucket. None: that of the bucket.
        tags: keys and values of the tags of each object, 10 at most. The plan of a batch pins them.
        offset_tags: tag each object with ``startOffset``, ``endOffset`` (of the last record) and ``recordCount`` as
            well, as Kafka Connect does, after it is completed. The plan of a batch pins it.
        on_tag_error: if the store refuses these: ``fail``, and the next run tags the objects; or ``ignore``.
    """

    part_size: PartSize = 8 * MIB
    threads: Annotated[int, Meta(ge=1)] = 2
    memory: Annotated[int, Meta(ge=MIB, description="bytes")] = 64 * MIB
    spill_dir: str | None = None
    encryption: Encryption | None = None
    acl: CannedAcl | None = None
    storage_class: StorageClass | None = None
    tags: dict[str, str] = field(default_factory=dict)
    offset_tags: bool = False
    on_tag_error: OnTagError = "fail"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.object_tags

    @property
    def object_tags(self) -> ObjectTags:
        """The tags of objects, which a plan pins."""
        return ObjectTags(own=tuple(sorted(self.tags.items())), offsets=self.offset_tags)


def parse_upload(given: Upload | Mapping[str, Any] | None) -> Upload:
    """An upload, or a mapping of its fields, in which ``encryption`` may be a ``kind`` alone; None: the defaults.

    Raises:
        ConfigurationError: it is anything else.
    """
    settings: object = given
    if isinstance(given, Mapping) and given.get("encryption") is not None:
        settings = {**given, "encryption": make_value("upload: encryption", ENCRYPTIONS, given["encryption"])}
    return make_value("upload", (Upload,), settings)


def stored_options(upload: Upload) -> tuple[str, ...]:
    """Options with which ``kafka-s3`` stores objects and documents in the same way, for the commands in errors."""
    fields = ("encryption", "acl", "storage_class", "on_tag_error")
    options = {name: value for name in fields if (value := getattr(upload, name)) != getattr(Upload(), name)}
    return ("--upload", msgspec.json.encode(options).decode()) if options else ()


class Window(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a window of time may be.

    Attributes:
        allow_open: whether it may end in the future: it is read to the current end then, and not to its own. Otherwise
            it is an error.
        partition_length: how long a partition of a partitioned DAG is (Airflow 3.2 and later), if not as long as a path
            of the partitioner. Whole days are days of the calendar.
        timezone: IANA name of the zone whose days these are; None: the partitioner's, UTC if it has none.
    """

    allow_open: bool = False
    partition_length: timedelta | None = None
    timezone: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.partition_length is None or self.partition_length > timedelta(0),
            f"partition_length={self.partition_length!r} must be positive",
        )
        if self.timezone is not None:
            require_timezone(self.timezone)
