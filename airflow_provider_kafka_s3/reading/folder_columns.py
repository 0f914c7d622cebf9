"""The types of folders ``name=value`` that readers show as columns: one rule for every reader."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from airflow_provider_kafka_s3.config import ByField, ByKey, Chain, CustomPartitioner, Partitioner
from airflow_provider_kafka_s3.layout.folders import NULL_FOLDER
from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject

if TYPE_CHECKING:
    from pyarrow import DataType

__all__ = ["folder_types"]

_PADDED: Final = re.compile(r"-?[0-9]{1,10}")
_CANONICAL: Final = re.compile(r"0|-?[1-9][0-9]{0,9}")


def folder_types(objects: Iterable[SnapshotObject]) -> dict[str, DataType]:
    """The folders of objects, with their types: int32 if all values of a folder are such numbers, else text.

    Leading zeros are those of a number in folders of times, as ``month=01``; in folders of keys and fields, ``007`` is
    a text and not the number 7.
    """
    folders: dict[str, set[str]] = {}
    padded: dict[str, bool] = {}
    for snapshot_object in objects:
        for name, text in snapshot_object.columns.items():
            folders.setdefault(name, set()).add(text)
            padded[name] = padded.get(name, True) and _is_padded(snapshot_object.layout.partitioner, name)
    return {name: _type(texts, padded[name]) for name, texts in folders.items()}


def _is_padded(partitioner: Partitioner, name: str) -> bool:
    """Whether numbers of this folder may have leading zeros, as in ``month=01``: not those of keys and fields."""
    links = partitioner.partitioners if isinstance(partitioner, Chain) else (partitioner,)
    for link in links:
        match link:
            case ByKey() if name == "key":
                return False
            case ByField(names=names) if name in {*names, *(field.lower() for field in names)}:
                return False
            case CustomPartitioner():
                return False
            case _:
                pass
    return True


def _type(texts: set[str], is_padded: bool) -> pa.DataType:
    """The type of a folder: a number only if its text can be told from the number."""
    numbers = [text for text in texts if text != NULL_FOLDER]
    whole = _PADDED if is_padded else _CANONICAL
    is_number = numbers and all(whole.fullmatch(text) and -(2**31) <= int(text) < 2**31 for text in numbers)
    return pa.int32() if is_number else pa.string()
