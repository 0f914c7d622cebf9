"""Manifests have the times of the records in each object, for readers that look for a window."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from airflow_provider_kafka_s3.config import Daily, Envelope, JsonLines, Layout, Rotation, SiblingObjects
from airflow_provider_kafka_s3.config import RawBytes as Raw
from airflow_provider_kafka_s3.documents.codec import encode
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from tests.unit.batch.test_control_documents import ENTRY, manifest, plan
from tests.unit.batch.written_slice import written_slice

DAY = 86_400_000
NEW_YEAR = 1_767_225_600_000
UNKNOWN = (-1, -1)


def test_each_object_has_the_times_of_its_own_records() -> None:
    """Also with records that are scattered over several objects, and with batches cut in their middle."""
    times = [NEW_YEAR + 5, NEW_YEAR + DAY, NEW_YEAR + 1, NEW_YEAR + 2 * DAY, NEW_YEAR + DAY + 9, NEW_YEAR + 3]
    written = written_slice(
        Layout(format=Raw(), partitioner=Daily()), [b"x"] * len(times), timestamps=times, cuts=[2, 5]
    )
    assert written.times == [
        (NEW_YEAR + 1, NEW_YEAR + 5),
        (NEW_YEAR + DAY, NEW_YEAR + DAY + 9),
        (NEW_YEAR + 2 * DAY, NEW_YEAR + 2 * DAY),
    ]


def test_objects_beside_one_another_have_the_same_times() -> None:
    """Those of keys and headers have the records of the object of values."""
    layout = Layout(
        format=Raw(), content=SiblingObjects(keys=Raw(), headers=JsonLines()), rotation=Rotation(flush_size=2)
    )
    written = written_slice(layout, [b"a", b"b", b"c"], timestamps=[7, 5, 9], keys=[b"k"] * 3)
    assert sorted(written.times) == [(5, 7)] * 3 + [(9, 9)] * 3


def test_dead_letters_have_times_as_well() -> None:
    """Those of the records that cannot be written; the others have theirs."""
    layout = Layout(format=JsonLines(), errors="dead_letter", content=Envelope())
    written = written_slice(layout, [b"{", b"1", b"]"], timestamps=[20, 10, 30])
    assert (written.times, written.dead_times) == ([(10, 10)], [(20, 30)])


@pytest.mark.parametrize(
    ("timestamps", "expected"),
    [
        ([-1, 5, -1, 9], (5, 9)),
        ([-1, -1, -1, -1], UNKNOWN),
        ([-7, -1, 3, 2], (-7, 3)),
        ([-7, -1, -9, -1], (-9, -7)),
        ([5, 6, 7, -2_208_988_800_000], (-2_208_988_800_000, 7)),
        ([5, 6, 7, -2_208_988_800_001], UNKNOWN),
        ([-2_208_988_800_001, -1, 5, 6], UNKNOWN),
    ],
)
@pytest.mark.parametrize("cuts", [(), (1, 2, 3)])
def test_times_that_may_be_wrong_are_not_stored(
    timestamps: list[int], expected: tuple[int, int], cuts: tuple[int, ...]
) -> None:
    """Records without a timestamp do not count; one that Spark may have shifted makes the object's times unknown."""
    written = written_slice(Layout(format=Raw()), [b"x"] * 4, timestamps=timestamps, cuts=cuts)
    assert written.times == [expected]


@pytest.mark.parametrize("times", [(5, 4), (-1, 5), (-5, -1)])
def test_an_object_with_impossible_times_is_refused(times: tuple[int, int]) -> None:
    """Reversed, or only one of the two known."""
    with pytest.raises(ValueError, match="timestamps"):
        msgspec.structs.replace(ENTRY, min_timestamp=times[0], max_timestamp=times[1])


def test_objects_of_the_same_records_with_other_times_are_refused() -> None:
    """A manifest in which an object of keys has other times than that of the values is not of this package."""
    beside = msgspec.structs.replace(
        ENTRY, key="topics/t/partition=0/t+0+0000000000.keys.json.gz", min_timestamp=0, max_timestamp=0
    )
    layout = Layout(format=JsonLines(compression="gzip"), content=SiblingObjects(keys=JsonLines(compression="gzip")))
    with pytest.raises(ValueError, match="has other timestamps than the object beside it"):
        manifest(objects=(ENTRY, beside)).check_against(plan(layout=layout))


def test_manifests_of_earlier_versions_have_no_times() -> None:
    """They are read as before, and an object whose times are unknown is written as they were."""
    stored: dict[str, Any] = json.loads(encode(manifest(), {}))["objects"][0]
    assert not stored.keys() & {"min_timestamp", "max_timestamp"}
    entry = msgspec.convert(stored, ObjectEntry)
    assert (entry.min_timestamp, entry.max_timestamp, entry.has_times) == (*UNKNOWN, False)
    assert msgspec.structs.replace(entry, min_timestamp=0, max_timestamp=0).has_times
