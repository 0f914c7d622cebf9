"""The errors of this package, grouped by what the caller should do about them.

::

    KafkaS3Error
    ├── TerminalError                 trying again cannot help: a person has to act
    │   ├── ConfigurationError        (also ValueError) a parameter or connection is wrong
    │   │   ├── TopicNotFoundError
    │   │   ├── BucketNotFoundError
    │   │   ├── TableNotFoundError    a catalog has no such table, or no such database
    │   │   ├── AccessDeniedError
    │   │   ├── UnsupportedStoreError     the store ignores conditional writes
    │   │   ├── PipelineConflictError     another pipeline owns the topic
    │   │   └── NothingToReplayError      no record is in the selection of a replay
    │   ├── RecordError               one record cannot be written
    │   │   ├── SchemaNotFoundError       the schema registry does not have its schema
    │   │   └── SparkTimestampError       Spark cannot represent its timestamp: it is read without Spark
    │   ├── DataLossError             offsets that have to be read are gone from Kafka
    │   ├── BatchLossError            a decided batch cannot be completed any more
    │   ├── TopicRecreatedError       the topic is not the one the offsets belong to
    │   ├── RunSupersededError        the run's offsets belong to a closed generation
    │   ├── ReplayOvertakenError      another process sends the same replay
    │   ├── MissingObjectError        an object of a committed batch is gone
    │   ├── ForeignObjectError        there is another object at a key of a batch
    │   ├── TableRolledBackError      a table of Iceberg was set back to an earlier snapshot
    │   └── ControlError              the control documents cannot be trusted
    │       ├── MarkerMissingError
    │       ├── CorruptControlError
    │       ├── LogTamperedError
    │       └── UnsupportedFormatError
    └── TransientError                try again later; nothing has to be undone
        ├── ThrottledError            the server demands fewer requests
        ├── UnknownOutcomeError       the request may have been applied: read back before judging
        ├── KafkaUnavailableError
        ├── RegistryUnavailableError  the schema registry gave no usable answer
        ├── CatalogUnavailableError   the catalog of a table gave no usable answer
        └── SparkJobError

    PreconditionFailed, ConditionalConflict, UploadGone, UploadRefused, KeyAbsent, RangeBeyondEnd
        responses to one request; storage and the commit protocol handle them, they never reach a user

Every error can be pickled, because Spark ships errors between processes. Its message contains what happened, to which
topic, partition, offset or object, and what to do about it. Its ``kind`` identifies the class in documents and in JSON
output; :func:`error_of_kind` makes an error from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

__all__ = [
    "AccessDeniedError",
    "BatchLossError",
    "BucketNotFoundError",
    "CatalogUnavailableError",
    "ConditionalConflict",
    "ConfigurationError",
    "ControlError",
    "CorruptControlError",
    "DataLossError",
    "ForeignObjectError",
    "KafkaS3Error",
    "KafkaUnavailableError",
    "KeyAbsent",
    "LogTamperedError",
    "MarkerMissingError",
    "MissingObjectError",
    "NothingToReplayError",
    "PipelineConflictError",
    "PreconditionFailed",
    "RangeBeyondEnd",
    "RecordError",
    "RegistryUnavailableError",
    "ReplayOvertakenError",
    "RunSupersededError",
    "SchemaNotFoundError",
    "SparkJobError",
    "SparkTimestampError",
    "StoreResponse",
    "TableNotFoundError",
    "TableRolledBackError",
    "TerminalError",
    "ThrottledError",
    "TopicNotFoundError",
    "TopicRecreatedError",
    "TransientError",
    "UnknownOutcomeError",
    "UnsupportedFormatError",
    "UnsupportedStoreError",
    "UploadGone",
    "UploadRefused",
    "error_of_kind",
    "message_of",
    "raise_first",
]

_NOTED: Final = 10
"""Errors that :func:`raise_first` adds as notes to the first one; the others are only counted."""


def message_of(error: BaseException) -> str:
    """The text of an error and its notes."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


class KafkaS3Error(Exception):
    """Base of every error of this package.

    Attributes:
        kind: identifies the class in stored documents and in JSON output. It never changes, and is never used again for
            another class.
    """

    kind: ClassVar[str] = "kafka_s3"


class TerminalError(KafkaS3Error):
    """Trying again cannot help: a person has to act."""

    kind = "terminal"


class ConfigurationError(TerminalError, ValueError):
    """A parameter, connection or setting is wrong; nothing was changed."""

    kind = "configuration"


class TopicNotFoundError(ConfigurationError):
    """The topic does not exist.

    Attributes:
        cluster_id: ID of the Kafka cluster that has no such topic; None if it is unknown.
    """

    kind = "topic_not_found"
    cluster_id: str | None = None


class BucketNotFoundError(ConfigurationError):
    """The bucket does not exist at this endpoint."""

    kind = "bucket_not_found"


class AccessDeniedError(ConfigurationError):
    """The store, Kafka or the schema registry refused the credentials or the action."""

    kind = "access_denied"


class UnsupportedStoreError(ConfigurationError):
    """The store ignores conditional writes, so concurrent runs could lose records, or it truncates listings."""

    kind = "unsupported_store"


class PipelineConflictError(ConfigurationError):
    """Another pipeline already owns the topic under this ``topics_dir``, or this one has released it."""

    kind = "pipeline_conflict"


class RecordError(TerminalError):
    """One record cannot be written in the configured way; the message names topic, partition and offset."""

    kind = "record"


class SchemaNotFoundError(RecordError):
    """A record names a schema that the schema registry does not have: the record cannot be decoded."""

    kind = "schema_not_found"


class SparkTimestampError(RecordError):
    """Spark cannot represent a record's timestamp, though Kafka can; the driver reads the slice without Spark."""

    kind = "spark_timestamp"


class DataLossError(TerminalError):
    """Offsets that have to be read are gone from Kafka."""

    kind = "data_loss"


class BatchLossError(TerminalError):
    """A decided batch cannot be completed: its upload expired and Kafka no longer has the same records."""

    kind = "batch_loss"


class TopicRecreatedError(TerminalError):
    """The topic was deleted and created again: its offsets do not continue the stored ones."""

    kind = "topic_recreated"


class RunSupersededError(TerminalError):
    """The run's offsets belong to an earlier incarnation of the topic and were never committed."""

    kind = "run_superseded"


class ReplayOvertakenError(TerminalError):
    """Another process sends the same replay into Kafka, and continues where this one was."""

    kind = "replay_overtaken"


class NothingToReplayError(ConfigurationError):
    """No record is in the selection of a replay. Nothing was sent, and the id of the replay is free."""

    kind = "nothing_to_replay"


class MissingObjectError(TerminalError):
    """Objects of a committed batch are gone from the bucket."""

    kind = "missing_object"


class ForeignObjectError(TerminalError):
    """There is an object at a key of a batch that this batch did not write; it is never overwritten."""

    kind = "foreign_object"


class TableNotFoundError(ConfigurationError):
    """A catalog has no such table, or no such database."""

    kind = "table_not_found"


class TableRolledBackError(TerminalError):
    """A table of Iceberg was set back to a snapshot without batches that its property says are in."""

    kind = "table_rolled_back"


class ControlError(TerminalError):
    """The control documents of a pipeline cannot be trusted; nothing was changed."""

    kind = "control"


class MarkerMissingError(ControlError):
    """Batches exist but the marker does not."""

    kind = "marker_missing"


class CorruptControlError(ControlError):
    """A control document is not valid: broken JSON, checksum, type or range."""

    kind = "corrupt_control"


class LogTamperedError(ControlError):
    """A document of the batch log was deleted: a batch number that was used is free again."""

    kind = "log_tampered"


class UnsupportedFormatError(ControlError):
    """A control document was written by a newer version of this package."""

    kind = "unsupported_format"


class TransientError(KafkaS3Error):
    """Trying again later may help; nothing has to be undone.

    Attributes:
        repeatable: whether a :class:`~airflow_provider_kafka_s3.retry.Retrier` may repeat the request; False if its
            repetitions are exhausted already. A later run of the task may still succeed.
    """

    kind = "transient"
    repeatable: bool = True


class ThrottledError(TransientError):
    """The server limits the rate of requests.

    Attributes:
        retry_after: seconds to wait before the next request, as the server demands; None if it gives no number.
    """

    kind = "throttled"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after)
        self.retry_after = retry_after

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownOutcomeError(TransientError):
    """A request got no usable response: it may or may not have been applied, or be applied later."""

    kind = "unknown_outcome"


class KafkaUnavailableError(TransientError):
    """No broker responded in time."""

    kind = "kafka_unavailable"


class RegistryUnavailableError(TransientError):
    """The schema registry gave no usable answer. This never decides what happens to a record."""

    kind = "registry_unavailable"


class CatalogUnavailableError(TransientError):
    """The catalog of a table gave no usable answer: a commit may have landed or not, and the next one looks first."""

    kind = "catalog_unavailable"


class SparkJobError(TransientError):
    """The Spark job ended without a decision; the message contains the end of the driver's output."""

    kind = "spark_job"


class StoreResponse(KafkaS3Error):
    """Base of the responses to one request that storage and the commit protocol handle."""

    kind = "store_response"


class PreconditionFailed(StoreResponse):
    """412, or 404 to If-Match: the key is not in the expected state. The cause may be an earlier write of this run."""

    kind = "precondition_failed"


class ConditionalConflict(StoreResponse):
    """409: a concurrent change is in progress on this key."""

    kind = "conditional_conflict"


class UploadGone(StoreResponse):
    """404 NoSuchUpload: the upload was completed or aborted, or has expired; the status does not show which."""

    kind = "upload_gone"


class UploadRefused(StoreResponse):
    """The store does not accept the parts (InvalidPart, EntityTooSmall); a repetition may still succeed."""

    kind = "upload_refused"


class KeyAbsent(StoreResponse):
    """404: there is no object at the key."""

    kind = "key_absent"


class RangeBeyondEnd(StoreResponse):
    """416: the requested range begins behind the end of the object."""

    kind = "range_beyond_end"


def _classes(base: type[KafkaS3Error]) -> Iterator[type[KafkaS3Error]]:
    yield base
    for derived in base.__subclasses__():
        yield from _classes(derived)


_BY_KIND: Final = {cls.kind: cls for cls in _classes(KafkaS3Error)}


def error_of_kind(kind: str, message: str) -> KafkaS3Error:
    """The error that a document holds as its kind and message.

    Args:
        kind: the ``kind`` of its class. An unknown one, written by another version, makes a :class:`SparkJobError`.
        message: of the error.
    """
    return _BY_KIND.get(kind, SparkJobError)(message)


def raise_first(errors: Sequence[KafkaS3Error]) -> None:
    """Raise the most severe error, with the others as its notes; without errors, return.

    ``ForeignObjectError`` comes first, then the other terminal errors, then transient ones.
    """
    if not errors:
        return
    first, *others = sorted(
        errors, key=lambda e: 0 if isinstance(e, ForeignObjectError) else 1 if isinstance(e, TerminalError) else 2
    )
    for error in others[:_NOTED]:
        first.add_note(message_of(error))
    if len(others) > _NOTED:
        first.add_note(f"and {len(others) - _NOTED:,} more errors")
    raise first
