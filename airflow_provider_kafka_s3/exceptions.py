"""What can go wrong, grouped by what the caller should do about it.

::

    KafkaS3Error
    ├── TerminalError                 trying again cannot help: a person has to act
    │   ├── ConfigurationError        (also ValueError) a parameter or connection is wrong
    │   │   ├── TopicNotFoundError
    │   │   ├── BucketNotFoundError
    │   │   ├── AccessDeniedError
    │   │   ├── UnsupportedStoreError     the store ignores conditional writes
    │   │   └── PipelineConflictError     another pipeline owns the topic
    │   ├── RecordError               one record cannot be written
    │   │   └── SparkTimestampError       Spark cannot tell its timestamp: it is read without Spark
    │   ├── DataLossError             offsets that have to be read are gone from Kafka
    │   ├── BatchLossError            a decided batch cannot be completed any more
    │   ├── TopicRecreatedError       the topic is not the one the offsets belong to
    │   ├── RunSupersededError        the run's offsets belong to a closed generation
    │   ├── MissingObjectError        an object of a committed batch is gone
    │   ├── ForeignObjectError        a key holds an object that is not ours
    │   └── ControlError              the control documents cannot be trusted
    │       ├── MarkerMissingError
    │       ├── CorruptControlError
    │       ├── LogTamperedError
    │       └── UnsupportedFormatError
    └── TransientError                try again later; nothing has to be undone
        ├── ThrottledError            the other side asked us to slow down
        ├── UnknownOutcomeError       the request may have been applied: read back before judging
        ├── KafkaUnavailableError
        └── SparkJobError

    PreconditionFailed, ConditionalConflict, UploadGone, UploadRefused
        answers of one conditional request; the protocol handles them, nobody else sees them

Every error is picklable (Spark ships them between processes) and says what happened, to which topic, partition,
offset or object, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = [
    "AccessDeniedError",
    "BatchLossError",
    "BucketNotFoundError",
    "ConditionalConflict",
    "ConfigurationError",
    "ControlError",
    "CorruptControlError",
    "DataLossError",
    "ForeignObjectError",
    "KafkaS3Error",
    "KafkaUnavailableError",
    "LogTamperedError",
    "MarkerMissingError",
    "MissingObjectError",
    "PipelineConflictError",
    "PreconditionFailed",
    "RecordError",
    "RunSupersededError",
    "SparkJobError",
    "SparkTimestampError",
    "StoreAnswer",
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
    "message_of",
    "raise_first",
]

_NOTED: Final = 10
"""Errors that stand in the notes of the first one; the others are counted."""


def message_of(error: BaseException) -> str:
    """The text of an error and its notes."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


class KafkaS3Error(Exception):
    """Base of every error of this package."""


class TerminalError(KafkaS3Error):
    """Trying again cannot help: a person has to act."""


class ConfigurationError(TerminalError, ValueError):
    """A parameter, connection or setting is wrong; nothing was changed."""


class TopicNotFoundError(ConfigurationError):
    """The broker does not know the topic.

    Attributes:
        cluster_id: of the cluster that has no such topic; None if it is not known.
    """

    cluster_id: str | None = None


class BucketNotFoundError(ConfigurationError):
    """The bucket does not exist at this endpoint."""


class AccessDeniedError(ConfigurationError):
    """The store refused the credentials or the action."""


class UnsupportedStoreError(ConfigurationError):
    """The store ignores conditional writes, so racing runs could lose or duplicate records; or it cuts listings off."""


class PipelineConflictError(ConfigurationError):
    """Another pipeline already owns the topic under this ``topics_dir``."""


class RecordError(TerminalError):
    """One record cannot be written as asked; the message names topic, partition and offset."""


class SparkTimestampError(RecordError):
    """Spark cannot tell a record's timestamp, which is one that Kafka can hold; the job reads the slice itself."""


class DataLossError(TerminalError):
    """Offsets that have to be read are gone from Kafka."""


class BatchLossError(TerminalError):
    """A decided batch cannot be completed: its upload expired and Kafka no longer has the same records."""


class TopicRecreatedError(TerminalError):
    """The topic was deleted and created again: its offsets do not continue the stored ones."""


class RunSupersededError(TerminalError):
    """The run's offsets belong to an earlier incarnation of the topic and were never committed."""


class MissingObjectError(TerminalError):
    """Objects of a committed batch are gone from the bucket."""


class ForeignObjectError(TerminalError):
    """A key of a batch holds an object that this batch did not write; it is never overwritten."""


class ControlError(TerminalError):
    """The control documents of a pipeline cannot be trusted; nothing was changed."""


class MarkerMissingError(ControlError):
    """Batches exist but the marker does not."""


class CorruptControlError(ControlError):
    """A control document is not valid: broken JSON, checksum, type or range."""


class LogTamperedError(ControlError):
    """The batch log changed under us: a number that was used came free."""


class UnsupportedFormatError(ControlError):
    """A control document was written by a newer version of this package."""


class TransientError(KafkaS3Error):
    """Trying again later may help; nothing has to be undone."""


class ThrottledError(TransientError):
    """The other side asked us to slow down.

    Attributes:
        retry_after: seconds the other side asked us to wait, or None.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after)
        self.retry_after = retry_after

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownOutcomeError(TransientError):
    """A request got no usable answer: it may or may not have been applied, now or later."""


class KafkaUnavailableError(TransientError):
    """The broker did not answer in time."""


class SparkJobError(TransientError):
    """The Spark job ended without a decision; the message carries the driver's last words."""


class StoreAnswer(KafkaS3Error):
    """Base of the answers a conditional request or an upload can get; only the protocol sees them."""


class PreconditionFailed(StoreAnswer):
    """412, or 404 to If-Match: the key is not in the state we named. It may be our own earlier write."""


class ConditionalConflict(StoreAnswer):
    """409: a concurrent change is in progress on this key."""


class UploadGone(StoreAnswer):
    """404 NoSuchUpload: completed, aborted or expired; the status alone does not tell which."""


class UploadRefused(StoreAnswer):
    """The store does not accept the parts (InvalidPart, EntityTooSmall); once is no proof that it never will."""


def raise_first(errors: Sequence[KafkaS3Error]) -> None:
    """Raise the error that comes first for a person, with the others in its notes; none: return.

    Strangers at keys come first, then what else is terminal, then what may pass by itself.
    """
    if not errors:
        return
    first, *others = sorted(
        errors, key=lambda e: 0 if isinstance(e, ForeignObjectError) else 1 if isinstance(e, TerminalError) else 2
    )
    told = [message_of(error) for error in others[:_NOTED]]
    if len(others) > _NOTED:
        told.append(f"and {len(others) - _NOTED:,} more errors")
    for text in told:
        first.add_note(text)
    raise first
