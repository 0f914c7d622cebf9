"""Names of DeviantArt's sink: a folder for each day that topics share, and names that belong to one topic each."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import (
    ByPartition,
    Chain,
    ClockTime,
    Daily,
    DeviantArtNaming,
    JsonLines,
    KeyNaming,
    Layout,
    Naming,
    RawBytes,
    Rotation,
    TimePattern,
    default_partitioner,
    parse_naming,
)
from airflow_provider_kafka_s3.documents.codec import canonical, decode, encode, write_stamp
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, UnsupportedFormatError
from airflow_provider_kafka_s3.layout import keys
from tests.plans import data_plan, slices_of
from tests.unit.layout.test_hostile_names import prefixes, topics

BY_DAY = default_partitioner(DeviantArtNaming())
DAY = "2026-01-31"

days = st.sampled_from([DAY, "0001-01-01", "9999-12-31"])
numbers = st.sampled_from([0, 7, 99_999, 100_000, 2**31 - 1])
offsets = st.sampled_from([0, 123_456, 10**12 - 1, 10**12, 2**63 - 1])
generations = st.sampled_from([0, 1, 12])
like_names = topics | st.sampled_from(
    ["a-00001", "a-00001-000000000000", "a-00001-000000000000-g1", "a", "a-g1", "a-0-0", "last_chunk_index.a-00000"]
)


def layout(**more: Any) -> Layout:
    """A layout with the names of DeviantArt's sink."""
    given: dict[str, Any] = {
        "format": RawBytes(extension="", compression="gzip"),
        "naming": DeviantArtNaming(),
        "partitioner": BY_DAY,
        **more,
    }
    return Layout(**given)


def key(settings: Layout, topic: str = "foo", offset: int = 0, partition: int = 0, generation: int = 0) -> str:
    """The key of an object of a day."""
    return keys.data_key(
        settings,
        topic=topic,
        encoded_partition=DAY,
        partition=partition,
        first_offset=offset,
        generation=generation,
    )


def test_names_are_those_of_the_sink() -> None:
    """D8: the day, then topic, partition in five digits, offset in twelve; without a folder of the topic."""
    assert key(layout(topics_dir="pfx")) == f"pfx/{DAY}/foo-00000-000000000000.gz"
    cases = json.loads((Path(__file__).parents[2] / "vectors" / "block_gzip.json").read_text())["cases"]
    (names,) = (case["names"] for case in cases if case["id"] == "D8")
    assert [key(layout(topics_dir=""), offset=offset) for offset in (0, 123_456)] == [f"{DAY}/{name}" for name in names]
    assert key(layout(topics_dir=""), offset=10**13, partition=123_456) == f"{DAY}/foo-123456-10000000000000.gz"


def test_the_objects_of_a_topic_created_again_are_outside_the_folders_of_days() -> None:
    """Their offsets begin at 0 again, so tools for the sink's names must not take them for the first ones."""
    assert key(layout(), generation=1) == f"topics/generation-1/{DAY}/foo-00000-000000000000-g1.gz"
    dead = keys.dead_letters_key(layout(), topic="foo", partition=0, first_offset=1, generation=1)
    assert dead == "topics/_dead_letters/foo/foo-00000-000000000001-g1.json"


def test_marker_files_are_named_as_the_sinks() -> None:
    """D5; and parsed with their own topic only."""
    made = keys.chunk_marker_key("pfx", "bar", 0)
    assert made == "pfx/last_chunk_index.bar-00000.txt"
    assert keys.chunk_marker_partition("pfx", "bar", made) == 0
    assert keys.chunk_marker_key("", "bar", 123_456) == "last_chunk_index.bar-123456.txt"
    other = keys.chunk_marker_key("pfx", "bar-00001", 2)
    assert other.startswith(keys.chunk_markers_prefix("pfx", "bar"))
    assert keys.chunk_marker_partition("pfx", "bar", other) is None


@given(prefixes, like_names, like_names, days, st.tuples(*[st.tuples(numbers, offsets, generations)] * 2))
def test_no_two_topics_share_an_object(
    topics_dir: str, topic: str, other: str, day: str, where: tuple[tuple[int, int, int], tuple[int, int, int]]
) -> None:
    """All objects of a day are in one folder; each is parsed correctly, with its own topic only."""
    settings = layout(topics_dir=topics_dir)
    made = {}
    for name, (partition, offset, generation) in ((topic, where[0]), (other, where[1])):
        for is_dead in (False, True):
            given: dict[str, Any] = {"partition": partition, "first_offset": offset, "generation": generation}
            made[name, partition, offset, generation, is_dead] = found = (
                keys.dead_letters_key(settings, topic=name, **given)
                if is_dead
                else keys.data_key(settings, topic=name, encoded_partition=day, **given)
            )
            assert found.startswith(keys.data_prefix(settings, name))
            assert keys.parse_data_key(settings, name, found) == (partition, offset, generation)
            if not is_dead:
                assert keys.encoded_partition_parser(settings, name)(found) == day
                named = keys.named_object_parser(settings, name)(found)
                assert named == keys.NamedObject(day, partition, offset, ".gz", generation)
    assert len(set(made.values())) == len(made)
    for (name, *_), found in made.items():
        for another in (topic, other):
            assert (keys.parse_data_key(settings, another, found) is not None) == (another == name)


@pytest.mark.parametrize(
    "foreign",
    [
        "topics/foo/partition=0/foo-00000-000000000000.gz",
        "topics/foo-00000-000000000000.gz",
        f"topics/{DAY}/x/foo-00000-000000000000.gz",
        f"topics/x/{DAY}/foo-00000-000000000000.gz",
        f"topics/generation-1/{DAY}/foo-00000-000000000000.gz",
        f"topics/generation-2/{DAY}/foo-00000-000000000000-g1.gz",
        f"topics/{DAY}/foo-00000-000000000000-g1.gz",
        f"topics/{DAY}/foo-0-000000000000.gz",
        f"topics/{DAY}/foo-000001-000000000000.gz",
        f"topics/{DAY}/foo-00000-0000000000000.gz",
        f"topics/{DAY}/foo-00000-000000000000.index.json",
        f"other/{DAY}/foo-00000-000000000000.gz",
        "topics/_kafka_s3/foo-00000-000000000000.gz",
        "topics/_dead_letters/bar/foo-00000-000000000000.json",
    ],
)
def test_only_names_that_the_layout_makes_are_parsed(foreign: str) -> None:
    """Other folders, numbers of other widths, other extensions."""
    assert keys.parse_data_key(layout(), "foo", foreign) is None


@pytest.mark.parametrize("topic", [DAY, "tombstone", "_dead_letters", "generation-1"])
def test_a_topic_with_the_name_of_a_shared_folder_is_refused(topic: str) -> None:
    """Another pipeline with other names would have its folder there."""
    with pytest.raises(ConfigurationError, match="has the name of a folder that topics share"):
        key(layout(), topic=topic)
    assert key(Layout(format=JsonLines()), topic=topic)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partitioner": ByPartition()}, "has one folder for each day"),
        ({"partitioner": Daily()}, "has one folder for each day"),
        ({"partitioner": TimePattern(path_format="yyyy/MM-dd", duration_ms=1)}, "has one folder for each day"),
        ({"partitioner": Chain(partitioners=(BY_DAY, ByPartition()))}, "has one folder for each day"),
        (
            {"partitioner": TimePattern(path_format="yyyy-MM-dd", duration_ms=1, timestamp_from=ClockTime())},
            "time of the clock",
        ),
        ({"on_bad_timestamp": "tombstone"}, "the name of another folder"),
        ({"on_bad_timestamp": "2026-01-01"}, "the name of another folder"),
        ({"on_bad_timestamp": "generation-1"}, "the name of another folder"),
        ({"rotation": Rotation(merge_partitions=True)}, "does not go with merge_partitions"),
    ],
)
def test_settings_that_do_not_go_with_the_names_are_refused(settings: dict[str, Any], message: str) -> None:
    """Other folders than one per day, the clock, objects of several Kafka partitions."""
    with pytest.raises(ConfigurationError, match=message):
        layout(**settings)


def test_records_without_a_time_have_a_folder_beside_those_of_days() -> None:
    """If it is named; keys of it are parsed with this layout only."""
    settings = layout(on_bad_timestamp="untimely")
    made = keys.data_key(settings, topic="foo", encoded_partition="untimely", partition=0, first_offset=0, generation=0)
    assert keys.parse_data_key(settings, "foo", made) == (0, 0, 0)
    assert keys.parse_data_key(layout(), "foo", made) is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, Naming()),
        ({}, Naming()),
        ({"file_delim": "-"}, Naming(file_delim="-")),
        ("confluent", Naming()),
        ({"kind": "confluent", "file_delim": "-"}, Naming(file_delim="-")),
        ("deviantart", DeviantArtNaming()),
        ({"kind": "deviantart"}, DeviantArtNaming()),
        (DeviantArtNaming(), DeviantArtNaming()),
    ],
)
def test_a_naming_is_a_value_a_mapping_or_a_kind(given: Any, expected: KeyNaming) -> None:
    """A mapping without a kind is what it has always been."""
    assert parse_naming(given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("deviant", "naming: kind='deviant' is not known"),
        ({"kind": "deviantart", "file_delim": "-"}, "has no 'file_delim'"),
        ({"kind": 1}, "kind=1 is not known"),
        (5, "must be a mapping of settings or a Naming"),
    ],
)
def test_anything_else_is_refused_as_a_naming(given: Any, message: str) -> None:
    """Unknown kinds and fields are named."""
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        parse_naming(given)
    with pytest.raises(ConfigurationError, match="naming=5 must be a KeyNaming"):
        layout(naming=5)


@pytest.mark.parametrize("naming", [Naming(file_delim="-"), DeviantArtNaming()])
def test_a_plan_keeps_its_naming(naming: KeyNaming) -> None:
    """One without a kind is what it has always been, so plans of earlier versions have the same digest."""
    plan = data_plan(Layout(format=JsonLines(), naming=naming, partitioner=BY_DAY), slices_of((0, 0, 1)))
    stored = encode(plan, write_stamp())
    assert decode(Plan, stored, "")[0] == plan
    assert json.loads(stored)["layout"]["naming"].get("kind") == (None if isinstance(naming, Naming) else "deviantart")


def test_a_naming_of_a_newer_version_requires_an_upgrade() -> None:
    """As any other choice that this version does not have."""
    body = json.loads(encode(data_plan(layout(), slices_of((0, 0, 1))), write_stamp()))
    del body["sha256"]
    body |= {"version": "99.0.0"}
    body["layout"]["naming"]["kind"] = "other"
    body["sha256"] = hashlib.sha256(canonical(body)).hexdigest()
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        decode(Plan, canonical(body), "plan")


@pytest.mark.parametrize("topic", ["_foo", ".foo", "foo"])
def test_names_that_readers_skip_are_known(topic: str) -> None:
    """The file is named after the topic, and has no prefix."""
    assert keys.is_hidden(layout(), topic) == (topic != "foo")
