"""Checks for a ``topics_dir`` inside the data folder of another pipeline's topic: a listing of the folder returns both.

For example, ``x/y`` is in the folder of topic ``y`` under ``x``, and ``x/2026-01-31`` is a folder that topics share
with ``DeviantArtNaming``. It is refused when a pipeline first lands a topic. If it exists already, the folders of the
inner pipeline's topics do not belong to the outer one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.owner import read_owner
from airflow_provider_kafka_s3.exceptions import ConfigurationError, ControlError, PipelineConflictError
from airflow_provider_kafka_s3.layout import keys

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["in_folder_of", "of_inner_topics", "refuse_nesting"]

_OF_A_DAY: Final = re.compile(r"(?:[^/]+/){1,2}[^/]+-[0-9]{5,10}-[0-9]{12,19}(?:-g[0-9]+)?\.[^/]+")
_PAGE: Final = 1_000
"""Keys to check. Other software may have written millions into the folder."""


def refuse_nesting(store: DurableStore, *, topics_dir: str, topic: str, data_prefix: str) -> None:
    """Refuse to land a topic where one of two folders would be in the other.

    Args:
        store: the bucket.
        topics_dir: of the pipeline.
        topic: to be landed.
        data_prefix: prefix of the keys of the topic's objects; that of ``topics_dir`` itself if topics share folders.

    Raises:
        PipelineConflictError: another pipeline lands a topic around or below it.
    """
    refused = f"topic {topic!r} cannot be landed under topics_dir {topics_dir!r}"
    folders = topics_dir.split("/") if topics_dir else []
    for depth, folder in enumerate(folders):
        outer = "/".join(folders[:depth])
        around = keys.topic_of_folder(folder)
        if (owner := _owner_of(store, outer, around)) is not None:
            raise PipelineConflictError(
                f"{refused}: that is a folder of topic {around!r} of pipeline {owner!r} (topics_dir {outer!r}), and "
                f"readers of that topic would read both. Nothing was written. Use a topics_dir outside any topic's "
                f"folder; see {store.url(addresses.owner_key(outer, around))}"
            )
        if (beside := _object_of_a_day(store, keys.below(outer), folder)) is not None:
            raise PipelineConflictError(
                f"{refused}: that is a folder of days, which topics share with naming='deviantart', and readers of it "
                f"would read both. Nothing was written. Use another topics_dir; see {store.url(beside)}"
            )
    shared = data_prefix == keys.below(topics_dir)
    if shared:
        _refuse_topics_of_days(store, topics_dir, refused)
    for owner_key in _owner_keys_below(store, data_prefix):
        inner = owner_key.partition(f"/{keys.CONTROL_DIR}/")[0]
        if _is_released(store, inner, owner_key):
            continue
        if shared and not keys.is_shared_folder(owner_key.removeprefix(data_prefix).partition("/")[0]):
            # The topics that share the folder, or those of a topics_dir beside the folders of days.
            continue
        raise PipelineConflictError(
            f"{refused}: its folder {data_prefix!r} holds another topics_dir, {inner!r}, and readers of the topic "
            f"would read both. Nothing was written. Use another topics_dir; see {store.url(owner_key)}"
        )


def _refuse_topics_of_days(store: DurableStore, topics_dir: str, refused: str) -> None:
    """Refuse folders that topics share where another pipeline's topic has a folder of that name."""
    prefix = addresses.owners_prefix(topics_dir)
    for info in store.list(prefix):
        topic = info.key.removeprefix(prefix).removesuffix(".json")
        if keys.is_shared_folder(topic) and not _is_released(store, topics_dir, info.key):
            raise PipelineConflictError(
                f"{refused} with naming='deviantart': topic {topic!r} of another pipeline has a folder there, which "
                f"is that of a day, and readers of that topic would read both. Nothing was written. Use another "
                f"topics_dir; see {store.url(info.key)}"
            )


def of_inner_topics(store: DurableStore, data_prefixes: Iterable[str], uploads: Iterable[str]) -> frozenset[str]:
    """The keys in the folders of other topics, within the folder of a pipeline's own topic.

    Args:
        store: the bucket.
        data_prefixes: prefixes of the keys of the pipeline's own objects.
        uploads: keys that may be the pipeline's own; only the folders around them are searched.
    """
    own, upload_keys = tuple(data_prefixes), list(uploads)
    folders = {folder for key in upload_keys for folder in _folders(key) if f"{folder}/".startswith(own)}
    owner_keys = {info.key for folder in sorted(folders) for info in store.list(addresses.owners_prefix(folder))}
    return frozenset(key for key in upload_keys if in_folder_of(owner_keys, key))


def in_folder_of(owner_keys: Collection[str], key: str) -> bool:
    """Whether a key is in the folder of a topic that has one of these owner documents."""
    for folder in _folders(key):
        topics_dir, _, name = folder.rpartition("/")
        try:
            if addresses.owner_key(topics_dir, keys.topic_of_folder(name)) in owner_keys:
                return True
        except ConfigurationError:  # The name is not that of a topic.
            continue
    return False


def _folders(key: str) -> Iterator[str]:
    """The folders around a key, the outermost first."""
    return itertools.accumulate(key.split("/")[:-1], lambda path, name: f"{path}/{name}")


def _owner_of(store: DurableStore, topics_dir: str, topic: str) -> str | None:
    """The pipeline that lands a topic; None if there is none, or the name of the topic is invalid."""
    try:
        key = addresses.owner_key(topics_dir, topic)
    except ConfigurationError:
        return None
    stored = read_owner(store, key, topics_dir=topics_dir)
    return None if stored is None or stored[0].released else stored[0].pipeline


def _is_released(store: DurableStore, topics_dir: str, key: str) -> bool:
    """Whether a pipeline has released the topic of this owner document, so that none of its objects exist."""
    try:
        stored = read_owner(store, key, topics_dir=topics_dir)
    except ControlError:
        return False
    return stored is not None and stored[0].released


def _object_of_a_day(store: DurableStore, outer: str, folder: str) -> str | None:
    """An object with DeviantArt's names in a folder, among the first keys there; None if none is seen."""
    if not keys.is_shared_folder(folder):
        return None

    def first_page() -> list[str]:
        return [info.key for info in itertools.islice(store.store.list(f"{outer}{folder}/"), _PAGE)]

    listed = store.retrier.call(first_page, what=f"LIST {store.url(f'{outer}{folder}/')}")
    return next((key for key in listed if _OF_A_DAY.fullmatch(key.removeprefix(outer))), None)


def _owner_keys_below(store: DurableStore, data_prefix: str) -> list[str]:
    """Owner documents below a prefix: of the ``topics_dir`` that ends there, and those among the first keys."""

    def first_page() -> list[str]:
        return [info.key for info in itertools.islice(store.store.list(data_prefix), _PAGE)]

    candidates = store.retrier.call(first_page, what=f"LIST {store.url(data_prefix)}")
    if data_prefix.endswith("/"):
        candidates += [info.key for info in store.list(addresses.owners_prefix(data_prefix.removesuffix("/")))]
    return [key for key in candidates if f"/{addresses.owners_prefix('')}" in key]
