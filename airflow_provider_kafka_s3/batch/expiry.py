"""Objects of a topic that were deleted on purpose, or will be: no reader expects them, and no run writes them again.

The document says so before the first of them is deleted. An expiry can be withdrawn until its deletion
has begun. From then on it only grows, so whoever has read an older state expects more objects, and never fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import corrupt, decode, encode, write_stamp
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects, Expiry
from airflow_provider_kafka_s3.exceptions import UnknownOutcomeError

__all__ = ["change_expiry", "current_expiry", "expired_objects", "read_expiry", "swap_expiry"]

_SWAPS: Final = 10
"""Writes of the document; one that is lost to another process is followed by an answer."""


def read_expiry(log: TopicLog) -> tuple[Expiry, str] | None:
    """The document and its ETag; None: nothing of the topic was deleted on purpose.

    Raises:
        ControlError: the document cannot be trusted.
    """
    key = addresses.expiry_key(log.prefix)
    stored = log.store.get(key)
    if stored is None:
        return None
    where = log.store.url(key)
    expiry, _ = decode(Expiry, stored.body, where)
    if expiry.topic != log.topic:
        raise corrupt(where, f"it is of topic {expiry.topic!r}")
    return expiry, stored.etag


def current_expiry(log: TopicLog) -> Expiry:
    """The document, empty if there is none; a request.

    Raises:
        ControlError: the document cannot be trusted.
    """
    stored = read_expiry(log)
    return Expiry(topic=log.topic) if stored is None else stored[0]


def expired_objects(log: TopicLog) -> ExpiredObjects:
    """The objects that no reader expects any more: those that are deleted, and those that will be; a request.

    Raises:
        ControlError: the document cannot be trusted.
    """
    return current_expiry(log).objects


def change_expiry(
    log: TopicLog, change: Callable[[Expiry], Expiry], *, may_create: bool = False
) -> tuple[Expiry, Expiry]:
    """Change the document, whatever others do.

    Args:
        log: the control documents of the topic.
        change: the new document by the current one; the same if nothing is to change.
        may_create: create the document if there is none; else that is no change.

    Returns:
        The document before and behind the change, empty if there is none.

    Raises:
        ControlError: the document cannot be trusted.
        UnknownOutcomeError: it could not be replaced.
    """
    for _ in range(_SWAPS):
        stored = read_expiry(log)
        before, etag = stored or (Expiry(topic=log.topic), None)
        after = change(before) if stored is not None or may_create else before
        if after == before or swap_expiry(log, after, etag):
            return before, after
    raise UnknownOutcomeError(
        f"topic {log.topic!r}: the document of deleted objects could not be replaced: others changed it, or the store "
        f"gave no usable answer, {_SWAPS} times. Nothing was deleted since; try again"
    )


def swap_expiry(log: TopicLog, expiry: Expiry, etag: str | None) -> bool:
    """Write the document in place of the one that was read, or create it.

    Args:
        log: the control documents of the topic.
        expiry: what is written.
        etag: of the document that was read; None: there was none.

    Returns:
        Whether it is stored for certain; else read it again.
    """
    key = addresses.expiry_key(log.prefix)
    body = encode(expiry, write_stamp(), log.store.url(key))
    if etag is None:
        return log.store.create(key, body) == body
    return log.store.replace(key, body, etag)
