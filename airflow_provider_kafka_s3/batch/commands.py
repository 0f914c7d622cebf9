"""The command lines that end dead ends, as errors print them: made in one place, whole, ready for a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.batch.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import ConfigurationError

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.batch.log import TopicLog

__all__ = [
    "abandon",
    "accept_deleted",
    "accept_gone",
    "accept_loss",
    "bucket_of",
    "format_batches",
    "format_offsets",
    "parse_batches",
    "parse_offsets",
    "recover",
    "recover_decided",
    "repair",
    "reset",
    "restore",
    "skip_gap",
    "way_out",
]

_NUMBER: Final = re.compile("[0-9]{1,19}")

_NAMED: Final = 20
"""Batches that a command names at most."""


def abandon(topic_log: TopicLog, batch: int, *, release: str = "debt") -> str:
    """Gives an undecided batch up."""
    return _line(topic_log, "abandon", "--batch", str(batch), "--release", release)


def accept_loss(topic_log: TopicLog, batch: int, *, other_cluster: bool = False) -> str:
    """Completes a decided batch without what can be neither completed nor written again."""
    return _line(topic_log, "accept-loss", "--batch", str(batch), *(("--other-cluster",) if other_cluster else ()))


def accept_deleted(topic_log: TopicLog, batches: Iterable[int]) -> str:
    """Records that the objects which are gone from complete batches stay away; of the first ones, if there are many."""
    return _line(topic_log, "accept-loss", "--deleted", *_named(sorted(set(batches))[:_NAMED]))


def accept_gone(topic_log: TopicLog, offsets: Offsets) -> str:
    """Records offsets as lost that retention deleted before a batch claimed them."""
    return _line(topic_log, "accept-loss", "--offsets", format_offsets(offsets))


def recover(topic_log: TopicLog, *, skip: bool = False) -> str:
    """Finishes what is planned or owed; ``skip`` records a gap where records are gone."""
    return _line(topic_log, "recover", *(("--on-data-loss", "skip") if skip else ()))


def recover_decided(topic_log: TopicLog) -> str:
    """Completes what is decided, without Kafka."""
    return _line(topic_log, "recover", "--decided-only")


def repair(topic_log: TopicLog, *arguments: str) -> str:
    """Builds the marker again from the log."""
    return _line(topic_log, "repair", *arguments)


def reset(topic_log: TopicLog) -> str:
    """Turns to the live incarnation of the topic."""
    return _line(topic_log, "reset")


def restore(topic_log: TopicLog, batches: Iterable[int] = ()) -> str:
    """Writes objects again from Kafka that are gone."""
    named = sorted(set(batches))
    # Without a name all that is landed is looked at.
    return _line(topic_log, "verify", "--restore", *(_named(named) if len(named) <= _NAMED else ()))


def way_out(topic_log: TopicLog, batch: int) -> str:
    """What errors say about a batch that can never be executed as it was planned."""
    return (
        f"batch {batch} keeps the offsets and the layout it was planned with. To plan its offsets again with changed "
        f"settings, change them and run {abandon(topic_log, batch)}; with --release lost its records are left out"
    )


def skip_gap(topic_log: TopicLog, batch: int) -> str:
    """What errors say about a batch some of whose offsets are gone from Kafka before it was decided."""
    return (
        f"Record the gap and land the rest: {recover(topic_log, skip=True)}, or run again with on_data_loss='skip'. "
        f"Or leave out the whole batch: {abandon(topic_log, batch, release='lost')}"
    )


def bucket_of(topic_log: TopicLog) -> str:
    """Name of the bucket that a log lies in."""
    return topic_log.store.url("").removeprefix("s3://").rstrip("/")


def format_offsets(offsets: Offsets) -> str:
    """Offsets as an option has them: ``0:100-150,1:7-9``, the ends excluded."""
    return ",".join(f"{p}:{start}-{end}" for p, ranges in offsets.items() for start, end in ranges)


def parse_offsets(text: str) -> Offsets:
    """What :func:`format_offsets` wrote.

    Raises:
        ConfigurationError: it has another form.
    """
    ranges: dict[int, list[tuple[int, int]]] = {}
    for part in text.split(","):
        partition, colon, bounds = part.strip().partition(":")
        start, dash, end = bounds.partition("-")
        numbers = (partition, start, end)
        if not (colon and dash and all(map(_NUMBER.fullmatch, numbers)) and int(start) < int(end) < 2**63):
            raise ConfigurationError(
                f"offsets {text!r}: {part!r} is not a range; write PARTITION:START-END, the end excluded, several of "
                f"them with commas between: 0:100-150,1:7-9"
            )
        ranges.setdefault(int(partition), []).append((int(start), int(end)))
    return Offsets(ranges)


def format_batches(batches: Iterable[int]) -> str:
    """Numbers as an option has them: ``2,5-7``, both ends included."""
    ranges: list[list[int]] = []
    for batch in sorted(set(batches)):
        if ranges and batch == ranges[-1][1] + 1:
            ranges[-1][1] = batch
        else:
            ranges.append([batch, batch])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def parse_batches(text: str) -> list[tuple[int, int]]:
    """What :func:`format_batches` wrote: the first and the last number of each range.

    Raises:
        ConfigurationError: it has another form.
    """
    ranges = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (_NUMBER.fullmatch(first) and _NUMBER.fullmatch(last) and 0 < int(first) <= int(last)):
            raise ConfigurationError(
                f"batches {text!r}: {part!r} is neither a number nor a range; write 2 or 5-7, several of them with "
                f"commas between: 2,5-7"
            )
        ranges.append((int(first), int(last)))
    return ranges


def _named(batches: Iterable[int]) -> list[str]:
    return [word for batch in batches for word in ("--batch", str(batch))]


def _line(topic_log: TopicLog, command: str, *arguments: str) -> str:
    where = ("--bucket", bucket_of(topic_log), "--topics-dir", topic_log.topics_dir)
    whose = ("--pipeline", topic_log.pipeline, "--topic", topic_log.topic)
    line = ("kafka-s3", command, *topic_log.cli_options, *where, *whose, *arguments)
    return f"`{shlex.join(line)}`"
