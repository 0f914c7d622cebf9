"""Generated values of generated schemas: whatever lands them, no reader of ours returns null where there is a value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    AvroConverter,
    BlockGzip,
    BytesConverter,
    Csv,
    Envelope,
    Format,
    JsonLines,
    Layout,
    Parquet,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError, ForeignObjectError, RecordError
from airflow_provider_kafka_s3.reading.arrow import arrow_batches
from airflow_provider_kafka_s3.reading.parquet_dataset import arrow_dataset
from airflow_provider_kafka_s3.reading.seek import seek
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_schema
from airflow_provider_kafka_s3.schemas.avro import parse_schema
from airflow_provider_kafka_s3.schemas.nodes import (
    ArrayOf,
    MapOf,
    Node,
    Record,
    Union,
    branch_names,
    branches_without_null,
    only_branch,
    record_of,
)
from tests.avro_values import column_value, column_values, encode, in_unions_of_one, schemas, text, values
from tests.unit.batch.simulated_topic import Topic

COLUMNS: Final[Mapping[str, Format]] = {
    "Avro": AvroContainer(codec="snappy"),
    "Parquet": Parquet(compression="none", row_group_records=2),
}
ENVELOPES: Final[Mapping[str, Format]] = {f"envelopes in {name}": COLUMNS[name] for name in COLUMNS}
LINES: Final[Mapping[str, Format]] = {
    "JSON": JsonLines(),
    "JSON with numbers": JsonLines(decimal_format="NUMERIC", compression="gzip"),
    "blocks": BlockGzip(block_size=100),
    "CSV": Csv(null="NULL", separator=";"),
}
UNREADABLE: Final = re.compile("changed from number to string|Number too big")
"""What Arrow says of NaN and infinite numbers in JSON, which are texts, and of those that are too large for it."""

EXAMPLES = settings(max_examples=15, deadline=None)


class Landed:
    """Values that are landed.

    Attributes:
        node: their schema.
        values: as :mod:`tests.avro_values` has them.
        snapshot: of the topic.
    """

    def __init__(self, record_format: Format, schema: Any, chosen: Callable[[Node], list[Any]], **more: Any) -> None:
        self.node = parse_schema(text(schema))
        self.values = chosen(self.node)
        topic = Topic(Layout(topics_dir="lake", format=record_format, value_converter=AvroConverter(), **more))
        schema_id = topic.registry.register(text(schema))
        topic.append(*(topic.registry.frame(schema_id, encode(self.node, value)) for value in self.values))
        try:
            topic.land()
        except (ConfigurationError, RecordError):
            reject()  # the format has no such column, or no such time
        self.snapshot = Snapshot(topic.pipeline.log)

    @property
    def columns(self) -> list[dict[str, Any]]:
        """The values as columns have them."""
        found = [column_value(self.node, value) for value in self.values]
        return found if record_of(self.node) is not None else [{"value": value} for value in found]

    def read(self, schema: pa.Schema) -> list[dict[str, Any]]:
        """All rows with the columns of a schema."""
        if not schema.names:
            return [{} for _ in self.values]
        batches = arrow_batches(self.snapshot.log.store, self.snapshot.objects(), schema)
        return [row for batch in batches for row in column_values(batch.to_struct_array())]


@st.composite
def landed(draw: st.DrawFn, record_format: Format, depth: int = 3, **more: Any) -> Landed:
    """Values of a schema in objects of a format; ``more`` of their layout."""
    schema = draw(schemas(depth, records=depth == 1) if depth == 1 else schemas(depth, records=True) | schemas(depth))
    if draw(st.booleans()):
        schema = in_unions_of_one(schema)
    return Landed(record_format, schema, lambda node: draw(st.lists(values(node), min_size=1, max_size=4)), **more)


def some_of(rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """Some columns of rows."""
    return [{name: row[name] for name in names} for row in rows]


@pytest.mark.parametrize("name", COLUMNS)
@EXAMPLES
@given(data=st.data())
def test_values_are_read_from_columns_as_they_were_landed(name: str, data: st.DataObject) -> None:
    """With the snapshot's own schema, with some declared columns, and with those that Spark has for them."""
    one = data.draw(landed(COLUMNS[name]))
    own = one.snapshot.schema()
    assert repr(one.read(own)) == repr(some_of(one.columns, own.names))
    declared = data.draw(st.permutations([*arrow_schema(one.node)]))[: data.draw(st.integers(1, 4))]
    expected = some_of(one.columns, [field.name for field in declared])
    assert repr(one.read(pa.schema(declared))) == repr(expected)
    of_spark = spark_schema(pa.schema(declared))
    try:
        found = one.read(of_spark)
    except ForeignObjectError as e:  # Spark's times are microseconds
        if "out of bounds timestamp" not in str(e):
            raise
        return
    assert nulls(found) == nulls(some_of(expected, of_spark.names))


@pytest.mark.parametrize("name", ENVELOPES)
@EXAMPLES
@given(data=st.data())
def test_values_are_read_from_whole_records_as_they_were_landed(name: str, data: st.DataObject) -> None:
    """As the column of their envelopes."""
    more = {"content": Envelope(), "key_converter": BytesConverter()}
    one = data.draw(landed(ENVELOPES[name], **more))
    own = pa.schema([one.snapshot.schema().field("value")])
    expected = [{"value": column_value(one.node, value)} for value in one.values]
    assert repr(one.read(own)) == repr(expected)


@EXAMPLES
@given(data=st.data())
def test_a_dataset_of_parquet_has_the_values_as_they_were_landed(data: st.DataObject) -> None:
    """Arrow's own reader, with the columns of the snapshot; not those of nulls, of which its cast makes wrong lists."""
    one = data.draw(landed(COLUMNS["Parquet"]))
    columns = one.snapshot.schema()
    names = [column.name for column in columns if "element: null" not in str(column) and ", null" not in str(column)]
    table = arrow_dataset(one.snapshot).to_table(columns=names, use_threads=False)
    found = [row for batch in table.to_batches() for row in column_values(batch.to_struct_array())]
    assert repr(found) == repr(some_of(one.columns, names)) or not names


@pytest.mark.parametrize("name", LINES)
@EXAMPLES
@given(data=st.data())
def test_values_are_read_from_lines_as_they_were_landed(name: str, data: st.DataObject) -> None:
    """With declared columns; what Arrow cannot read of JSON, such as NaN, is an error."""
    one = data.draw(landed(LINES[name], depth=1 if name == "CSV" else 3))
    declared = [field for field in arrow_schema(one.node) if name == "CSV" or is_read_from_json(field.type)]
    declared = data.draw(st.permutations(declared))[: data.draw(st.integers(1, 4))]
    kinds = [field if name == "CSV" else field.with_type(in_json(field.type)) for field in declared]
    if record_of(one.node) is None and name != "CSV":
        (lines,) = [one.snapshot.schema()]
        assert nulls([json.loads(row["value"]) for row in one.read(lines)])
        return
    try:
        found = one.read(pa.schema(kinds))
    except ForeignObjectError as e:
        if name == "CSV" or UNREADABLE.search(str(e)) is None:
            raise
        return
    assert repr(found) == repr(some_of(one.columns, [field.name for field in declared]))


@pytest.mark.parametrize("name", [*COLUMNS, *LINES])
@EXAMPLES
@given(data=st.data())
def test_single_records_have_their_values(name: str, data: st.DataObject) -> None:
    """As `kafka-s3 cat` prints them, and as lines of JSON are in columns of their own."""
    record_format = {**COLUMNS, **LINES}[name]
    one = data.draw(landed(record_format, depth=1 if name == "CSV" else 3))
    found = [json.loads(record.line())["value"] for record in seek(one.snapshot.log, 0, 0, records=len(one.values))]
    if isinstance(record_format, JsonLines | BlockGzip):
        lines = [json.loads(row["value"]) for row in one.read(one.snapshot.schema())]
        assert repr(lines) == repr(found)
    for value, expected in zip(found, one.values, strict=True):
        shown = as_shown(one.node, expected, record_format)
        wrapped = record_of(one.node) is None and not isinstance(record_format, JsonLines | BlockGzip | AvroContainer)
        assert nulls(value) == nulls({"value": shown} if wrapped else shown)


def is_read_from_json(kind: Any) -> bool:
    """Whether Arrow's reader of JSON has the type, but for maps."""
    return not pa.types.is_map(kind) and all(is_read_from_json(kind.field(n).type) for n in range(kind.num_fields))


def in_json(kind: Any) -> Any:
    """The type with which timestamps are read from JSON: that of their number."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(in_json(field.type)) for field in kind])
    return pa.list_(kind.value_field.with_type(in_json(kind.value_type))) if pa.types.is_list(kind) else kind


def as_shown(node: Node, value: Any, record_format: Format) -> Any:
    """A value as its row shows it: in Avro without the types of unions, in Parquet with pairs for maps."""
    match node:
        case Union(branches=branches):
            index, inner = value
            shown = as_shown(branches[index], inner, record_format)
            if isinstance(record_format, AvroContainer) or shown is None or only_branch(node) is not None:
                return shown
            names = zip(branch_names(node), branches_without_null(node), strict=True)
            return {name: shown if branch is branches[index] else None for name, branch in names}
        case ArrayOf(items=items):
            return [as_shown(items, item, record_format) for item in value]
        case MapOf(values=inner):
            pairs = [[key, as_shown(inner, item, record_format)] for key, item in value]
            return pairs if isinstance(record_format, Parquet) else dict(pairs)
        case Record(fields=fields):
            return {field.name: as_shown(field.type, value[field.name], record_format) for field in fields}
    return value


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The columns that Spark has types for, as its data source asks for them."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    kept = []
    for field in schema:
        try:
            kept.append(to_arrow_schema(from_arrow_schema(pa.schema([field]))).field(0))
        except (PySparkException, ValueError):
            continue
    return pa.schema(kept)


def nulls(value: Any) -> Any:
    """Where a value has nulls."""
    if isinstance(value, dict):
        return {name: nulls(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [nulls(part) for part in value]
    return value is None
