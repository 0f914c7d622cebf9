"""Objects have the keys of the golden files: a retry of a batch that an earlier version planned makes them again.

No library decides them, so they do not change with the lock.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import pytest

from tests.golden.folders import FOLDERS, NULL, RECORDS, landed, path_of_folders


def folders_of(name: str) -> list[list[str]]:
    """The folders of each record in a golden file."""
    objects = json.loads(path_of_folders(name).read_text())
    folders = {n: key.split("/")[2:-1] for key, offsets in objects.items() for n in offsets}
    return [folders[n] for n in range(len(RECORDS))]


def text(value: Any) -> str | None:
    """A value as the text of its folder."""
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)


def read(folder: str, name: str) -> str | None:
    """The value of a folder as Hive and Spark read it."""
    found = folder.removeprefix(f"{name}=")
    assert found != folder
    return None if found == NULL else "" if found == "__EMPTY__" else unquote(found, errors="surrogateescape")


def require_value(folder: str, name: str, value: str | None) -> None:
    """A folder has the value, or its beginning and its digest."""
    found = read(folder, name)
    if found == value:
        return
    assert found is not None
    assert value is not None
    beginning, _, digest = found.rpartition("~")
    assert value.startswith(beginning)
    assert digest == hashlib.sha256(value.encode()).hexdigest()


@pytest.mark.parametrize("name", FOLDERS)
def test_the_keys_are_those_of_the_golden_file(name: str) -> None:
    """And the records in each object."""
    assert landed(name) == json.loads(path_of_folders(name).read_text()), (
        f"{name}: the same records have other objects; if that is meant, write the golden files again with "
        f"`python -m tests.golden`, and name the change in CHANGELOG.md"
    )


@pytest.mark.parametrize("name", ["field", "field-short"])
def test_readers_find_the_value_in_the_folder(name: str) -> None:
    """As Hive and Spark decode it; a long one by its beginning and its digest."""
    for record, folders in zip(RECORDS, folders_of(name), strict=True):
        assert len(folders) == 1
        require_value(folders[0], "country", text(record.country))


def test_readers_find_the_values_and_the_hour_in_the_folders_of_a_chain() -> None:
    """Of a field, of a nested field that some records do not have, and of a time in a field, in a time zone."""
    for n, (record, folders) in enumerate(zip(RECORDS, folders_of("chain"), strict=True)):
        country, city, *hour = folders
        require_value(country, "country", text(record.country))
        require_value(city, "address.city", text(record.city) if n % 5 else None)
        at = datetime.fromtimestamp(record.time_ms / 1000, ZoneInfo("Europe/Oslo"))
        assert "/".join(hour) == f"{at:year=%Y/month=%m/day=%d/hour=%H}"


def test_readers_find_the_key_in_the_folder() -> None:
    """Bytes that are not UTF-8 are the same bytes when they are decoded."""
    for record, folders in zip(RECORDS, folders_of("key"), strict=True):
        assert len(folders) == 1
        key = None if record.key is None else record.key.decode(errors="surrogateescape")
        require_value(folders[0], "key", key)


@pytest.mark.parametrize("name", ["field", "key", "field-short"])
def test_different_values_have_different_folders(name: str) -> None:
    """Of one type: a number and its text share one."""
    of_record = folders_of(name)
    values = [record.key if name == "key" else text(record.country) for record in RECORDS]
    assert len({folders[0] for folders in of_record}) == len(set(values))


def test_there_are_no_other_files_of_folders() -> None:
    """Each belongs to a case, and they are small."""
    files = [*path_of_folders("field").parent.iterdir()]
    assert {path.stem for path in files} == set(FOLDERS)
    assert sum(path.stat().st_size for path in files) < 100_000
