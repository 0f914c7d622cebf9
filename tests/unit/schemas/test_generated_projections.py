"""Projection of generated pairs of schemas, where Kafka Connect and the schema resolution of Avro agree."""

from __future__ import annotations

import io
import json
from typing import Any, Final

import fastavro
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.converters.avro_decode import AvroDecoder
from airflow_provider_kafka_s3.converters.avro_encode import encode_datums
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.projection import mismatch, projection

# The schema of the writer, that of the reader, and values of the first one.
Pair = tuple[Any, Any, st.SearchStrategy[Any]]

INT: Final = st.integers(-(2**31), 2**31 - 1)
LEAVES: Final[list[Pair]] = [
    ("int", "int", INT),
    ("int", "long", INT),
    ("int", "double", INT),
    ("long", "long", st.integers(-(2**63), 2**63 - 1)),
    ("long", "double", st.integers(-(2**53), 2**53)),
    ("float", "double", st.floats(width=32, allow_nan=False)),
    ("double", "double", st.floats(allow_nan=False)),
    ("boolean", "boolean", st.booleans()),
    ("string", "string", st.text(max_size=4)),
    ("bytes", "bytes", st.binary(max_size=4)),
]
# fastavro leaves a default of bytes as text.
DEFAULTS: Final = [
    ("int", 7),
    ("string", "ü"),
    (["null", "long"], None),
    (["long", "null"], 3),
    ({"type": "array", "items": "int"}, [1, 2]),
    ({"type": "map", "values": "string"}, {"k": "v"}),
]


@st.composite
def pairs(draw: st.DrawFn, names: list[str], depth: int = 0) -> Pair:
    """A type of the writer, and one of the reader."""
    kinds = ["leaf", "leaf", "enum", "fixed", "array", "map", "nullable", "record"] if depth < 3 else ["leaf"]
    kind = "record" if depth == 0 else draw(st.sampled_from(kinds))
    if kind == "leaf":
        return draw(st.sampled_from(LEAVES))
    if kind == "record":
        return draw(records(names, depth))
    if kind in ("enum", "fixed"):
        names.append(f"N{len(names)}")
        if kind == "fixed":
            schema = {"type": "fixed", "name": names[-1], "size": 2}
            return schema, schema, st.binary(min_size=2, max_size=2)
        writer = {"type": "enum", "name": names[-1], "symbols": ["A", "B"]}
        symbols = draw(st.permutations(["A", "B", *draw(st.sampled_from([[], ["C"]]))]))
        return writer, {**writer, "symbols": symbols}, st.sampled_from("AB")
    writer, reader, values = draw(pairs(names, depth + 1))
    if kind == "array":
        return {"type": "array", "items": writer}, {"type": "array", "items": reader}, st.lists(values, max_size=3)
    if kind == "map":
        entries = st.dictionaries(st.text(max_size=2), values, max_size=3)
        return {"type": "map", "values": writer}, {"type": "map", "values": reader}, entries
    if isinstance(reader, list):
        return writer, reader, values
    if draw(st.booleans()):
        return writer, ["null", reader], values  # required to optional
    order = draw(st.permutations(["null", writer]))
    return order, draw(st.permutations(["null", reader])), st.none() | values


@st.composite
def records(draw: st.DrawFn, names: list[str], depth: int) -> Pair:
    """Records whose fields are in another order; some are dropped, and new ones have a default."""
    names.append(f"N{len(names)}")
    name = names[-1]
    fields = [draw(pairs(names, depth + 1)) for _ in range(draw(st.integers(1, 4)))]
    kept = draw(st.lists(st.integers(0, len(fields) - 1), unique=True))
    added = draw(st.lists(st.sampled_from(DEFAULTS), max_size=2))
    wanted = [{"name": f"f{n}", "type": fields[n][1]} for n in kept]
    wanted += [{"name": f"new{n}", "type": kind, "default": value} for n, (kind, value) in enumerate(added)]
    writer = {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": f[0]} for n, f in enumerate(fields)]}
    values = st.fixed_dictionaries({f"f{n}": f[2] for n, f in enumerate(fields)})
    return writer, {**writer, "fields": draw(st.permutations(wanted))}, values


@settings(max_examples=80)
@given(st.data())
def test_values_are_those_that_fastavro_resolves(data: st.DataObject) -> None:
    """The column is that of the target schema, and its datums are read by fastavro with the target schema alone."""
    writer, reader, values = data.draw(pairs([]))
    rows = data.draw(st.lists(values, max_size=5))
    source, target = parse_schema(json.dumps(writer)), parse_schema(json.dumps(reader))
    parsed, wanted = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    datums, resolved = [], []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        datums.append(out.getvalue())
        resolved.append(fastavro.schemaless_reader(io.BytesIO(datums[-1]), parsed, wanted))
    decoded = AvroDecoder(source).decode(pa.array(datums, pa.binary()))
    assert not decoded.bad.any()
    assert mismatch(source, target) is None
    projected = projection(source, target).apply(decoded.values)
    projected.validate(full=True)
    assert projected.type == arrow_type(target)
    again = [
        fastavro.schemaless_reader(io.BytesIO(datum), wanted, None)
        for datum in encode_datums(projected, target).to_pylist()
    ]
    assert repr([_sorted(row) for row in again]) == repr([_sorted(row) for row in resolved])


def _sorted(value: Any) -> Any:
    """A value with the fields of records in one order."""
    if isinstance(value, dict):
        return {k: _sorted(value[k]) for k in sorted(value)}
    return [_sorted(v) for v in value] if isinstance(value, list) else value
