"""Names that Kafka, a DAG author or a trigger of a run may contain: none leaves its prefix, no two share a key."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import (
    ByField,
    Chain,
    Daily,
    JsonLines,
    Layout,
    Naming,
    RawBytes,
    TimePattern,
    parse_partitioner,
)
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.layout.partitioners import make_partitioner

NASTY = (
    "...",
    "....",
    "a..b",
    "-",
    "_",
    "__consumer_offsets",
    "_owners",
    "_doctor",
    "batches",
    "runs",
    "marker.json",
    "plan.json",
    "0000000001.plan.json",
    "events",
    "events.json",
    "events-partition",
    "partition",
    "year",
    "topics",
    "a" * 249,
    "A",
    "a",
)
"""Legal names of topics that look like something else: folders, documents, files, one another."""

legal = st.text("abAB01._-", min_size=1, max_size=12) | st.sampled_from(NASTY)
topics = legal.filter(lambda name: name not in (".", "..") and not name.startswith(keys.CONTROL_DIR))
pipelines = (legal | st.sampled_from([n.strip("_-.") or "x" for n in NASTY])).filter(
    lambda name: name[0].isalnum() and len(name) <= 128
)
prefixes = st.sampled_from(["topics", "", "a/b", "raw topics"])
topic_prefixes = st.sampled_from(["", "topic=", "=", "t+", "a_=", "a=b-é", "1~"])
numbers = st.integers(0, 2**31 - 1)
offsets = st.integers(0, 2**63 - 1)


def control_keys(topics_dir: str, pipeline: str, topic: str) -> set[str]:
    """Every document of a topic of a pipeline."""
    prefix = addresses.control_prefix(topics_dir, pipeline, topic)
    return {
        addresses.marker_key(prefix),
        *(make(prefix, n) for make in (addresses.plan_key, addresses.manifest_key) for n in (1, 10**10 - 1)),
        addresses.amend_key(prefix, 1, 1),
        addresses.schema_key(prefix, 1),
        *(addresses.run_key(prefix, run) for run in ("", ".", "../x", "marker.json", topic, "a/b")),
    }


@given(prefixes, pipelines, topics, pipelines, topics)
def test_no_two_topics_of_no_two_pipelines_share_a_control_document(
    topics_dir: str, pipeline: str, topic: str, other_pipeline: str, other_topic: str
) -> None:
    """No document is outside of its own folder, or at the key of an owner's or the doctor's."""
    mine, theirs = control_keys(topics_dir, pipeline, topic), control_keys(topics_dir, other_pipeline, other_topic)
    assert (mine == theirs) if (pipeline, topic) == (other_pipeline, other_topic) else not mine & theirs
    prefix = addresses.control_prefix(topics_dir, pipeline, topic)
    assert all(key.startswith(prefix) and ".." not in key.split("/") for key in mine)
    shared = {
        addresses.owner_key(topics_dir, topic),
        addresses.owner_key(topics_dir, other_topic),
        addresses.probe_key(topics_dir),
    }
    assert not (mine | theirs) & shared
    assert len(shared) == (2 if topic == other_topic else 3)


@given(
    topics_dir=prefixes,
    topic=topics,
    other=topics,
    kind=st.sampled_from(["partition", "daily", "hourly", "time"]),
    delims=st.sampled_from([("/", "+"), ("/", "-"), ("/x/", "."), ("=", "+"), ("_", "#")]),
    topic_prefix=topic_prefixes,
    where=st.tuples(numbers, offsets, st.integers(0, 9), numbers, offsets, st.integers(0, 9)),
)
def test_no_two_topics_share_an_object(
    topics_dir: str,
    topic: str,
    other: str,
    kind: str,
    delims: tuple[str, str],
    topic_prefix: str,
    where: tuple[int, int, int, int, int, int],
) -> None:
    """Under one layout; each key is below its prefix, and is parsed correctly, with its own topic only."""
    own = {"path_format": "'a-x'/'a'YYYY", "duration_ms": 1} if kind == "time" else {}
    layout = Layout(
        topics_dir=topics_dir,
        format=JsonLines(),
        partitioner=parse_partitioner({"kind": kind, **own}),
        naming=Naming(directory_delim=delims[0], file_delim=delims[1], topic_prefix=topic_prefix),
    )
    path = make_partitioner(layout).longest
    made = {}
    for name, (partition, offset, generation) in ((topic, where[:3]), (other, where[3:])):
        key = keys.data_key(
            layout,
            topic=name,
            encoded_partition=path,
            partition=partition,
            first_offset=offset,
            generation=generation,
        )
        assert key.startswith(keys.data_prefix(layout, name))
        assert not any(part in ("", ".", "..") or part.startswith(keys.CONTROL_DIR) for part in key.split("/"))
        assert keys.parse_data_key(layout, name, key) == (partition, offset, generation)
        made[name, partition, offset, generation] = key
    assert len(set(made.values())) == len(made)
    if topic != other:
        assert keys.parse_data_key(layout, other, made[topic, *where[:3]]) is None


@given(topics, topic_prefixes, topics, topic_prefixes, st.sampled_from(["+", "-", "=", "_x"]))
def test_no_two_topics_share_an_object_whatever_prefix_each_has(
    topic: str, prefix: str, other: str, other_prefix: str, delim: str
) -> None:
    """Two pipelines may name the objects of their topics differently under one ``topics_dir``."""
    one, two = (
        Layout(format=JsonLines(), naming=Naming(file_delim=delim, topic_prefix=chosen))
        for chosen in (prefix, other_prefix)
    )
    mine, theirs = keys.data_prefix(one, topic), keys.data_prefix(two, other)
    assert (mine == theirs) == ((prefix, topic) == (other_prefix, other))
    assert not theirs.startswith(mine) or mine == theirs
    assert keys.topic_of_folder(mine.rstrip("/").rpartition("/")[2]) == topic
    key = keys.data_key(one, topic=topic, encoded_partition="x", partition=1, first_offset=2, generation=3)
    assert keys.parse_data_key(one, topic, key) == (1, 2, 3)
    assert (keys.parse_data_key(two, other, key) is None) == (mine != theirs)


@given(topics, topic_prefixes)
def test_readers_skip_no_object_of_a_topic_with_a_prefix(topic: str, prefix: str) -> None:
    """Neither its folder nor its file; without one they skip those of topics that begin with ``_`` or ``.``."""
    layout = Layout(format=JsonLines(), naming=Naming(topic_prefix=prefix))
    key = keys.data_key(layout, topic=topic, encoded_partition="x=1", partition=0, first_offset=0, generation=0)
    skipped = [part for part in key.split("/") if part.startswith(("_", "."))]
    assert len(skipped) == (2 if prefix == "" and topic[0] in "_." else 0)
    assert keys.is_hidden(layout, topic) == bool(skipped)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"partitioner": ByField(names=("__deleted",))}, "topics/orders/__deleted=…"),
        ({"partitioner": Chain(partitioners=(Daily(), ByField(names=("a", "__op"))))}, "topics/orders/__op=…"),
        ({"partitioner": TimePattern(path_format="'_day'=YYYY", duration_ms=1)}, "topics/orders/'_day'=YYYY"),
        (
            {"partitioner": TimePattern(path_format="YYYY", duration_ms=1), "on_bad_timestamp": "__HIVE__"},
            "topics/orders/__HIVE__/…",
        ),
        ({"partitioner": Daily(), "on_bad_timestamp": "__HIVE__"}, None),
        ({"partitioner": ByField(names=("a.__op", "deleted_"))}, None),
    ],
    ids=str,
)
def test_folders_that_readers_skip_are_known_with_what_avoids_them(settings: dict[str, Any], name: str | None) -> None:
    """Of fields, of patterns, and of records without a time; not those of ``name=value`` with such a value."""
    found = keys.hidden_names(Layout(format=JsonLines(), **settings), "orders")
    assert list(found) == ([name] if name else [])
    assert keys.is_hidden(Layout(format=JsonLines(), **settings), "orders") == (name is not None)


@given(
    st.text("'/._-+x\\ \x00\u202eYMdHS", max_size=20)
    | st.sampled_from(["'../../x'", "'_kafka_s3'/YYYY", "'%2e%2e'", "/"]),
    st.sampled_from(["/", "//", "../", "_kafka_s3/", "/../", "\x00", "/_kafka_s3"]),
    st.sampled_from(["+", "..", "../", "\n"]),
    st.sampled_from(["topics", "../x", "/etc", "a//b", "_kafka_s3", "x/_kafka_s3/y", "a/.", "\x7f"]),
    st.sampled_from([".bin", "", ".", "/x", "..", ".bin/../x", "bin"]),
)
def test_a_layout_names_objects_below_its_prefix_or_is_refused(
    pattern: str, delim: str, file_delim: str, topics_dir: str, extension: str
) -> None:
    """Patterns, delimiters, prefixes and extensions: whatever they contain, a key is safe, or there is an error."""
    try:
        layout = Layout(
            topics_dir=topics_dir,
            format=RawBytes(extension=extension),
            partitioner=TimePattern(path_format=pattern, duration_ms=3_600_000),
            naming=Naming(directory_delim=delim, file_delim=file_delim),
        )
        path = make_partitioner(layout).longest
        key = keys.data_key(layout, topic="events", encoded_partition=path, partition=0, first_offset=0, generation=0)
    except ConfigurationError:
        return
    assert key.startswith(keys.data_prefix(layout, "events"))
    assert key.startswith(f"{topics_dir}")
    assert not any(part in ("", ".", "..") or part.startswith(keys.CONTROL_DIR) for part in key.split("/"))
    assert key.isprintable() or "\u202e" in key


def test_similar_names_have_different_keys() -> None:
    """Case, dots and dashes matter: no two of these share a key."""
    for one, other in itertools.combinations(NASTY, 2):
        assert not control_keys("topics", "p", one) & control_keys("topics", "p", other)
        assert addresses.owner_key("topics", one) != addresses.owner_key("topics", other)


@pytest.mark.parametrize("topic", [".", "..", "_kafka_s3", "_kafka_s3x", "a" * 250, "", "a/b", "a\n", "ä", "a b"])
def test_illegal_and_reserved_names_are_refused_everywhere(topic: str) -> None:
    """Before a key is made of them."""
    layout = Layout(format=JsonLines())
    for make in (
        lambda: addresses.control_prefix("topics", "p", topic),
        lambda: addresses.owner_key("topics", topic),
        lambda: keys.data_key(layout, topic=topic, encoded_partition="x", partition=0, first_offset=0, generation=0),
    ):
        with pytest.raises(ConfigurationError):
            make()
