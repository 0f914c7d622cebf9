"""How a run works: settings that decide neither the names nor the content of objects."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from msgspec import Meta

from airflow_provider_kafka_s3.config.layout import PartSize
from airflow_provider_kafka_s3.config.partitioners import require_timezone
from airflow_provider_kafka_s3.config.sizes import MIB
from airflow_provider_kafka_s3.config.values import Value, require

__all__ = ["Limits", "Upload", "Window"]

Records = Annotated[int, Meta(ge=1, description="records")]


class Limits(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a run, a batch and a Spark task take; all count offsets.

    Attributes:
        records_per_run: of an incremental run at most, shared evenly by the partitions; None: all there is.
        records_per_batch: of one commit at most; a run may need several. None: no limit.
        records_per_slice: that one Spark task reads at most; smaller means more tasks and smaller objects.
    """

    records_per_run: Records | None = None
    records_per_batch: Records | None = 100_000_000
    records_per_slice: Records = 5_000_000


class Upload(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a Spark task uploads.

    Attributes:
        part_size: bytes of one part, 5 MiB to 512 MiB. It is pinned in the plan of a batch, since the parts of an
            object are part of its manifest.
        threads: that upload parts beside the one that reads and encodes.
        memory: bytes of buffers of one task; what goes beyond them waits in temporary files.
        spill_dir: folder on the executors for these files; None: the executor's temporary folder.
    """

    part_size: PartSize = 8 * MIB
    threads: Annotated[int, Meta(ge=1)] = 2
    memory: Annotated[int, Meta(ge=MIB, description="bytes")] = 64 * MIB
    spill_dir: str | None = None


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
