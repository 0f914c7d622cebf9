"""The commands that error messages give as remedies: complete, quoted for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.notation import format_offsets
from airflow_provider_kafka_s3.documents.offsets import Offsets

__all__ = ["RESTORE_RUN", "Remedies", "command_line"]

RESTORE_RUN: Final = 'a run with the conf {"kafka_s3":{"action":"restore"}}'
"""How a run writes objects again; without spaces, so that no log breaks it."""

_UNPROVEN: Final = ("--unsafe-unproven-records",)

_LISTED: Final = 20
"""Batches in a command at most."""


@dataclass(frozen=True)
class Remedies:
    """The commands for one topic of a pipeline, each in backquotes.

    Attributes:
        bucket: name of the bucket.
        address: of the topic in it.
        connection_options: options with which the command line reaches the same store and cluster.
    """

    bucket: str
    address: TopicAddress
    connection_options: tuple[str, ...] = ()

    def abandon(self, batch: int, *, release: str = "debt") -> str:
        """Abandons an undecided batch."""
        return self._line("abandon", "--batch", str(batch), "--release", release)

    def accept_loss(self, batch: int, *, other_cluster: bool = False) -> str:
        """Completes a decided batch without the objects that can be neither completed nor built again."""
        return self._line("accept-loss", "--batch", str(batch), *(("--other-cluster",) if other_cluster else ()))

    def accept_deleted(self, batches: Iterable[int]) -> str:
        """Accepts that objects deleted from complete batches stay deleted; of the first batches, if there are many."""
        return self._line("accept-loss", "--deleted", *_batch_options(sorted(set(batches))[:_LISTED]))

    def accept_gone(self, offsets: Offsets) -> str:
        """Accepts the loss of offsets that retention deleted before a batch claimed them."""
        return self._line("accept-loss", "--offsets", format_offsets(offsets))

    def dead_letters(self) -> str:
        """Prints the statement that makes a table of the dead letters of the topic."""
        return self._line("ddl", "--dead-letters", "--dialect", "duckdb")

    def ddl(self, dialect: str, database: str, table: str) -> str:
        """Prints the statement that makes a table of the topic."""
        return self._line("ddl", "--dialect", dialect, "--database", database, "--table", table)

    def sync_partitions(self, table: str, *catalog: str) -> str:
        """Adds the partitions that a table lacks; ``catalog`` are the options that lead to the table."""
        return self._line("table", "sync", "--table", table, *catalog)

    def recover(self, *, skip: bool = False) -> str:
        """Lands open plans and debt; ``skip`` records a gap where records are gone."""
        return self._line("recover", *(("--on-data-loss", "skip") if skip else ()))

    def recover_decided(self, *, unproven: bool = False) -> str:
        """Rolls decided batches forward, without Kafka; ``unproven`` vouches for its records where it is needed."""
        return self._line("recover", "--decided-only", *(_UNPROVEN if unproven else ()))

    def release(self) -> str:
        """Lets another pipeline land a topic of which nothing is landed."""
        return self._line("release")

    def repair(self, *arguments: str) -> str:
        """Rebuilds the marker from the log."""
        return self._line("repair", *arguments)

    def reset(self) -> str:
        """Continues with the live topic."""
        return self._line("reset")

    def status(self) -> str:
        """Shows open batches and gaps."""
        return self._line("status")

    def verify(self, batch: int) -> str:
        """Compares the objects of a batch with its manifest."""
        return self._line("verify", "--batch", str(batch))

    def restore(self, batches: Iterable[int] = (), *, unproven: bool = False) -> str:
        """Writes missing objects again from Kafka; ``unproven`` vouches for its records."""
        listed = sorted(set(batches))
        # Without a batch the command covers all landed offsets.
        options = _batch_options(listed) if len(listed) <= _LISTED else ()
        return self._line("verify", "--restore", *options, *(_UNPROVEN if unproven else ()))

    def restore_given(self) -> str:
        """Writes missing objects again also if a table owns them."""
        return self._line("verify", "--restore", "--unsafe-given-objects")

    def abandon_or_leave_out(self, batch: int) -> str:
        """The sentence for a batch that cannot be executed as planned."""
        return (
            f"batch {batch} keeps its planned offsets and layout. To plan its offsets again with changed settings, "
            f"change them and run {self.abandon(batch)}; with --release lost its records are left out"
        )

    def skip_gap(self, batch: int) -> str:
        """The sentences for an undecided batch some of whose offsets are gone from Kafka."""
        return (
            f"Record the gap and land the rest: {self.recover(skip=True)}, or run again with on_data_loss='skip'. "
            f"Or leave out the whole batch: {self.abandon(batch, release='lost')}"
        )

    def _line(self, command: str, *arguments: str) -> str:
        topic = ("--pipeline", self.address.pipeline, "--topic", self.address.topic)
        return command_line(command, self.connection_options, self.bucket, self.address.topics_dir, *topic, *arguments)


def command_line(command: str, connection_options: Iterable[str], bucket: str, topics_dir: str, *arguments: str) -> str:
    """A command that can be run as it is printed, in backquotes; every command that is printed is made here.

    Args:
        command: its name.
        connection_options: options with which the command line reaches the same store and cluster.
        bucket: name of the bucket.
        topics_dir: prefix of all keys.
        arguments: what else it needs.
    """
    location = ("--bucket", bucket, "--topics-dir", topics_dir)
    return f"`{shlex.join(('kafka-s3', command, *connection_options, *location, *arguments))}`"


def _batch_options(batches: Iterable[int]) -> list[str]:
    return [word for batch in batches for word in ("--batch", str(batch))]
