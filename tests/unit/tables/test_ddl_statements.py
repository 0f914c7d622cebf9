"""The statements of all dialects are parsed; those of Athena project each folder that was landed."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    BlockGzip,
    ByField,
    ByKey,
    ByPartition,
    Chain,
    Csv,
    CustomFormat,
    Daily,
    DeviantArtNaming,
    Envelope,
    Hourly,
    JsonConverter,
    JsonLines,
    JsonSchemaConverter,
    Layout,
    Naming,
    Parquet,
    RawBytes,
    SiblingObjects,
    StringConverter,
    TimePattern,
    default_partitioner,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.reading import Snapshot
from airflow_provider_kafka_s3.tables.ddl import DIALECTS, Script
from tests.outside.shelf import packed
from tests.unit.batch.simulated_topic import Topic
from tests.unit.tables.orders import (
    DAY_MS,
    FORMATS,
    START,
    declared,
    landed,
    layout_of,
    letters_script,
    script,
    table_of,
    with_dead_letters,
)

HOUR_MS = DAY_MS // 24
HIVES = ("athena", "trino", "hive")


def created(given: Script, dialect: str) -> exp.Create:
    """The first statement, parsed."""
    parsed = sqlglot.parse_one(given.statements[0], dialect=dialect)
    assert isinstance(parsed, exp.Create)
    return parsed


def columns(given: Script, dialect: str) -> dict[str, str]:
    """The columns of a table with their types; those of folders are the last ones."""
    parsed, shown_as = created(given, dialect), "hive" if dialect == "athena" else dialect
    folders = [column for by in parsed.find_all(exp.PartitionedByProperty) for column in by.find_all(exp.ColumnDef)]
    return {column.name: column.args["kind"].sql(shown_as) for column in (*parsed.this.expressions, *folders)}


def properties(given: Script, dialect: str = "athena") -> dict[str, str]:
    """The properties of a table."""
    found = created(given, dialect).find_all(exp.Property)
    return {one.this.name: one.args["value"].name for one in found if type(one) is exp.Property}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_statements_of_dead_letters_have_their_fields(dialect: str) -> None:
    """In their folder; the table is called after the topic."""
    given = letters_script(with_dead_letters(), dialect)
    fields = ["topic", "partition", "offset", "timestamp", "key", "value", "headers", "stage", "reason"]
    if dialect == "duckdb":
        assert [one.name for one in created(given, dialect).expression.expressions] == fields
    else:
        assert [*columns(given, dialect)] == fields
    assert "memory/lake/orders/_dead_letters/" in given.statements[0]
    assert "orders_dead_letters" in given.statements[0]
    assert len(given.statements) == 1
    assert "`timestamp` has milliseconds since 1970-01-01." in given.remarks


def test_a_topic_without_dead_letters_has_no_table_of_them() -> None:
    """Nor a folder."""
    with pytest.raises(ConfigurationError, match="has no dead letters up to batch 1"):
        letters_script(landed(layout_of(JsonLines())), "spark")


def test_dead_letters_of_folders_that_topics_share_have_a_folder_of_their_own() -> None:
    """With DeviantArt's names, whose objects of values no table of Spark can tell from those of other topics."""
    naming = DeviantArtNaming()
    by_day = {"naming": naming, "partitioner": default_partitioner(naming)}
    topic = Topic(Layout(topics_dir="lake", format=BlockGzip(), errors="dead_letter", **by_day))
    topic.append(b"no JSON")
    topic.land()
    assert "s3a://memory/lake/_dead_letters/orders/" in letters_script(topic, "spark").text


# Athena reads no Brotli.
OF_FORMATS = [
    (one, dialect)
    for one in FORMATS
    for dialect in DIALECTS
    if dialect != "athena" or getattr(one, "compression", "") != "brotli"
]


@pytest.mark.parametrize(("record_format", "dialect"), OF_FORMATS, ids=str)
@pytest.mark.parametrize(
    "partitioner", [Daily(), ByPartition(), TimePattern(path_format="YYYY/MM", duration_ms=DAY_MS)], ids=str
)
def test_the_statements_of_every_dialect_are_parsed(record_format: Any, partitioner: Any, dialect: str) -> None:
    """With every column that the engine has a type for, and the folders behind them."""
    given = script(landed(layout_of(record_format, partitioner=partitioner)), dialect, table="t", database="lake")
    parsed = created(given, dialect)
    assert parsed.find(exp.Table).sql(dialect).replace('"', "").replace("`", "") == "lake.t"
    # Consoles that run one statement at a time cut a text at its semicolons.
    assert ";" not in "".join(given.remarks)
    for statement in given.statements[1:]:
        assert re.match(r"MSCK REPAIR TABLE `lake`\.`t`$|CALL system\.sync_partition_metadata\(", statement)
    if dialect == "duckdb":
        return
    is_lower = dialect in HIVES
    names = ["orderId", "note", "amount", "weight", "paid", "at", "seen", "due", "raw"]
    names += [] if isinstance(record_format, Csv) else ["lines", "tags"]
    folders = {Daily: ["year", "month", "day"], ByPartition: ["partition"]}.get(type(partitioner), [])
    if dialect == "spark" and isinstance(record_format, BlockGzip):
        folders = []
    assert [*columns(given, dialect)] == [name.lower() if is_lower else name for name in names] + folders


def test_types_are_those_of_the_dialect() -> None:
    """Of Parquet, also inside of others."""
    topic = landed(layout_of(Parquet()))
    found = {dialect: columns(script(topic, dialect), dialect) for dialect in (*HIVES, "spark")}
    assert (
        found["athena"]
        == {
            "orderid": "BIGINT",
            "note": "STRING",
            "amount": "DECIMAL(9, 2)",
            "weight": "DOUBLE",
            "paid": "BOOLEAN",
            "at": "TIMESTAMP",
            "seen": "TIMESTAMP",
            "due": "DATE",
            "raw": "BINARY",
            "lines": "ARRAY<STRUCT<`sku`: STRING, `n`: INT>>",
            "tags": "MAP<STRING, BIGINT>",
            "partition": "STRING",
        }
        == {**found["hive"]}
    )
    assert found["trino"]["lines"] == 'ARRAY(ROW("sku" VARCHAR, "n" INTEGER))'
    assert found["trino"]["tags"] == "MAP(VARCHAR, BIGINT)"
    assert (found["trino"]["at"], found["trino"]["raw"]) == ("TIMESTAMP(3)", "VARBINARY")


@pytest.mark.parametrize("dialect", [*DIALECTS])
@pytest.mark.parametrize("record_format", [Parquet(), AvroContainer(), JsonLines(decimal_format="NUMERIC")], ids=str)
def test_what_has_no_type_is_left_out_with_the_reason(dialect: str, record_format: Any) -> None:
    """A remark names each such column, and the schema of Avro does not have it either."""
    fields = {
        "n": "long",
        "big": {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2},
        "t": {"type": "int", "logicalType": "time-millis"},
        "nothing": "null",
        "u": ["null", "int", "string"],
        "of": {"type": "map", "values": {"type": "array", "items": ["int", "string"]}},
    }
    value = {"n": 1, "big": "1.25", "t": 1000, "nothing": None, "u": 1, "of": {"x": [1, "y"]}}
    given = script(
        landed(Layout(topics_dir="lake", format=record_format, value_converter=declared(**fields)), [value]), dialect
    )
    without = {match[1] for text in given.remarks if (match := re.match(r"`(\w+)`.*the column is left out", text))}
    expected = {"big"} if dialect == "duckdb" else {"big", "nothing"}
    if isinstance(record_format, Parquet) and dialect != "duckdb":
        expected |= {"t"}
    if isinstance(record_format, AvroContainer) and dialect != "duckdb":
        expected |= {"u", "of"} | ({"t"} if dialect == "spark" else set())
    assert without == expected
    assert f"decimal of 60 digits, and those of {DIALECTS[dialect].engine} have 38" in given.text
    if isinstance(record_format, AvroContainer) and dialect in ("athena", "hive"):
        literal = json.loads(properties(given, dialect)["avro.schema.literal"])
        assert {field["name"] for field in literal["fields"]} == {*fields} - expected


# -- Athena ----------------------------------------------------------------------------------------------------------


def projected(given: Script, now: dt.datetime, wanted: dict[str, str]) -> set[str]:
    """The locations that Athena computes, by its manual; injected columns have the wanted value."""
    settings = properties(given)
    assert settings["projection.enabled"] == "true"
    names = re.findall(r"\$\{(\w+)\}", settings["storage.location.template"])
    values = [[*values_of(name, settings, now, wanted)] for name in names]
    locations = set()
    for row in itertools.product(*values):
        location = settings["storage.location.template"]
        for name, value in zip(names, row, strict=True):
            location = location.replace(f"${{{name}}}", value)
        locations.add(location)
    return locations


def values_of(name: str, settings: dict[str, str], now: dt.datetime, wanted: dict[str, str]) -> Iterable[str]:
    """The values of a projected column."""

    def of(key: str) -> str:
        return settings[f"projection.{name}.{key}"]

    match of("type"):
        case "integer":
            low, high = map(int, of("range").split(","))
            digits = int(settings.get(f"projection.{name}.digits", "1"))
            return [str(n).zfill(digits) for n in range(low, high + 1)]
        case "enum":
            return of("values").split(",")
        case "injected":
            return [wanted[name]]
    first, last = of("range").split(",")
    pattern = of("format")
    for java, c in {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M"}.items():
        pattern = pattern.replace(java, c)
    pattern = pattern.replace("'", "")
    time = dt.datetime.strptime(first, pattern).replace(tzinfo=dt.UTC)
    end = now + dt.timedelta(days=1 if last == "NOW+1DAYS" else 0)
    texts = []
    step = {"DAYS": DAY_MS, "HOURS": HOUR_MS, "MINUTES": 60_000}.get(of("interval.unit"), 0)
    while time <= end:
        texts.append(time.strftime(pattern))
        days = dt.timedelta(days=32) if not step else dt.timedelta(milliseconds=step * int(of("interval")))
        time = (time + days).replace(day=1) if not step else time + days
    return texts


PATTERNS = [
    "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH",
    "'dt'=YYYY-MM-dd",
    "'dt'=YYYYMMdd",
    "'dt'=yyyy-MM-dd-HH",
    "'dt'=YYYY-MM-dd'T'HH.mm",
    "'month'=YYYY-MM",
    "'Year'=Y/'M'=M/'D'=d",
    "'y'=YYYY/'name'=MMM/'weekday'=EEE",
    "'y'=YYYY/'week'=ww/'e'=e",
    "'y'=YYYY/'doy'=DDD/'half'=a/'h'=hh",
    "'date'='on-'YYYY-MM-dd",
]


@pytest.mark.parametrize("timezone", ["UTC", "Pacific/Auckland"])
@pytest.mark.parametrize("path_format", PATTERNS)
def test_each_folder_of_a_time_is_projected(path_format: str, timezone: str) -> None:
    """With the digits that it has; those that cannot be counted are injected."""
    partitioner = TimePattern(path_format=path_format, duration_ms=HOUR_MS // 4, timezone=timezone)
    topic = Topic(layout_of(JsonLines(), value_converter=JsonConverter(), partitioner=partitioner))
    times = [START + n * 389 * HOUR_MS // 4 for n in range(20)]
    for time in times:
        topic.append(b"{}", timestamp=time)
    topic.land()
    given, now = script(topic, "athena"), dt.datetime.fromtimestamp(times[-1] / 1000, dt.UTC)
    objects = Snapshot(topic.pipeline.log).objects()
    assert len(objects) > 1
    for one in objects:
        wanted = {re.sub("[^a-z0-9_]", "_", name.lower()): value for name, value in one.columns.items()}
        assert one.url.rpartition("/")[0] + "/" in projected(given, now, wanted), one.url
    injected = {name.split(".")[1] for name, value in properties(given).items() if value == "injected"}
    assert injected == {"half"} & {"half" if "half" in path_format else ""}


@pytest.mark.parametrize(
    ("partitioner", "naming"),
    [
        (Hourly(), {}),
        (ByPartition(), {}),
        (Chain(partitioners=(ByField(names=("Country", "a.b:c")), Daily(), ByKey())), {}),
        (Chain(partitioners=(ByField(names=("Country",)), Daily())), {"lowercase_paths": True}),
        (ByPartition(), {"schema_affix": "PREFIX", "topic_prefix": "topic="}),
    ],
    ids=str,
)
def test_each_folder_of_any_partitioner_is_projected(partitioner: Any, naming: dict[str, Any]) -> None:
    """The names of columns are lower case, those of folders as they are; keys and fields are injected."""
    converter = declared(Country="string", n="long") if "a.b:c" not in str(partitioner) else JsonConverter()
    layout = Layout(
        topics_dir="lake",
        format=JsonLines(),
        value_converter=converter,
        partitioner=partitioner,
        naming=Naming(**naming),
    )
    topic = Topic(layout, 3)
    for n in range(3):
        value = {"Country": "NO", "n": n, "a": {"b:c": "x"}}
        topic.append(json.dumps(value).encode(), partition=n, key=b"k", timestamp=START + n * HOUR_MS)
    topic.land()
    given, now = script(topic, "athena"), dt.datetime.fromtimestamp(START / 1000, dt.UTC)
    for one in Snapshot(topic.pipeline.log).objects():
        wanted = {re.sub("[^a-z0-9_]", "_", name.lower()): value for name, value in one.columns.items()}
        assert one.url.rpartition("/")[0] + "/" in projected(given, now, wanted)


def test_the_limits_of_the_projection_are_told() -> None:
    """Years end, partitions may be added, records without a time and keys need more."""
    partitioner = Chain(partitioners=(Daily(), ByPartition(), ByKey()))
    layout = Layout(
        topics_dir="lake", format=JsonLines(), partitioner=partitioner, on_bad_timestamp="__HIVE_DEFAULT_PARTITION__"
    )
    topic = landed(layout, [{"n": 1}, {"n": 2}], key=b"k")
    topic.append(b"{}", key=b"k", timestamp=-1)
    topic.land("untimely")
    remarks = "\n".join(script(topic, "athena").remarks)
    assert "`year` is projected from 2026 to 2035: alter projection.year.range for later years" in remarks
    assert "`partition` is projected from 0 to 1" in remarks
    assert "`key` is injected: each query has to name its values" in remarks
    assert "Records without a time are in folders __HIVE_DEFAULT_PARTITION__, which are not projected" in remarks


# -- names, SerDes, refusals -----------------------------------------------------------------------------------------


def test_the_serde_of_each_format_is_named() -> None:
    """With the schema of Avro, and the separator and the header of CSV."""
    serdes = {
        JsonLines(): "org.openx.data.jsonserde.JsonSerDe",
        AvroContainer(): "org.apache.hadoop.hive.serde2.avro.AvroSerDe",
        Csv(separator="\t"): "org.apache.hadoop.hive.serde2.OpenCSVSerde",
    }
    for record_format, serde in serdes.items():
        topic = landed(layout_of(record_format))
        given = script(topic, "athena")
        assert f"ROW FORMAT SERDE '{serde}'" in given.statements[0]
        if isinstance(record_format, Csv):
            assert properties(given)["skip.header.line.count"] == "1"
            assert "'separatorChar' = '\\t'" in given.text
            assert {*columns(given, "athena").values()} == {"STRING"}
            assert created(script(topic, "trino"), "trino").find(exp.FileFormatProperty).this.name == "CSV"
        if isinstance(record_format, AvroContainer):
            assert [field["name"] for field in json.loads(properties(given)["avro.schema.literal"])["fields"]][:2] == [
                "orderId",
                "note",
            ]
    assert "'org.apache.hive.hcatalog.data.JsonSerDe'" in script(landed(layout_of(JsonLines())), "hive").text


@pytest.mark.parametrize("dialect", HIVES)
@pytest.mark.parametrize("record_format", [JsonLines(), RawBytes(), BlockGzip()], ids=str)
def test_values_without_a_schema_are_one_column_of_texts(dialect: str, record_format: Any) -> None:
    """The index of blocks is a row, too, and a remark has the filter."""
    given = script(landed(Layout(topics_dir="lake", format=record_format), [{"n": 1}]), dialect)
    assert [*columns(given, dialect)] == ["value", "partition"]
    assert "TEXTFILE" in given.text
    assert ("LIKE '%.gz'" in given.text) == isinstance(record_format, BlockGzip)


@pytest.mark.parametrize(("dialect", "names"), [("athena", 7), ("trino", 2), ("hive", 2)])
def test_envelopes_with_documents_are_documents_where_their_parts_cannot_be_texts(dialect: str, names: int) -> None:
    """The reader of JSON in Athena makes a text of any part; those of the others do not."""
    layout = Layout(topics_dir="lake", format=JsonLines(), content=Envelope(), key_converter=StringConverter())
    assert len(columns(script(landed(layout, [{"n": 1}], key=b"k"), dialect), dialect)) == names


def test_a_map_whose_keys_are_no_strings_is_json_of_another_shape() -> None:
    """In a struct, too: a text in Athena, and the whole document in Hive and Trino."""
    text = json.dumps({"type": "object", "properties": {"of": {"type": "object", "properties": {"m": KEYED}}}})
    topic = Topic(Layout(topics_dir="lake", format=JsonLines(), value_converter=JsonSchemaConverter()))
    schema = topic.registry.register(text, type="JSON")
    topic.append(topic.registry.frame(schema, b'{"of": {"m": [{"key": 1, "value": 2}]}}'))
    topic.land()
    assert columns(script(topic, "athena"), "athena")["of"] == "STRUCT<`m`: STRING>"
    for dialect in ("hive", "trino"):
        assert [*columns(script(topic, dialect), dialect)] == ["value", "partition"]


KEYED = {
    "type": "array",
    "connect.type": "map",
    "items": {"type": "object", "properties": {"key": {"type": "integer"}, "value": {"type": "integer"}}},
}


@pytest.mark.parametrize("dialect", HIVES)
def test_a_field_that_is_called_like_a_folder_is_declared_once(dialect: str) -> None:
    """By name the folder has its place, with a remark; columns of CSV are found by position, so one is renamed."""
    for record_format, names in ((Parquet(), ["n"]), (AvroContainer(), ["n"]), (Csv(null="NULL"), ["n", "Day_field"])):
        layout = Layout(
            topics_dir="lake",
            format=record_format,
            value_converter=declared(n="long", Day="string"),
            partitioner=Daily(),
        )
        given = script(landed(layout, [{"n": 1, "Day": "x"}]), dialect)
        assert [*columns(given, dialect)] == [*map(str.lower, names), "year", "month", "day"]
        assert "`Day`" in given.text


@pytest.mark.parametrize("dialect", [*DIALECTS])
def test_names_that_differ_in_case_only_are_refused(dialect: str) -> None:
    """Also inside of a column."""
    inner = {"type": "record", "name": "Inner", "fields": [{"name": n, "type": "long"} for n in ("Id", "id")]}
    for fields, value in (
        ({"Id": "long", "id": "long"}, {"Id": 1, "id": 2}),
        ({"of": inner}, {"of": {"Id": 1, "id": 2}}),
    ):
        topic = landed(Layout(topics_dir="lake", format=Parquet(), value_converter=declared(**fields)), [value])
        with pytest.raises(ConfigurationError, match=r"differ in case only.*'(of\.)?Id' and '(of\.)?id'.*Rename one"):
            script(topic, dialect)


@pytest.mark.parametrize("dialect", [*DIALECTS])
def test_names_are_quoted(dialect: str) -> None:
    """Words of SQL, quotes and comments in names stay names; a name that Hive and Athena do not have is left out."""
    converter = JsonConverter(schemas_enable=True)
    layout = Layout(topics_dir="lake", format=Parquet(), value_converter=converter)
    names = ["select", "first-name", 'it\'s `a` "b"', "-- x\ny"]
    schema = {"type": "struct", "fields": [{"field": name, "type": "int64"} for name in names]}
    given = script(landed(layout, [{"schema": schema, "payload": dict.fromkeys(names, 1)}]), dialect, table="a-b.c")
    if dialect == "duckdb":
        selected = sqlglot.parse_one(given.statements[0], dialect=dialect).find(exp.Select)
        assert selected is not None
        assert selected.named_selects == [*names, "partition"]
    else:
        shown = names if dialect in ("trino", "spark") else ["select"]
        assert [*columns(given, dialect)] == [*shown, "partition"]
    assert all(line.startswith("-- ") for line in given.text.split("CREATE ")[0].splitlines())


def test_a_topic_is_a_legal_name() -> None:
    """Dots and dashes of topics are underscores."""
    given = DIALECTS["athena"].script(table_of(landed(layout_of(Parquet()))))
    assert created(given, "athena").find(exp.Table).name == "orders"
    assert '"a_b_c"' in DIALECTS["duckdb"].script(_renamed("a.b-c")).statements[0]


def _renamed(topic: str) -> Any:
    return dataclasses.replace(table_of(landed(layout_of(Parquet()))), topic=topic)


SIBLINGS = {"content": SiblingObjects(), "key_converter": StringConverter()}


@pytest.mark.parametrize(
    ("dialects", "settings", "why"),
    [
        (HIVES, {"format": JsonLines(), **SIBLINGS}, "Land the topic with content='envelope'"),
        (
            (*HIVES, "spark"),
            {
                "format": JsonLines(),
                "naming": DeviantArtNaming(),
                "partitioner": default_partitioner(DeviantArtNaming()),
            },
            "objects of all topics",
        ),
        (tuple(DIALECTS), {"format": JsonLines(), "naming": Naming(directory_delim="-")}, "into one folder"),
        ((*HIVES, "spark"), {"format": RawBytes(separator=";")}, "records end in ';', and it reads lines"),
        (("athena",), {"format": Parquet(compression="brotli"), "value_converter": declared(n="long")}, "Brotli"),
        (("athena",), {"format": AvroContainer(codec="xz"), "value_converter": declared(n="long")}, "xz"),
        (("athena", "hive"), {"format": AvroContainer(), "value_converter": StringConverter()}, "no records"),
        (tuple(DIALECTS), {"format": Csv(), "value_converter": JsonConverter(schemas_enable=True)}, "are not known"),
    ],
    ids=str,
)
def test_what_an_engine_cannot_read_is_refused(dialects: tuple[str, ...], settings: dict[str, Any], why: str) -> None:
    """With the topic, the format and the way out."""
    value = {"n": 1}
    if settings.get("value_converter") == JsonConverter(schemas_enable=True):
        schema = {"type": "struct", "fields": [{"field": "n", "type": "int64"}]}
        value = {"schema": schema, "payload": {"n": 1}}
    topic = landed(Layout(topics_dir="lake", **settings), [value], key=b"k")
    for dialect in dialects:
        with pytest.raises(ConfigurationError, match=why) as refused:
            script(topic, dialect)
        assert "topic 'orders'" in str(refused.value)


def test_a_topic_without_objects_has_no_table() -> None:
    """Neither its columns nor its folders are known."""
    topic = Topic(Layout(topics_dir="lake", format=JsonLines()))
    topic.land()
    with pytest.raises(ConfigurationError, match=r"topic 'orders' .* has no objects up to batch 0.*Land records first"):
        script(topic, "spark")


def test_objects_of_a_class_of_another_package_have_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the class."""
    monkeypatch.syspath_prepend(packed(tmp_path))
    topic = landed(Layout(topics_dir="lake", format=CustomFormat(import_path="shelf_layouts.lengths:LengthPrefixed")))
    with pytest.raises(ConfigurationError, match=r"topic 'orders': .* class 'shelf_layouts\.lengths:LengthPrefixed'"):
        script(topic, "athena")
