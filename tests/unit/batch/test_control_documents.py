"""Control documents have one canonical form and a checksum, and every invalid one is refused."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3 import __version__
from airflow_provider_kafka_s3.config import AvroConverter, JsonLines, Layout, Parquet, Rotation
from airflow_provider_kafka_s3.documents.codec import (
    FORMAT,
    MAX_BATCH,
    Document,
    builtins,
    canonical,
    decode,
    digest,
    encode,
    write_stamp,
)
from airflow_provider_kafka_s3.documents.log_index import IndexedBatch, LogIndex
from airflow_provider_kafka_s3.documents.manifest import Amend, Manifest, ObjectEntry, SliceResult
from airflow_provider_kafka_s3.documents.marker import ClosedGeneration, Marker, PartitionState
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets
from airflow_provider_kafka_s3.documents.owner import Owner
from airflow_provider_kafka_s3.documents.plan import Plan, Slice, layout_digest
from airflow_provider_kafka_s3.documents.replay import ReplayObject, ReplayPlan
from airflow_provider_kafka_s3.documents.run import RunRecord
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    ControlError,
    CorruptControlError,
    UnsupportedFormatError,
)

LAYOUT = Layout(format=JsonLines(compression="gzip"), rotation=Rotation(flush_size=5))

ENTRY = ObjectEntry(
    key="topics/t/partition=0/t+0+0000000000.json.gz",
    slices=(0,),
    nonce="n",
    upload_id="u",
    parts=(('"e"', "c"),),
    checksum_algorithm="CRC32",
    size=10,
    crc32="00000000",
    content="c" * 64,
    records=4,
    min_offset=0,
    max_offset=4,
)


def plan(**changes: Any) -> Plan:
    """A valid plan of one slice, with changes."""
    fields: dict[str, Any] = {
        "batch": 1,
        "type": "data",
        "topic": "t",
        "topic_id": "id",
        "generation": 0,
        "run": "r",
        "tail": True,
        "isolation": "read_committed",
        "slices": (Slice(id=0, partition=0, start=0, end=5),),
        "skipped": NO_OFFSETS,
        "layout": LAYOUT,
        "layout_sha256": layout_digest(LAYOUT),
    }
    return Plan(**(fields | changes))


def manifest(**changes: Any) -> Manifest:
    """A valid commit of that plan, with changes."""
    fields: dict[str, Any] = {
        "batch": 1,
        "plan_sha256": "p",
        "status": "commit",
        "run": "r",
        "slices": (SliceResult(id=0, records=4, ignored=0, next_offset=5),),
        "objects": (ENTRY,),
    }
    return Manifest(**(fields | changes))


def marker(**changes: Any) -> Marker:
    """A valid marker, with changes."""
    fields: dict[str, Any] = {"topic": "t", "cluster_id": "c", "topic_id": "id", "start": {0: 3}}
    return Marker(**(fields | changes))


INDEXED = IndexedBatch(
    batch=1,
    type="data",
    status="commit",
    generation=0,
    topic_id="id",
    run="r",
    decided_by="r",
    claim=Offsets({0: [(0, 5)]}),
    skipped=NO_OFFSETS,
    plan_sha256="0" * 64,
    manifest_sha256="0" * 64,
    same_layout_as=1,
)

RUN = RunRecord(
    run="r",
    offsets="incremental",
    params={},
    topic_id="id",
    generation=0,
    target=Offsets({0: [(0, 5)]}),
    low=1,
    layout_sha256="",
)

REPLAYED = ReplayObject(batch=1, key="k", slice=0, records=2, low=3, high=4)
REPLAY = ReplayPlan(
    replay="r",
    nonce="0" * 8,
    topic="t",
    target="t2",
    cluster_id="",
    target_id="",
    batch=1,
    settings={},
    partitions={0: ((REPLAYED,),)},
)
IMPOSSIBLE_OBJECTS: tuple[dict[str, int], ...] = (
    *({"records": 0}, {"records": 3}, {"batch": 0}, {"slice": -1}),
    {"low": -1, "high": 0},
)

DOCUMENTS: list[Document] = [
    plan(),
    plan(type="reset", slices=(), layout=None, layout_sha256="", new_topic_id="other", skipped=NO_OFFSETS),
    manifest(),
    manifest(status="abandoned", release="debt", slices=(), objects=()),
    marker(
        generation=1,
        resolved=((1, 4), (6, 7)),
        partitions={0: PartitionState(covered=((0, 5),), lost=((1, 2),), debt=((7, 9),))},
        history=(ClosedGeneration(generation=0, topic_id="old", partitions={}),),
    ),
    RUN,
    REPLAY,
    Owner(pipeline="p", topic="t"),
    Amend(batch=1, keys=("k",), reason="", operator=""),
    LogIndex(topic="t", first=1, batches=(INDEXED,)),
]


def rewritten(document: Document, change: dict[str, Any]) -> bytes:
    """A document with other content and a valid checksum, as a hostile writer can make it."""
    body = json.loads(encode(document, {}))
    body.pop("sha256")
    body.update(change)
    body["sha256"] = digest(body)
    return canonical(body)


def test_the_canonical_form_is_sorted_dense_utf8_with_a_newline() -> None:
    """One value has one form, in any order of its fields."""
    assert canonical({"b": [1, 2], "a": "é"}) == '{"a":"é","b":[1,2]}\n'.encode()
    assert digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: type(d).__name__)
def test_every_document_is_read_back_as_it_was_written(document: Document) -> None:
    """A document read back is equal and has its checksum and stamp; two writes differ by their stamp only."""
    body = encode(document, write_stamp())
    read, beside = decode(type(document), body, "here")
    assert read == document
    assert beside["sha256"] == digest({k: v for k, v in json.loads(body).items() if k != "sha256"})
    assert body == canonical(json.loads(body))
    assert encode(document, write_stamp()) != body
    assert encode(document, {}) == encode(document, {})


@pytest.mark.parametrize(
    ("document", "what"),
    [
        (plan(), r"\(plan\) of topic 't' of .*: here\. Let the batch have fewer objects"),
        (manifest(), r"\(manifest\) of .*: here\. Let the batch have fewer objects"),
        (marker(), r"\(marker\) of topic 't' of .*: here\. Land the gaps between landed offsets"),
        (
            LogIndex(topic="t", first=1, batches=(INDEXED,)),
            r"\(logindex\) of topic 't' of .*: here\. Nothing depends on it",
        ),
        (Owner(pipeline="p", topic="t"), r"\(owner\) of topic 't' of .*: here\. Report this error"),
    ],
    ids=lambda d: type(d).__name__,
)
def test_a_document_that_is_too_long_is_refused_with_what_makes_it_shorter(
    document: Document, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the topic or the address, and advice for this kind of document."""
    monkeypatch.setattr("airflow_provider_kafka_s3.documents.codec.MAX_BYTES", 100)
    with pytest.raises(ConfigurationError, match=what):
        encode(document, {}, "here")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: type(d).__name__)
def test_a_document_of_a_newer_format_requires_an_upgrade(document: Document) -> None:
    """Even if its checksum and content could be read."""
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        decode(type(document), rewritten(document, {"format": FORMAT + 1}), "here")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: type(d).__name__)
def test_a_changed_byte_is_noticed(document: Document) -> None:
    """Any change of content breaks the checksum, and the error has the address and the remedy."""
    body = encode(document, write_stamp())
    at = body.index(b'"created_at"') + len(b'"created_at":"')
    with pytest.raises(CorruptControlError, match=r"cannot be trusted.*Restore.*: here$"):
        decode(type(document), body[:at] + b"9" + body[at + 1 :], "here")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: type(d).__name__)
def test_every_truncation_is_noticed(document: Document) -> None:
    """A truncated document is never valid."""
    body = encode(document, write_stamp())
    for length in range(len(body) - 1):
        with pytest.raises(CorruptControlError):
            decode(type(document), body[:length], "here")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "marker"},
        {"kind": None},
        {"format": True},
        {"format": "1"},
        {"format": 0},
        {"unknown": 1},
        {"batch": "1"},
        {"batch": 0},
        {"generation": -1},
        {"slices": [{"id": 0, "partition": 0, "start": 5, "end": 5}]},
        {"slices": [{"id": 0, "partition": -1, "start": 0, "end": 5}]},
        {"slices": [{"id": 1, "partition": 0, "start": 0, "end": 5}]},
        {"slices": [{"id": 0, "partition": 0, "start": 0, "end": 2**63}]},
        {
            "slices": [
                {"id": 0, "partition": 0, "start": 0, "end": 5},
                {"id": 1, "partition": 0, "start": 4, "end": 6},
            ]
        },
        {"slices": []},
        {"skipped": {"0": [[3, 9]]}},
        {"skipped": {"0": [[9, 3]]}},
        {"layout": None},
        {"layout": {"topics_dir": "../x", "format": {"kind": "json"}}},
        {"new_topic_id": "x"},
        {"batch": 2, "start": {"0": 0}},
        {"groups": [[0], []]},
        {"groups": [[0, 0]]},
        {
            "slices": [
                {"id": 0, "partition": 1, "start": 0, "end": 5},
                {"id": 1, "partition": 0, "start": 0, "end": 5},
            ],
            "groups": [[0, 1]],
        },
        {"type": "other"},
        {"isolation": "dirty"},
        {"unknown": 1, "version": __version__},
    ],
    ids=str,
)
def test_an_impossible_plan_is_refused_although_its_checksum_fits(change: dict[str, Any]) -> None:
    """Types, ranges, overlaps, layouts: all checked when a plan is read."""
    with pytest.raises(CorruptControlError):
        decode(Plan, rewritten(plan(), change), "here")


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 1},
        {"revision": -1},
        {"start": {"0": -1}},
        {"start": {"x": 1}},
        {"resolved": [[3, 1]]},
        {"resolved": [[1, 3], [3, 4]]},
        {"partitions": {"0": {"covered": [[0, 5]], "lost": [[4, 6]], "debt": []}}},
        {"partitions": {"0": {"covered": [[0, 5]], "lost": [], "debt": [[4, 6]]}}},
        {"partitions": {"0": {"covered": [[5, 0]], "lost": [], "debt": []}}},
        {"history": [{"generation": 0, "topic_id": "x", "partitions": {}}]},
        {"generation": 1, "history": [{"generation": 7, "topic_id": "x", "partitions": {}}]},
        {"resolved": [[0, 4]]},
        {"resolved": [[1, MAX_BATCH + 2]]},
        {"partitions": {str(2**31): {"covered": [[0, 5]], "lost": [], "debt": []}}},
    ],
    ids=str,
)
def test_an_impossible_marker_is_refused_although_its_checksum_fits(change: dict[str, Any]) -> None:
    """Lost offsets are covered, debt is not, generations are complete."""
    with pytest.raises(CorruptControlError):
        decode(Marker, rewritten(marker(), change), "here")


@pytest.mark.parametrize(
    "change",
    [
        {"status": "abandoned"},
        {"release": "debt"},
        {"status": "reset"},
        {"status": "maybe"},
        {"objects": [msgspec.to_builtins(ENTRY), msgspec.to_builtins(ENTRY)]},
        {"objects": [{**msgspec.to_builtins(ENTRY), "size": "10"}]},
        {"objects": [{**msgspec.to_builtins(ENTRY), "checksum_algorithm": "MD5"}]},
        {"objects": [{**msgspec.to_builtins(ENTRY), "records": 10**30}]},
        {"objects": [{**msgspec.to_builtins(ENTRY), "parts": [['"e"', "a checksum"]]}]},
        {"objects": [{**msgspec.to_builtins(ENTRY), "crc32": "0"}]},
        {"objects": [{**msgspec.to_builtins(ENTRY), "min_timestamp": 5, "max_timestamp": 4}]},
        {"objects": [{**msgspec.to_builtins(ENTRY), "min_timestamp": -1, "max_timestamp": 4}]},
        {"slices": [{"id": 0, "records": 4, "ignored": 0, "tombstones": 5, "next_offset": 5}]},
        {"slices": [{"id": 0, "records": 4, "ignored": -1, "next_offset": 5}]},
        {"objects": [{**msgspec.to_builtins(ENTRY), "size": 10.0}]},
        {"written_by": 7},
    ],
    ids=lambda c: str(c)[:60],
)
def test_an_impossible_manifest_is_refused_although_its_checksum_fits(change: dict[str, Any]) -> None:
    """A status goes with its fields, and no key is listed twice."""
    with pytest.raises(CorruptControlError):
        decode(Manifest, rewritten(manifest(), change), "here")


@pytest.mark.parametrize("change", [{"target": {}}, {"low": 0}, {"generation": -1}], ids=str)
def test_an_impossible_run_is_refused_although_its_checksum_fits(change: dict[str, Any]) -> None:
    """A run without a target would succeed for ever."""
    with pytest.raises(CorruptControlError):
        decode(RunRecord, rewritten(RUN, change), "here")


@pytest.mark.parametrize(
    "change",
    [
        {"nonce": "../0000"},
        {"batch": -1},
        {"partitions": {"0": []}},
        {"partitions": {"0": [[]]}},
        {"partitions": {str(2**31): [[msgspec.to_builtins(REPLAYED)]]}},
        *({"partitions": {"0": [[{**msgspec.to_builtins(REPLAYED), **one}]]}} for one in IMPOSSIBLE_OBJECTS),
        {"partitions": {}, "foreign": {"0": []}},
    ],
    ids=lambda change: str(change)[:80],
)
def test_an_impossible_plan_of_a_replay_is_refused_although_its_checksum_fits(change: dict[str, Any]) -> None:
    """Names that are made of it are those of documents, and objects have the offsets of their records."""
    with pytest.raises(CorruptControlError):
        decode(ReplayPlan, rewritten(REPLAY, change), "here")


@pytest.mark.parametrize(
    ("document", "change", "what"),
    [
        (plan(), {"priority": 1}, "unknown field `priority`"),
        (plan(), {"slices": [{"id": 0, "partition": 0, "start": 0, "end": 5, "leader": 3}]}, "unknown field `leader`"),
        (plan(), {"layout": {"format": {"kind": "orc"}}}, "Invalid value 'orc' - at `$.layout.format.kind`"),
        (plan(), {"layout": {"format": {"kind": "json", "schema": "x"}}}, "unknown field `schema`"),
        (plan(), {"type": "compaction"}, "enum value 'compaction'"),
        (plan(), {"isolation": "dirty"}, "enum value 'dirty'"),
        (manifest(), {"status": "merged"}, "enum value 'merged'"),
        (manifest(), {"objects": [msgspec.to_builtins(ENTRY) | {"checksum_algorithm": "XXH3"}]}, "enum value 'XXH3'"),
        (marker(), {"partitions": {"0": {"covered": [], "epoch": 7}}}, "unknown field `epoch`"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_document_of_a_newer_worker_is_an_error_that_names_the_upgrade(
    document: Document, change: dict[str, Any], what: str
) -> None:
    """A fleet is not upgraded at once. The error names both versions. A wrong checksum stays corrupt."""
    body = rewritten(document, change | {"version": "9.1.0"})
    with pytest.raises(UnsupportedFormatError) as caught:
        decode(type(document), body, "s3://lake/here")
    kind = type(document).__name__.lower()
    assert str(caught.value).startswith(
        f"upgrade airflow-provider-kafka-s3 here: this worker has version {__version__}, and version 9.1.0 wrote the "
        f"{kind}, which this one does not support ("
    )
    assert what in str(caught.value)
    assert str(caught.value).endswith("Nothing was changed. See s3://lake/here")
    with pytest.raises(CorruptControlError, match="checksum"):
        decode(type(document), body.replace(b'"version":"9.1.0"', b'"version":"9.1.1"'), "s3://lake/here")


def test_a_long_version_in_a_document_is_truncated() -> None:
    """The version comes from the document, and the error is one line; the document may have no version."""
    for version, shown in (
        ("\n" + "9" * 1_000, "version \\\\n9{39}… and 961 characters more"),
        (None, "an unknown version"),
    ):
        with pytest.raises(UnsupportedFormatError, match=f"and {shown} wrote the plan"):
            decode(Plan, rewritten(plan(), {"format": FORMAT + 1, "version": version}), "here")


OTHER = msgspec.structs.replace


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        (manifest(batch=2), "decides batch 2"),
        (manifest(status="reset", slices=(), objects=()), "'data' cannot be reset"),
        (manifest(slices=(), objects=()), "its slices are"),
        (manifest(slices=(SliceResult(id=1, records=4, ignored=0, next_offset=5),)), "its slices are"),
        (manifest(slices=(SliceResult(id=0, records=4, ignored=0, next_offset=4),)), "was read to 4, not to 5"),
        (manifest(slices=(SliceResult(id=0, records=5, ignored=0, next_offset=5),)), "do not add up"),
        (manifest(objects=()), "do not add up"),
        (
            manifest(slices=(SliceResult(id=0, records=4, ignored=0, dead_letters=1, next_offset=5),)),
            "do not add up to its 1 dead letters",
        ),
        (manifest(objects=(OTHER(ENTRY, records=3), OTHER(ENTRY, key=f"{ENTRY.key}.keys", records=1))), "is not named"),
        (manifest(objects=(OTHER(ENTRY, slices=(1,)),)), "belongs to slices"),
        (manifest(objects=(OTHER(ENTRY, slices=(0, 0)),)), "belongs to slices"),
        (manifest(objects=(OTHER(ENTRY, max_offset=5),)), "does not lie within"),
        (manifest(objects=(OTHER(ENTRY, min_offset=-1),)), "does not lie within"),
        (manifest(objects=(OTHER(ENTRY, min_offset=4, max_offset=3),)), "does not lie within"),
        (manifest(objects=(OTHER(ENTRY, records=0),)), "does not lie within"),
        (manifest(objects=(OTHER(ENTRY, records=6),)), "does not lie within"),
        (manifest(objects=(OTHER(ENTRY, key="elsewhere/t/x"),)), "is not named as"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_commit_that_does_not_fit_its_plan_is_refused(decision: Manifest, why: str) -> None:
    """Exactly the plan's slices, each read to its end, objects within them, records that add up."""
    with pytest.raises(ValueError, match=why):
        decision.check_against(plan())
    manifest().check_against(plan())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.sampled_from([Plan, Manifest, Marker, RunRecord, Owner, Amend]), st.binary(max_size=200))
def test_any_bytes_give_a_document_or_our_own_error(kind: type[Document], data: bytes) -> None:
    """No content of the bucket crashes a reader."""
    with pytest.raises(ControlError):
        decode(kind, data, "here")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(DOCUMENTS), st.data())
def test_a_document_with_any_field_replaced_gives_a_valid_one_or_our_own_error(
    document: Document, data: st.DataObject
) -> None:
    """Hostile content with a valid checksum is refused by type, or harmless."""
    body = json.loads(encode(document, {}))
    name = data.draw(st.sampled_from(sorted(body)))
    value = data.draw(json_values)
    try:
        hostile = rewritten(document, {name: value})
    except ValueError:
        return  # NaN has no canonical form
    with contextlib.suppress(ControlError):
        decode(type(document), hostile, "here")


def test_a_document_nested_without_end_is_refused() -> None:
    """A parser that exhausts the stack raises an error of this package too."""
    with pytest.raises(CorruptControlError):
        decode(Marker, b"[" * 100_000, "here")


def test_a_name_that_occurs_twice_is_refused() -> None:
    """Readers could disagree about its value, and the checksum is that of one of them."""
    body = encode(plan(), {})
    twice = body.replace(b'"topic":"t"', b'"topic":"other","topic":"t"')
    assert twice != body
    with pytest.raises(CorruptControlError, match="a name occurs twice"):
        decode(Plan, twice, "here")


def test_huge_numbers_are_refused() -> None:
    """Python refuses to parse integers of thousands of digits; that is an error of this package too."""
    with pytest.raises(CorruptControlError):
        decode(Marker, b'{"format":' + b"9" * 10_000 + b"}", "here")


def test_a_lone_surrogate_is_refused() -> None:
    """JSON can encode it, UTF-8 cannot: the document has no canonical form."""
    with pytest.raises(CorruptControlError, match="canonical"):
        decode(Marker, b'{"format":1,"kind":"marker","topic":"\\ud800"}', "here")


def test_a_plan_from_before_a_setting_of_the_layout_existed_is_read_as_it_was_meant() -> None:
    """The checksum covers the stored fields; a record without a time is refused."""
    body = json.loads(encode(plan(), write_stamp()))
    del (
        body["layout"]["on_bad_timestamp"],
        body["layout"]["schema_compatibility"],
        body["layout"]["naming"]["schema_affix"],
        body["layout"]["naming"]["kafka_connect_names"],
        body["layout"]["naming"]["lowercase_paths"],
        body["layout"]["naming"]["file_name_template"],
    )
    del body["sha256"]
    body["sha256"] = digest(body)
    stored, beside = decode(Plan, canonical(body), "s3://lake/plan")
    assert stored.layout == LAYOUT
    assert stored.layout is not None
    assert stored.layout.on_bad_timestamp == "fail"
    assert (stored.layout.schema_compatibility, stored.layout.naming.schema_affix) == (None, None)
    assert beside["sha256"] == body["sha256"]


def test_a_plan_from_before_parquet_had_choices_keeps_its_bytes() -> None:
    """The defaults are others now, and a retry of the batch makes the same object again."""
    layout = msgspec.structs.replace(LAYOUT, format=Parquet(), value_converter=AvroConverter())
    earlier = builtins(layout)
    del earlier["format"]["integer_encoding"], earlier["format"]["field_ids"]
    stored, _ = decode(Plan, rewritten(plan(layout=layout), {"layout": earlier}), "s3://lake/plan")
    assert stored.layout == msgspec.structs.replace(
        layout, format=Parquet(integer_encoding="plain", field_ids="schema")
    )
