"""Object keys: Connect's names, no two objects with one name, nothing outside of its prefix."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    AvroConverter,
    JsonLines,
    Layout,
    Naming,
    RawBytes,
    SiblingObjects,
    StringConverter,
)
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.storage import port

VECTORS = Path(__file__).parents[2] / "vectors"
KEY_CASES = json.loads((VECTORS / "object_keys.json").read_text())["cases"]

AVRO = {"format": AvroContainer(), "value_converter": AvroConverter()}

topics = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=20).filter(
    lambda t: t not in (".", "..") and not t.startswith("_kafka_s3")
)
delimiters = st.text(string.ascii_letters + "+-#._|=", min_size=1, max_size=3)
offsets = st.one_of(st.integers(0, 200), st.integers(0, 2**63 - 1))
extensions = st.sampled_from(["", ".bin", ".g1", ".g1.bin", ".json", ".0"])


def layout(**settings: Any) -> Layout:
    """A layout with some settings."""
    return Layout(**{"format": JsonLines(), **settings})


def key(settings: Layout | None = None, **changes: Any) -> str:
    """A key with some arguments changed."""
    arguments = {
        "topic": "flights",
        "encoded_partition": "partition=0",
        "partition": 0,
        "first_offset": 5,
        "generation": 0,
        **changes,
    }
    return keys.data_key(settings or layout(), **arguments)


def test_the_acceptance_vectors_are_all_accounted_for() -> None:
    """K1 to K3 and K10 to K13 run here, K5 to K7 with the split, K9 with the partitioners by field."""
    split = {c["id"] for c in KEY_CASES if "expect_starts" in c}
    fields = {c["id"] for c in KEY_CASES if "fields" in c}
    assert split == {"K5", "K6", "K7"}
    assert fields == {"K9"}
    commit_protocol = {"K16"}
    here = {"K1", "K2", "K3", "K10", "K11", "K12", "K13"}
    assert {c["id"] for c in KEY_CASES} == here | split | fields | commit_protocol


@pytest.mark.parametrize("case", [c for c in KEY_CASES if c.get("format") == "avro"], ids=lambda c: c["id"])
def test_keys_are_those_of_the_acceptance_vectors(case: dict[str, Any]) -> None:
    """Prefix, delimiters, padding, offsets and extension are those of Kafka Connect."""
    settings = layout(**AVRO, naming=Naming(**{k: case[k] for k in ("directory_delim", "file_delim") if k in case}))
    starts = [case["start_offset"]] if "start_offset" in case else range(0, case["records"], case["flush_size"])
    made = [
        key(
            settings,
            topic=case["topic"],
            encoded_partition=f"partition={case['partition']}",
            partition=case["partition"],
            first_offset=start,
        )
        for start in starts
    ]
    assert made == case["expect"]


@pytest.mark.parametrize(("key", "expected"), next(c["infix"] for c in KEY_CASES if c["id"] == "K11"))
def test_keys_of_siblings_are_those_of_the_acceptance_vectors(key: str, expected: str) -> None:
    """The word stands before the extension of the object, if it has this extension."""
    settings = layout(**AVRO, content=SiblingObjects(keys=AvroContainer()), key_converter=StringConverter())
    assert keys.sibling_key(settings, key, ".keys") == expected


def test_an_empty_topics_dir_drops_the_prefix() -> None:
    """K10: the key starts with the topic, without a leading delimiter."""
    assert key(layout(topics_dir=""), topic="t") == "t/partition=0/t+0+0000000005.json"


def test_a_topic_that_contains_an_extension_is_not_changed() -> None:
    """K12: no part of the topic's name is taken for an extension."""
    assert key(topic="this.is.json.dir").startswith("topics/this.is.json.dir/partition=0/this.is.json.dir+0+")


@pytest.mark.parametrize(
    ("compression", "ending"),
    [("none", ".custom"), ("gzip", ".custom.gz"), ("zstd", ".custom.zst"), ("bzip2", ".custom.bz2")],
)
def test_a_custom_extension_ends_the_key(compression: Any, ending: str) -> None:
    """K13: the extension of ``bytes`` comes last, followed by that of the compression."""
    settings = layout(format=RawBytes(extension=".custom", compression=compression))
    assert key(settings) == f"topics/flights/partition=0/flights+0+0000000005{ending}"


@pytest.mark.parametrize(("width", "name"), [(0, "5"), (2, "05"), (20, "00000000000000000005")])
def test_offsets_are_padded_to_the_width(width: int, name: str) -> None:
    """Padding is zeros on the left; width 0 pads nothing."""
    assert key(layout(naming=Naming(offset_pad_width=width))).endswith(f"+0+{name}.json")


def test_offsets_wider_than_the_padding_are_not_cut() -> None:
    """The largest offset has all its 19 digits."""
    assert key(first_offset=2**63 - 1).endswith("+9223372036854775807.json")


def test_a_later_generation_is_part_of_the_name_and_the_first_is_not() -> None:
    """After a reset offsets begin at 0 again, so names contain the generation."""
    assert key(generation=0) == "topics/flights/partition=0/flights+0+0000000005.json"
    assert key(generation=2) == "topics/flights/partition=0/flights+0+0000000005+g2.json"
    assert key(layout(naming=Naming(file_delim="-")), generation=1).endswith("/flights-0-0000000005-g1.json")


@given(
    topic=topics,
    delimiter=delimiters,
    extension=extensions,
    width=st.integers(0, 20),
    one=st.tuples(st.integers(0, 99), offsets, st.integers(0, 12)),
    other=st.tuples(st.integers(0, 99), offsets, st.integers(0, 12)),
)
@example(topic="t", delimiter=".", extension=".g1", width=0, one=(0, 1, 0), other=(0, 1, 1))
def test_names_differ_whenever_partition_offset_or_generation_differ(
    topic: str, delimiter: str, extension: str, width: int, one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    """No two objects of a folder have the same file name, whatever the delimiters and the extension."""
    assume(one != other)
    settings = layout(naming=Naming(file_delim=delimiter, offset_pad_width=width), format=RawBytes(extension=extension))

    def name(of: tuple[int, ...]) -> str:
        return key(settings, topic=topic, encoded_partition="p", partition=of[0], first_offset=of[1], generation=of[2])

    assert name(one) != name(other)


@pytest.mark.parametrize("delimiter", ["1", "+0", "0+", "٣"])
def test_delimiters_with_digits_are_refused(delimiter: str) -> None:
    """Partition 1 offset 11 and partition 11 offset 1 would have the same name."""
    with pytest.raises(ConfigurationError, match=r"file_delim.*digit.*use '\+'"):
        key(layout(naming=Naming(file_delim=delimiter)))


@given(topic=st.text(max_size=30), encoded=st.text(max_size=40), topics_dir=st.sampled_from(["", "topics", "a/b"]))
@example(topic="t", encoded="../../other", topics_dir="topics")
@example(topic="_kafka_s3", encoded="p/batches", topics_dir="")
@example(topic="t", encoded="_kafka_s3/p", topics_dir="")
def test_no_name_leaves_its_prefix_or_enters_the_control_folder(topic: str, encoded: str, topics_dir: str) -> None:
    """Hostile names are refused, or stay below their topic's folder and outside of control documents."""
    try:
        made = key(layout(topics_dir=topics_dir), topic=topic, encoded_partition=encoded)
    except ConfigurationError:
        return
    prefix = f"{topics_dir}/{topic}/" if topics_dir else f"{topic}/"
    assert made.startswith(prefix)
    assert not {"", ".", ".."} & set(made.split("/"))
    assert not any(part.startswith("_kafka_s3") for part in made.split("/"))
    assert len(made.encode()) <= 1024


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a b", "t\n", "ü", "a" * 250, "../x", "%2E%2E"])
def test_topics_that_kafka_does_not_allow_are_refused(topic: str) -> None:
    """The message describes the legal names."""
    with pytest.raises(ConfigurationError, match=r"is not a legal Kafka topic name: use 1 to 249"):
        keys.validate_topic(topic)


@pytest.mark.parametrize("topic", ["_kafka_s3", "_kafka_s3_flights"])
def test_topics_named_like_the_control_folder_are_refused(topic: str) -> None:
    """Their objects would be among control documents."""
    with pytest.raises(ConfigurationError, match="rename the topic or mirror it"):
        keys.validate_topic(topic)


@pytest.mark.parametrize("topic", ["flights", "__consumer_offsets", "a.b-c_D9", "...", "a" * 249])
def test_legal_topics_pass_unchanged(topic: str) -> None:
    """Every name that Kafka allows can be landed, except that of the control folder."""
    assert keys.validate_topic(topic) == topic


@pytest.mark.parametrize("pipeline", ["", "_owners", ".", "..", "a/b", "a b", "-x", "é", "a" * 129, "a\n"])
def test_illegal_pipeline_names_are_refused(pipeline: str) -> None:
    """The message describes the legal names."""
    with pytest.raises(ConfigurationError, match=r"pipeline=.*is not a legal name: use 1 to 128"):
        addresses.validate_pipeline(pipeline)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("a//b", "folder ''"),
        ("/a", "folder ''"),
        ("a/../b", "folder '..'"),
        ("a/./b", "folder '.'"),
        ("a/", "folder ''"),
        ("", "folder ''"),
        ("a/_kafka_s3/b", "control documents"),
        ("a\x00b", "cannot be listed"),
        ("a\nb", "cannot be listed"),
        ("a\x7fb", "cannot be listed"),
        ("a\ud800b", "cannot be listed"),
        ("a\uffffb", "cannot be listed"),
        ("a" * 1025, "1025 bytes where 1 to 1024"),
        ("é" * 513, "1026 bytes where 1 to 1024"),
    ],
)
def test_unsafe_keys_are_refused_with_the_reason(bad: str, reason: str) -> None:
    """No object has a key that a tool could remove, resolve or fail to list."""
    with pytest.raises(ConfigurationError, match=reason):
        keys.validate_key(bad)


def test_the_longest_legal_key_passes() -> None:
    """The limit is 1,024 bytes of UTF-8, not characters."""
    assert keys.validate_key("é" * 512) == "é" * 512


def test_keys_are_as_long_as_stores_accept_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a key's length is defined once, in the interface to the store."""
    monkeypatch.setattr(port, "MAX_KEY_BYTES", 300)
    assert keys.validate_key("a" * 300) == "a" * 300
    with pytest.raises(ConfigurationError, match="301 bytes where 1 to 300"):
        keys.validate_key("a" * 301)
    with pytest.raises(ConfigurationError, match="bytes where 1 to 44"):
        addresses.control_prefix("a" * 44, "lake", "flights")


def test_control_documents_have_the_names_of_the_protocol() -> None:
    """Every control key, literally."""
    prefix = addresses.control_prefix("topics", "lake", "flights")
    assert prefix == "topics/_kafka_s3/lake/flights/"
    assert addresses.marker_key(prefix) == "topics/_kafka_s3/lake/flights/marker.json"
    assert addresses.plan_key(prefix, 7) == "topics/_kafka_s3/lake/flights/batches/0000000007.plan.json"
    assert addresses.manifest_key(prefix, 12) == "topics/_kafka_s3/lake/flights/batches/0000000012.manifest.json"
    assert addresses.amend_key(prefix, 12, 1) == "topics/_kafka_s3/lake/flights/batches/0000000012.amend.1.json"
    assert addresses.run_key(prefix, "r-1") == "topics/_kafka_s3/lake/flights/runs/r-1.json"
    assert addresses.schema_key(prefix, 7) == "topics/_kafka_s3/lake/flights/schemas/7.json"
    assert addresses.owner_key("topics", "flights") == "topics/_kafka_s3/_owners/flights.json"


def test_an_empty_topics_dir_drops_the_control_prefix_too() -> None:
    """No key begins with a slash."""
    assert addresses.control_prefix("", "lake", "flights") == "_kafka_s3/lake/flights/"
    assert addresses.owner_key("", "flights") == "_kafka_s3/_owners/flights.json"


def test_a_topics_dir_without_room_for_control_documents_is_refused() -> None:
    """Found before a document is written, not in the middle of a batch."""
    assert len(addresses.control_prefix("d" * 700, "lake", "flights")) == 724
    with pytest.raises(ConfigurationError, match="shorter topics_dir"):
        addresses.control_prefix("d" * 800, "lake", "flights")


def test_every_control_key_fits_below_the_longest_prefix() -> None:
    """The bytes that a prefix reserves are enough for the longest document name."""
    prefix = "x" * (1024 - 256)
    run = addresses.run_name(dag_id="d" * 250, task_id="t" * 250, run_id="r" * 250, map_index=10**9)
    names = [
        addresses.run_key(prefix, run),
        addresses.plan_key(prefix, 2**63),
        addresses.amend_key(prefix, 2**63, 2**63),
        addresses.schema_key(prefix, -(2**31)),
    ]
    assert all(len(name) <= 1024 for name in names)


@given(st.text(max_size=40))
@example("..")
@example("~")
@example("\ud800")
@example("a/../../b")
def test_any_run_stays_one_document_in_its_folder(run: str) -> None:
    """A run's name may be any text; its record is always one object below ``runs/``."""
    name = addresses.run_key("c/", run).removeprefix("c/runs/")
    assert "/" not in name
    assert name.endswith(".json")
    assert name.isascii()


@given(st.text(max_size=10), st.text(max_size=10))
def test_encoding_keeps_different_texts_different(one: str, other: str) -> None:
    """Two names never have the same key."""
    assert (addresses.encode_part(one) == addresses.encode_part(other)) == (one == other)


def test_a_run_has_one_name_for_all_its_tries() -> None:
    """The name is readable, and depends on dag, task, run and map index only."""
    name = addresses.run_name(dag_id="land", task_id="flights", run_id="scheduled__2026-01-02T00:00:00+00:00")
    assert name.startswith("land.flights.scheduled_2026-01-02T00_00_00_00_00-")
    assert name == addresses.run_name(
        dag_id="land", task_id="flights", run_id="scheduled__2026-01-02T00:00:00+00:00", map_index=-1
    )
    assert addresses.encode_part(name) == name


def test_runs_with_the_same_readable_part_have_different_names() -> None:
    """The readable part may be the same; the digest behind it is not."""
    names = {
        addresses.run_name(dag_id=d, task_id=t, run_id=r, map_index=m)
        for d, t, r, m in [("a", "b.c", "r", -1), ("a.b", "c", "r", -1), ("a", "b", "c.r", -1), ("a", "b.c", "r", 0)]
    }
    assert len(names) == 4
