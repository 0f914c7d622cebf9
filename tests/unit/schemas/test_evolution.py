"""Schemas that change inside objects: the verdicts, and where objects begin."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.evolution import (
    NO_SCHEMA,
    Compatibility,
    SchemaRotation,
    SchemaVersion,
    decide,
    object_counts,
    schema_groups,
)
from airflow_provider_kafka_s3.schemas.projection import SchemaChangeError, projection

VECTORS = Path(__file__).parents[2] / "vectors"
ROTATION = {c["id"]: c for c in json.loads((VECTORS / "rotation.json").read_text())["cases"]}
CORPUS = {c["id"]: c for c in json.loads((VECTORS / "connect_corpus.json").read_text())["cases"]}
MODES: tuple[Compatibility, ...] = get_args(Compatibility)
PROJECTING: tuple[Compatibility, ...] = ("BACKWARD", "FORWARD", "FULL")


def schema(version: int | None, *fields: Any, name: str = "acme.R") -> SchemaVersion:
    """A version of a record schema; fields are pairs of name and type, with a default as third."""
    of = [{"name": f[0], "type": f[1], **({"default": f[2]} if len(f) == 3 else {})} for f in fields]
    return SchemaVersion(parse_schema(json.dumps({"type": "record", "name": name, "fields": of})), version)


OLD = schema(1, ("seq", "long"))
NEW = schema(2, ("seq", "long"), ("x", ["null", "string"], None))


def split(
    rotation: SchemaRotation,
    ids: Sequence[int],
    codes: Sequence[int] | None = None,
    *,
    flush_size: int = 10**9,
    cuts: Iterable[int] = (),
) -> list[tuple[int, list[int], int]]:
    """The objects of records that arrive in batches cut at ``cuts``: encoded partition, rows, schema."""
    where = [0] * len(ids) if codes is None else list(codes)
    objects: list[tuple[int, list[int], int]] = []
    still_open: dict[int, list[int]] = {}
    records = 0

    def close() -> None:
        objects.extend((code, rows, rotation.target(str(code))) for code, rows in still_open.items())
        still_open.clear()
        rotation.reset()

    edges = sorted({0, len(ids), *(cut for cut in cuts if cut < len(ids))})
    for low, high in itertools.pairwise(edges):
        batch_codes = sorted(set(where[low:high]), reverse=True)  # codes have a meaning in one batch only
        of_batch = np.array([batch_codes.index(c) for c in where[low:high]], np.intp)
        start = 0
        while start < high - low:
            stop = rotation.first_roll(
                np.array(ids[low:high], np.intp),
                of_batch,
                [str(c) for c in batch_codes],
                start,
                min(high - low, start + flush_size - records),
            )
            for row in range(low + start, low + stop):
                still_open.setdefault(where[row], []).append(row)
            records += stop - start
            if stop == start or records == flush_size:
                close()
                records = 0
            start = stop
    close()
    return objects


def record_by_record(
    mode: Compatibility, schemas: Sequence[SchemaVersion], ids: Sequence[int], codes: Sequence[int], flush_size: int
) -> list[tuple[int, list[int], int]]:
    """The same as Kafka Connect does it: one record after the other."""
    objects: list[tuple[int, list[int], int]] = []
    still_open: dict[int, tuple[list[int], int]] = {}
    for row, (index, code) in enumerate(zip(ids, codes, strict=True)):
        if code in still_open and index != still_open[code][1]:
            target = still_open[code][1]
            if NO_SCHEMA in (index, target) or decide(mode, schemas[target], schemas[index]) == "roll":
                objects += [(c, rows, t) for c, (rows, t) in still_open.items()]
                still_open.clear()
        still_open.setdefault(code, ([], index))[0].append(row)
        if sum(len(rows) for rows, _ in still_open.values()) == flush_size:
            objects += [(c, rows, t) for c, (rows, t) in still_open.items()]
            still_open.clear()
    return objects + [(c, rows, t) for c, (rows, t) in still_open.items()]


# --- The verdict of one record ---


@pytest.mark.parametrize(
    ("mode", "current", "record", "verdict"),
    [
        ("NONE", OLD, OLD, "keep"),
        ("NONE", OLD, schema(1, ("seq", "long")), "keep"),
        ("NONE", OLD, schema(2, ("seq", "long")), "roll"),
        ("NONE", OLD, NEW, "roll"),
        ("NONE", schema(None, ("a", "int")), schema(None, ("a", "int")), "keep"),
        ("NONE", schema(None, ("a", "int")), schema(None, ("a", "long")), "roll"),
        ("NONE", schema(1, ("a", "int")), schema(1, ("a", "int", 1)), "roll"),
        ("NONE", schema(1, ("a", "int"), ("b", "int")), schema(1, ("b", "int"), ("a", "int")), "roll"),
        *[
            case
            for mode in ("BACKWARD", "FULL")
            for case in (
                (mode, OLD, OLD, "keep"),
                (mode, NEW, OLD, "project"),
                (mode, OLD, NEW, "roll"),
                (mode, OLD, schema(1, ("seq", "int")), "project"),
                (mode, schema(2, ("seq", "long")), OLD, "keep"),
                (mode, OLD, schema(2, ("seq", "long")), "roll"),
            )
        ],
        ("FORWARD", OLD, OLD, "keep"),
        ("FORWARD", OLD, NEW, "project"),
        ("FORWARD", NEW, OLD, "roll"),
        ("FORWARD", OLD, schema(1, ("seq", "int")), "project"),
        ("FORWARD", OLD, schema(2, ("seq", "long")), "keep"),
        ("FORWARD", schema(2, ("seq", "long")), OLD, "roll"),
    ],
)
def test_the_mode_and_the_versions_decide(
    mode: Compatibility, current: SchemaVersion, record: SchemaVersion, verdict: str
) -> None:
    """NONE compares schemas and versions; the others project in one direction of the versions."""
    assert decide(mode, current, record) == verdict


@pytest.mark.parametrize("mode", PROJECTING)
@pytest.mark.parametrize(
    ("current", "record"),
    [
        (schema(1, ("a", "int")), schema(1, ("a", "long"))),
        (schema(1, ("a", "string")), schema(1, ("a", "bytes"))),
        (schema(1, name="acme.R"), schema(1, name="acme.S")),
        (schema(1, ("a", "int")), schema(1, ("a", ["null", "int"]))),
        (schema(1, ("a", "int")), schema(1)),
        (
            schema(1, ("a", {"type": "enum", "name": "E", "symbols": ["A"]})),
            schema(1, ("a", {"type": "enum", "name": "E", "symbols": ["A", "B"]})),
        ),
    ],
)
def test_a_record_that_cannot_be_projected_begins_a_new_object(
    mode: Compatibility, current: SchemaVersion, record: SchemaVersion
) -> None:
    """Also where the versions would allow a projection; the projection itself is an error."""
    assert decide(mode, current, record) == "roll"
    with pytest.raises(SchemaChangeError):
        projection(record.node, current.node)


@pytest.mark.parametrize("mode", PROJECTING)
@pytest.mark.parametrize(
    ("current", "record", "whose"),
    [
        (SchemaVersion(OLD.node, None), NEW, "open object's"),
        (OLD, SchemaVersion(NEW.node, None), "record's"),
        (SchemaVersion(OLD.node, None), OLD, "open object's"),
    ],
)
def test_a_missing_version_is_an_error_when_schemas_change(
    mode: Compatibility, current: SchemaVersion, record: SchemaVersion, whose: str
) -> None:
    """The message names the schema and the mode."""
    with pytest.raises(SchemaChangeError, match=f"the {whose} schema has no version, which the compatibility {mode}"):
        decide(mode, current, record)


@pytest.mark.parametrize("mode", MODES)
def test_one_schema_without_a_version_is_kept(mode: Compatibility) -> None:
    """W8: versions are compared only when the schema changes."""
    assert decide(mode, SchemaVersion(OLD.node, None), SchemaVersion(OLD.node, None)) == "keep"


@pytest.mark.parametrize("mode", PROJECTING)
def test_recursive_schemas_are_compared(mode: Compatibility) -> None:
    """A record that contains itself does not make the comparison endless; it has no columns, so it is not projected."""
    one, same, wider = (
        schema(1, ("n", of), ("next", ["null", "acme.R"]))
        for of in ("long", "long", "int")  # int becomes long
    )
    assert decide(mode, one, same) == "keep"
    assert decide(mode, one, wider) == "roll"
    assert decide(mode, wider, one) == "roll"


# --- Where objects begin ---


def test_alternating_schemas_make_an_object_for_each_record_without_compatibility() -> None:
    """W5."""
    case = ROTATION["W5"]
    names = case["schemas_alternate"]
    ids = [i % len(names) for i in range(case["records"])]
    objects = split(SchemaRotation(case["compatibility"], [OLD, NEW]), ids, flush_size=case["flush_size"])
    assert objects == [(0, [row], ids[row]) for row in range(case["records"])]


def test_forward_compatibility_projects_newer_records() -> None:
    """W7: the first record, a newer one, stays alone; then two fill each object."""
    case = ROTATION["W7"]
    ids = [1, 0, 1, 0, 1, 0, 1]
    objects = split(SchemaRotation(case["compatibility"], [OLD, NEW]), ids, flush_size=2)
    starts = [case["first_offset"] + rows[0] for _, rows, _ in objects]
    assert [*starts, case["first_offset"] + len(ids)] == case["expect_bounds"]


@pytest.mark.parametrize("cuts", [(), range(20)])
@pytest.mark.parametrize("case_id", ["R10", "R13", "R15", "R17", "R19"])
def test_objects_are_those_that_connect_wrote(case_id: str, cuts: Iterable[int]) -> None:
    """The recorded runs with schemas: same objects, same fields in them; and the open object closed."""
    case = CORPUS[case_id]
    sent = [json.loads(value) for _, _, _, value in case["records"]]
    if "envelope" in case:
        sent = [{"schema": case["envelope"], "payload": value} for value in sent]
    texts = sorted({json.dumps(s["schema"]) for s in sent})
    ids = [texts.index(json.dumps(s["schema"])) for s in sent]
    schemas = [from_envelope(json.loads(text)) for text in texts]

    config = case["config"]
    rotation = SchemaRotation(config["schema.compatibility"], schemas)
    written = {}
    for _, rows, target in split(rotation, ids, flush_size=int(config["flush.size"]), cuts=cuts):
        lines = []
        for row in rows:
            source = schemas[ids[row]].node
            values = pa.array([sent[row]["payload"]], arrow_type(source))
            lines += projection(source, schemas[target].node).apply(values).to_pylist()
        written[rows[0]] = lines

    tail = case["open_tail"].get("0", [])
    assert written.pop(tail[0] if tail else None, None) == ([sent[row]["payload"] for row in tail] or None)
    assert written == {
        int(o["key"].rpartition("+")[2].removesuffix(".json")): [json.loads(line) for line in o["content"].splitlines()]
        for o in case["objects"]
    }


def from_envelope(envelope: dict[str, Any]) -> SchemaVersion:
    """A schema of Kafka Connect's JSON converter."""
    names = {"int64": "long", "string": "string"}
    fields = [
        (f["field"], ["null", names[f["type"]]] if f["optional"] else names[f["type"]]) for f in envelope["fields"]
    ]
    return schema(envelope.get("version"), *fields, name=envelope["name"])


def test_two_schemas_without_versions_in_one_object_are_an_error_with_the_row() -> None:
    """The state is that before the call, so the rows before the record can be written."""
    rotation = SchemaRotation("BACKWARD", [SchemaVersion(OLD.node, None), SchemaVersion(NEW.node, None)])
    ids, codes = np.array([0, 0, 0, 1, 0], np.intp), np.zeros(5, np.intp)
    with pytest.raises(SchemaChangeError) as raised:
        rotation.first_roll(ids, codes, ["p"], 1, 5)
    assert raised.value.row == 3
    with pytest.raises(KeyError):
        rotation.target("p")
    assert rotation.first_roll(ids, codes, ["p"], 1, 3) == 3
    assert rotation.target("p") == 0
    assert rotation.first_roll(ids, codes, ["p"], 4, 5) == 5


def test_a_roll_closes_the_objects_of_all_encoded_partitions() -> None:
    """The other encoded partition saw no change, and begins a new object all the same."""
    ids, codes = [0, 0, 1, 0], [0, 1, 0, 1]
    assert split(SchemaRotation("BACKWARD", [OLD, NEW]), ids, codes) == [
        (0, [0], 0),
        (1, [1], 0),
        (0, [2], 1),
        (1, [3], 0),
    ]


def test_encoded_partitions_have_schemas_of_their_own() -> None:
    """Each object has the schema of its first record: nothing changes inside an object here."""
    ids, codes = [0, 1, 0, 1], [0, 1, 0, 1]
    assert split(SchemaRotation("NONE", [OLD, NEW]), ids, codes) == [(0, [0, 2], 0), (1, [1, 3], 1)]


def test_the_first_record_after_a_boundary_sets_the_schema() -> None:
    """After the newer schema, the older one would be projected; in a new object it is kept."""
    rotation = SchemaRotation("BACKWARD", [OLD, NEW])
    assert split(rotation, [1, 0, 0, 0], flush_size=2) == [(0, [0, 1], 1), (0, [2, 3], 0)]


def test_an_object_that_is_closed_alone_is_forgotten_alone() -> None:
    """An object that reached its size: the next record of its encoded partition sets the schema, others keep theirs."""
    rotation = SchemaRotation("NONE", [OLD, NEW])
    paths = ["a", "b"]
    ids, codes = np.array([0, 0, 1, 0], np.intp), np.array([0, 1, 0, 1], np.intp)
    assert rotation.first_roll(ids, codes, paths, 0, 2) == 2
    rotation.close("a")
    assert rotation.first_roll(ids, codes, paths, 2, 4) == 4
    assert [rotation.target(path) for path in paths] == [1, 0]


@pytest.mark.parametrize("mode", MODES)
def test_records_without_a_schema_have_objects_of_their_own(mode: Compatibility) -> None:
    """Going from a schema to none, or back, begins a new object."""
    assert split(SchemaRotation(mode, [OLD]), [0, NO_SCHEMA, NO_SCHEMA, 0]) == [
        (0, [0], 0),
        (0, [1, 2], NO_SCHEMA),
        (0, [3], 0),
    ]


def test_schemas_may_be_added_later() -> None:
    """A schema is known only when its first record is read."""
    schemas = [OLD]
    rotation = SchemaRotation("FORWARD", schemas)
    assert split(rotation, [0, 0]) == [(0, [0, 1], 0)]
    schemas.append(NEW)
    assert split(rotation, [0, 1]) == [(0, [0, 1], 0)]


def test_a_verdict_is_computed_once_for_each_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost depends on the number of schemas, not on that of records or batches."""
    asked = []

    def counted(mode: Compatibility, current: SchemaVersion, record: SchemaVersion) -> str:
        asked.append((current, record))
        return decide(mode, current, record)

    monkeypatch.setattr("airflow_provider_kafka_s3.schemas.evolution.decide", counted)
    split(SchemaRotation("BACKWARD", [OLD, NEW]), [1, 0] * 1000, cuts=range(0, 2000, 10))
    assert asked == [(NEW, OLD)]


VERSIONS = [
    schema(1, ("a", "int")),
    schema(2, ("a", "int"), ("b", ["null", "string"], None)),
    schema(3, ("a", "long"), ("b", ["null", "string"], None)),
    schema(4, ("a", "string")),
    schema(4, ("a", "string"), name="acme.S"),
]


@given(
    mode=st.sampled_from(MODES),
    records=st.lists(st.tuples(st.integers(-1, len(VERSIONS) - 1), st.integers(0, 2), st.integers(1, 30)), max_size=12),
    flush_size=st.integers(1, 200),
    cuts=st.sets(st.integers(0, 200)),
)
@settings(deadline=None)
def test_objects_depend_on_the_records_alone(
    mode: Compatibility, records: list[tuple[int, int, int]], flush_size: int, cuts: set[int]
) -> None:
    """Any cut into batches gives the objects that records one by one give."""
    ids = [index for index, _, times in records for _ in range(times)]
    codes = [code for _, code, times in records for _ in range(times)]
    objects = split(SchemaRotation(mode, VERSIONS), ids, codes, flush_size=flush_size, cuts=cuts)
    assert objects == record_by_record(mode, VERSIONS, ids, codes, flush_size)


# --- An object for each schema, instead of a roll ---


def test_groups_are_pairs_in_the_order_of_their_first_records() -> None:
    """Each encoded partition has one object for each schema."""
    ids, codes = np.array([1, 0, 1, NO_SCHEMA], np.intp), np.array([0, 1, 1, 0], np.intp)
    groups, pairs = schema_groups(ids, codes)
    assert pairs == [(0, 1), (1, 0), (1, 1), (0, NO_SCHEMA)]
    assert groups.tolist() == [0, 1, 2, 3]
    assert schema_groups(ids[:0], codes[:0])[1] == []


@pytest.mark.parametrize("mode", MODES)
def test_counts_are_those_of_the_objects(mode: Compatibility) -> None:
    """Both ways, with the same flush size."""
    ids, codes = np.array([0, 1, 2, 0, 1, 1, 0, 2, 1, 0] * 9, np.intp), np.array([0, 0, 1] * 30, np.intp)
    expected = record_by_record(mode, VERSIONS, ids.tolist(), codes.tolist(), 16)
    groups = schema_groups(ids, codes)[0].tolist()
    assert object_counts(mode, VERSIONS, ids, codes, flush_size=16) == (
        len(expected),
        sum(len(set(groups[i : i + 16])) for i in range(0, 90, 16)),
    )


INCOMPATIBLE = schema(2, ("seq", "string"))
RECORDS = np.arange(10_000)
DOCUMENTED = {
    "one schema": ([OLD, NEW], RECORDS * 0),
    "the newer schema from record 5,500 on": ([OLD, NEW], RECORDS >= 5500),
    "both in turn, record by record": ([OLD, NEW], RECORDS % 2),
    "both in turn, 100 records at a time": ([OLD, NEW], RECORDS // 100 % 2),
    "every 100th record is an older one": ([OLD, NEW], RECORDS % 100 != 99),
    "every 100th record is a newer one": ([OLD, NEW], RECORDS % 100 == 99),
    "incompatible ones in turn, 100 records at a time": ([OLD, INCOMPATIBLE], RECORDS // 100 % 2),
}


@pytest.mark.parametrize("case", DOCUMENTED)
def test_the_counts_on_the_page_are_true(case: str) -> None:
    """The table of the design page, row by row."""
    schemas, of = DOCUMENTED[case]
    ids, codes = of.astype(np.intp), np.zeros(len(RECORDS), np.intp)
    counts = {mode: object_counts(mode, schemas, ids, codes, flush_size=1000) for mode in MODES}
    assert counts["BACKWARD"] == counts["FULL"]
    numbers = [*(counts[mode][0] for mode in ("NONE", "BACKWARD", "FORWARD")), counts["NONE"][1]]
    row = " | ".join([f"| {case}", *(f"{n:,}" for n in numbers)]) + " |"
    assert row in (VECTORS.parents[1] / "docs" / "design" / "schema-evolution.md").read_text().splitlines()
