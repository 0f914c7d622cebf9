"""The input and the result of one Spark job: two files that the caller and the driver share.

The job file holds secrets, so it is a named pipe: its content is never on a disk, and is gone with the process that
offers it. Only its path is an argument of the driver, which has to run on the caller's machine (client mode or a local
master).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from airflow_provider_kafka_s3.batch.dead_letter_limit import DeadLetterLimit
from airflow_provider_kafka_s3.config import Upload
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, error_of_kind, message_of
from airflow_provider_kafka_s3.registry.settings import RegistrySettings
from airflow_provider_kafka_s3.retry import RetryPolicy
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings
from airflow_provider_kafka_s3.structs import decode_struct

__all__ = ["ConnectServer", "JobResult", "JobSpec", "PlanRef", "TopicOutcome"]

_SECRET = "REDACTED"


class PlanRef(TopicAddress, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan to execute, in the log of a topic.

    Attributes:
        batch: its number.
        dead_letters: of the other batches that the run has landed.
        offsets: number of offsets that the plan reads.
    """

    batch: int
    dead_letters: int = 0
    offsets: int = 0

    @property
    def address(self) -> TopicAddress:
        """Of the topic, without the plan."""
        return TopicAddress(topics_dir=self.topics_dir, pipeline=self.pipeline, topic=self.topic)


class ConnectServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Spark Connect server. Its repr does not show the URL, since that may hold a token.

    Attributes:
        url: ``sc://host:port/;name=value;…``.
        conf: settings of the session.
        py_files: paths of files of this machine with modules for the executors.
    """

    url: str
    conf: dict[str, str] = {}
    py_files: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ConnectServer(url={_SECRET}, conf={self.conf!r})"

    __str__ = __repr__


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One submit of the job. Its repr shows no settings of clients, since these hold secrets.

    Attributes:
        run: key of the run that executes the plans; recorded in the decisions.
        plans: the plans to execute, one per topic.
        kafka: librdkafka settings: the extra of the Airflow connection.
        kafka_overrides: Java names of Kafka's consumer for Spark only.
        bucket: name of the bucket of control documents and objects.
        s3: its connection settings.
        credentials: None: boto3's own chain, on the driver and on every executor.
        retry: policy of every request to the store.
        upload: upload settings of the tasks; the size of parts is that of each plan.
        on_data_loss: policy for a batch whose offsets are gone from Kafka: ``fail``, or ``skip``: abandon it, so that
            the run plans the rest again.
        registry: how to reach the schema registry; None: there is none.
        max_dead_letters: of all batches of a topic that the run lands; None: no limit.
        result_path: path to which the driver writes its :class:`JobResult`.
        connect: the server whose session executes the plans; None: the session of the process.
        connection_options: see :class:`~airflow_provider_kafka_s3.batch.log.TopicLog`.
    """

    run: str
    plans: tuple[PlanRef, ...]
    kafka: dict[str, Any]
    bucket: str
    result_path: str
    kafka_overrides: dict[str, str] = {}
    s3: S3Settings = S3Settings()
    credentials: S3Credentials | None = None
    retry: RetryPolicy = RetryPolicy()
    upload: Upload = Upload()
    on_data_loss: Literal["fail", "skip"] = "fail"
    registry: RegistrySettings | None = None
    max_dead_letters: int | None = None
    connect: ConnectServer | None = None
    connection_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        topics = [ref.topic for ref in self.plans]
        if not topics or len(set(topics)) != len(topics):
            raise ConfigurationError(f"a job executes one plan of each of its topics, at least one; it got {topics}")

    @property
    def offsets(self) -> int:
        """Number of offsets that the job reads."""
        return sum(ref.offsets for ref in self.plans)

    def dead_letter_limit(self, ref: PlanRef) -> DeadLetterLimit | None:
        """The limit of the batch of a plan."""
        return None if self.max_dead_letters is None else DeadLetterLimit(self.max_dead_letters, ref.dead_letters)

    @contextlib.contextmanager
    def offered(self, path: str | Path) -> Iterator[None]:
        """Offer the job file to one driver, until the block ends or this process does.

        Only this user can read it. A driver that begins later finds nothing, and does not begin the job.

        Args:
            path: of the job file, which does not exist.

        Raises:
            ConfigurationError: it cannot be created.
        """
        try:
            os.mkfifo(path, 0o600)
            # With a reader, what is written waits in the pipe for the driver, also behind the end of the writer.
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            writer = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as e:
            raise ConfigurationError(
                f"the named pipe {path}, by which the driver of a job gets its description, cannot be created "
                f"({e.strerror}); set the variable TMPDIR of the worker to a folder of a local disk"
            ) from e
        try:
            # What is longer than a pipe is written while the driver reads it.
            threading.Thread(
                target=_write, args=(writer, msgspec.json.encode(self)), name="job-file", daemon=True
            ).start()
            yield
        finally:
            os.close(reader)
            Path(path).unlink(missing_ok=True)

    @classmethod
    def read(cls, path: str | Path) -> JobSpec:
        """Read a job file and remove it.

        Raises:
            ConfigurationError: it does not exist, nobody offers it any more, or another version does. That version
                gets the error in the result file, if its job file contains the path.
        """
        try:
            # Opened so, a pipe whose writer is gone does not wait for another one.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            os.set_blocking(descriptor, True)
            with open(descriptor, "rb") as file:
                body = file.read()
            os.unlink(path)
        except OSError as e:
            raise ConfigurationError(
                f"job file {path} cannot be read and removed ({e.strerror}). It is created for one submit, removed "
                f"when that begins, and has to be on the driver's machine: use a local master or deploy mode 'client'"
            ) from e
        if not body:
            raise ConfigurationError(
                f"job file {path} has no content: the task that submitted this job has ended, or runs on another "
                f"machine; nothing was read. Let the task run again, with a local master or deploy mode 'client'"
            )
        try:
            return decode_struct(body, cls)
        except (msgspec.DecodeError, ValueError) as e:
            # The text of the file holds secrets: it must not be in the context of the error.
            reason = str(e)
        error = ConfigurationError(
            f"job file {path} is not one of this version ({reason}); install the same version of "
            f"airflow-provider-kafka-s3 for Airflow and for the driver"
        )
        # Without a result the caller would retry, which cannot help.
        with contextlib.suppress(msgspec.DecodeError, OSError):
            read = decode_struct(body, _OtherSpec)
            outcomes = tuple(TopicOutcome.failed(plan.topic, error) for plan in read.plans)
            JobResult(topics=outcomes).write(read.result_path)
        raise error

    def __repr__(self) -> str:
        return (
            f"JobSpec(run={self.run!r}, plans={self.plans!r}, bucket={self.bucket!r}, s3={self.s3!r}, "
            f"kafka={_SECRET}, kafka_overrides={_SECRET}, credentials={_SECRET}, on_data_loss={self.on_data_loss!r}, "
            f"registry={self.registry!r}, connect={self.connect!r})"
        )

    __str__ = __repr__


def _write(descriptor: int, body: bytes) -> None:
    # The driver may end before it has read all.
    with contextlib.suppress(BrokenPipeError), open(descriptor, "wb", buffering=0) as file:
        unwritten = memoryview(body)
        while unwritten:
            unwritten = unwritten[file.write(unwritten) :]


class _OtherPlan(msgspec.Struct):
    topic: str


class _OtherSpec(msgspec.Struct):
    """The fields of another version's job file that are needed to write its result."""

    plans: tuple[_OtherPlan, ...]
    result_path: str


class TopicOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Outcome of the job for one topic.

    Attributes:
        topic: the Kafka topic.
        status: ``decided``: the batch has a decision that is carried out; see the log. Else ``error``.
        kind: of the error, see :class:`~airflow_provider_kafka_s3.exceptions.KafkaS3Error`.
        message: of the error, with its notes.
    """

    topic: str
    status: Literal["decided", "error"]
    kind: str | None = None
    message: str | None = None

    @classmethod
    def failed(cls, topic: str, error: KafkaS3Error) -> TopicOutcome:
        """The outcome of a topic that ended with an error."""
        return cls(topic=topic, status="error", kind=error.kind, message=message_of(error))

    @property
    def error(self) -> KafkaS3Error | None:
        """The error that the topic ended with; None if its batch is decided."""
        return None if self.kind is None else error_of_kind(self.kind, self.message or "")


class JobResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Outcome of the job for each topic."""

    topics: tuple[TopicOutcome, ...]

    @property
    def succeeded(self) -> bool:
        """Whether every topic has its decision."""
        return all(t.status == "decided" for t in self.topics)

    def write(self, path: str | Path) -> None:
        """Write the result atomically."""
        unfinished = f"{path}.{os.getpid()}"
        Path(unfinished).write_bytes(msgspec.json.encode(self))
        os.replace(unfinished, path)

    @classmethod
    def read(cls, path: str | Path) -> JobResult | None:
        """Read a result; None if the driver ended before it wrote one."""
        try:
            return decode_struct(Path(path).read_bytes(), cls)
        except FileNotFoundError:
            return None
