"""Partitioners by fields, keys, and several at once; times from fields and from the clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.converters.field_values import DocumentFields
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.extensions import REFUSED, Batch
from airflow_provider_kafka_s3.layout.partitioners import make_partitioner

VECTORS = Path(__file__).parents[2] / "vectors"
TIME_ERRORS = {c["id"]: c for c in json.loads((VECTORS / "time_paths.json").read_text())["errors"]}
KEYS = {c["id"]: c for c in json.loads((VECTORS / "object_keys.json").read_text())["cases"]}
AT = 1488477600000  # 2017-03-02T18:00:00Z
BY_FIELD = {"timestamp_from": {"kind": "field", "name": "ts"}}
BY_HOUR = "year=2017/month=03/day=02/hour=18"


def layout(partitioner: Any, on_bad: str = "fail", **naming: Any) -> config.Layout:
    """A layout of JSON documents."""
    return config.Layout(
        format=config.JsonLines(),
        partitioner=config.parse_partitioner(partitioner),
        naming=config.Naming(**naming),
        on_bad_timestamp=on_bad,
    )


def encode(settings: config.Layout, values: list[Any], keys: list[bytes | None] | None = None) -> list[str | None]:
    """The encoded partition of each document; None if it is refused."""
    texts = pa.array([json.dumps(value).encode() for value in values], pa.binary())
    count = len(values)
    records = pa.RecordBatch.from_arrays(
        [
            pa.array(range(count), pa.int64()),
            pa.array([AT] * count, pa.int64()),
            texts,
            pa.array(keys or [None] * count, pa.binary()),
        ],
        names=["offset", "timestamp", "value", "key"],
    )
    fields = DocumentFields([name.split(".") for name in settings.field_names]).read(texts)
    batch = Batch(records, "t", 3, dict(zip(settings.field_names, fields, strict=True)))
    made = make_partitioner(settings)
    encoded = made.encode(batch)
    assert sorted(encoded.refused) == np.flatnonzero(encoded.codes == REFUSED).tolist()
    assert len(set(encoded.paths)) == len(encoded.paths)
    found = [None if code == REFUSED else encoded.paths[code] for code in encoded.codes.tolist()]
    assert all(path is None or len(path.encode()) <= len(made.longest.encode()) for path in found)
    return found


def why(settings: config.Layout, value: Any) -> str:
    """Why a document is refused."""
    text = pa.array([json.dumps(value).encode()], pa.binary())
    records = pa.RecordBatch.from_pydict(
        {"offset": pa.array([0], pa.int64()), "timestamp": pa.array([AT], pa.int64()), "value": text}
    )
    fields = DocumentFields([name.split(".") for name in settings.field_names]).read(text)
    batch = Batch(records, "t", 3, dict(zip(settings.field_names, fields, strict=True)))
    return make_partitioner(settings).encode(batch).refused[0]


def test_fields_make_folders_in_the_order_of_their_names() -> None:
    """K9: one folder for each, nested ones with their whole name."""
    case = KEYS["K9"]
    assert encode(layout({"kind": "field", "names": case["fields"]}), [case["record"]]) == [case["expect_path"]]
    documents = [{"c": "NO", "u": {"a": 1}}, {"c": "SE", "u": {"a": 1}}, {"c": "NO", "u": {"a": None}}]
    found = encode(layout({"kind": "field", "names": ["c", "u.a"]}), documents)
    assert found == ["c=NO/u.a=1", "c=SE/u.a=1", "c=NO/u.a=__HIVE_DEFAULT_PARTITION__"]


def test_a_record_without_the_field_is_refused_or_null() -> None:
    """A name with a typing error would otherwise put all records into the folder of null."""
    documents = [{"c": "NO"}, {"d": 1}, {"c": None}, [1], {"c": [1]}, {"c": 1.5}]
    null = "c=__HIVE_DEFAULT_PARTITION__"
    assert encode(layout({"kind": "field", "names": "c"}), documents) == ["c=NO", None, null, None, None, None]
    as_null = layout({"kind": "field", "names": ["c"], "missing": "null"})
    assert encode(as_null, documents) == ["c=NO", null, null, None, None, None]
    assert why(layout({"kind": "field", "names": "c"}), {"d": 1}) == "field 'c' is not there"


def test_values_of_several_fields_are_not_mixed_up() -> None:
    """A delimiter in a value is encoded where it could begin the next folder."""
    names = {"kind": "field", "names": ["f", "g"]}
    documents = [{"f": "a/g=b", "g": "c"}, {"f": "a", "g": "b/g=c"}]
    for naming in ({}, {"kafka_connect_names": True}):
        assert len(set(encode(layout(names, **naming), documents))) == 2
    assert encode(layout({"kind": "field", "names": "f"}, kafka_connect_names=True), documents)[0] == "f=a/g=b"
    affixed = layout({"kind": "field", "names": "f"}, kafka_connect_names=True, schema_affix="SUFFIX")
    assert encode(affixed, documents)[0] == "f=a%2fg%3db"


def test_keys_make_folders() -> None:
    """Texts, null, nothing, and bytes that are not UTF-8."""
    settings = layout("key")
    assert settings.whole_records
    keys = [b"customer-7", None, b"", b"\xff/", b"customer-7"]
    assert encode(settings, [{}] * 5, keys) == [
        "key=customer-7",
        "key=__HIVE_DEFAULT_PARTITION__",
        "key=__EMPTY__",
        "key=%FF%2F",
        "key=customer-7",
    ]


def test_a_chain_has_the_folders_of_each() -> None:
    """Field, then time; a record that one refuses has no folders, and every reason is kept."""
    chain = {
        "kind": "chain",
        "partitioners": [
            {"kind": "field", "names": "c"},
            {"kind": "hourly", **BY_FIELD},
            "partition",
        ],
    }
    documents = [
        {"c": "NO", "ts": AT},
        {"c": "NO", "ts": None},
        {"ts": AT},
        {"c": "SE", "ts": AT},
        {"c": "NO", "ts": AT + 1},
    ]
    norway = f"c=NO/{BY_HOUR}/partition=3"
    assert encode(layout(chain), documents) == [norway, None, None, f"c=SE/{BY_HOUR}/partition=3", norway]
    assert encode(layout(chain), documents[1:3]) == [None, None]
    assert why(layout(chain), documents[1]) == "field 'ts' is null, so the record has no time partition"


@pytest.mark.parametrize(("unit", "factor"), [("s", 0.001), ("ms", 1), ("us", 1_000), ("ns", 1_000_000)])
def test_times_of_fields_have_the_declared_unit(unit: str, factor: float) -> None:
    """The timestamp of the record has no effect."""
    settings = layout({"kind": "hourly", "timestamp_from": {"kind": "field", "name": "e.ts", "unit": unit}})
    time = int(AT * factor)
    assert encode(settings, [{"e": {"ts": time}}, {"e": {"ts": "2017-03-02T18:30:00Z"}}]) == [BY_HOUR, BY_HOUR]
    assert not settings.reads_timestamps


def test_records_without_a_time_in_the_field_may_have_a_partition_of_their_own() -> None:
    """As records without a timestamp have; minus one is a time in a field."""
    by_field = {"kind": "daily", **BY_FIELD}
    documents = [{"ts": AT}, {"ts": "soon"}, {}, {"ts": 2**62}, {"ts": -1}]
    day, none, before = "year=2017/month=03/day=02", "year=none/month=none/day=none", "year=1969/month=12/day=31"
    assert encode(layout(by_field, on_bad="none"), documents) == [day, none, none, none, before]
    assert encode(layout(by_field), documents) == [day, None, None, None, before]
    assert why(layout(by_field), {"ts": 2**61}) == (
        "field 'ts' is a time outside the years 1 to 9999, so the record has no time partition"
    )


@pytest.mark.parametrize("name", ["TE6", "TE7", "TE8"])
def test_fields_that_are_no_time_are_refused_as_in_the_vectors(name: str) -> None:
    """A number with a fraction is a time in a document; in a schema it is not, as in Kafka Connect."""
    settings = layout({"kind": "hourly", **BY_FIELD})
    value = TIME_ERRORS[name]["record_field"]
    found = encode(settings, [{"ts": value}])
    assert found == (["year=1970/month=01/day=01/hour=00"] if name == "TE6" else [None])


@pytest.mark.parametrize("name", ["TE9", "TE10"])
def test_wrong_names_of_fields_are_refused_as_in_the_vectors(name: str) -> None:
    """Before anything is read."""
    field = TIME_ERRORS[name]["field_name"]
    with pytest.raises(ConfigurationError, match="is no name of a field"):
        config.FieldTime(name=field)
    with pytest.raises(ConfigurationError, match="is no name of a field"):
        config.ByField(names=(field,))


def test_names_of_the_wrong_type_are_refused() -> None:
    """One name alone is a list of one in a mapping, and an error in a class."""
    with pytest.raises(ConfigurationError, match="names='a' must be a list"):
        config.ByField(names="a")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="names=3 must be a list"):
        layout({"kind": "field", "names": 3})
    with pytest.raises(ConfigurationError, match="partitioners=3 must be a list"):
        layout({"kind": "chain", "partitioners": 3})


def test_times_before_1970_are_rounded_up_as_in_connect_on_request() -> None:
    """T16: Connect's names have them so; by default they are rounded down."""
    by_field = {"kind": "hourly", **BY_FIELD}
    documents = [{"ts": -1}, {"ts": -3_600_001}, {"ts": 0}, {"ts": 2 * 86_400_000}]
    hours = [path[-2:] for path in encode(layout(by_field), documents) if path]
    assert hours == ["23", "22", "00", "00"]
    hours = [path[-2:] for path in encode(layout(by_field, kafka_connect_names=True), documents) if path]
    assert hours == ["00", "23", "00", "00"]


def test_the_time_of_the_clock_is_that_of_the_plan() -> None:
    """A batch keeps its names; a layout without a plan has no time."""
    for partitioner in (
        {"kind": "hourly", "timestamp_from": "wallclock"},
        {"kind": "chain", "partitioners": ["partition", {"kind": "hourly", "timestamp_from": "wallclock"}]},
    ):
        settings = layout(partitioner)
        planned = settings.at(AT)
        assert planned.at(AT) == planned != settings
        assert [path.endswith(BY_HOUR) for path in encode(planned, [{}]) if path] == [True]
        with pytest.raises(ConfigurationError, match="wallclock' has no time"):
            encode(settings, [{}])
    assert layout("hourly").at(AT) == layout("hourly")


def test_a_partitioner_by_time_of_an_older_plan_looks_at_records_of_kafka() -> None:
    """It has no source of times; the default is what it was planned with."""
    stored = {"kind": "daily", "timezone": "Asia/Tokyo"}
    assert config.parse_partitioner(stored) == config.Daily(timezone="Asia/Tokyo", timestamp_from=config.RecordTime())
    assert layout(stored).reads_timestamps


def test_records_of_kafka_without_a_timestamp_stay_an_error() -> None:
    """In a chain too."""
    made = make_partitioner(layout({"kind": "chain", "partitioners": ["partition", "daily"]}))
    records = pa.RecordBatch.from_arrays(
        [pa.array([0], pa.int64()), pa.array([-1], pa.int64())], names=["offset", "timestamp"]
    )
    with pytest.raises(RecordError, match="the record has no timestamp"):
        made.encode(Batch(records, "t", 3))


def test_lower_case_paths_are_lower_case_everywhere_but_null() -> None:
    """Literals of patterns, names of months and values; two values may share a folder."""
    pattern = {"kind": "time", "path_format": "'Y'=YYYY/'M'=MMM", "duration_ms": 1}
    assert encode(layout(pattern, lowercase_paths=True), [{}]) == ["y=2017/m=mar"]
    field = layout({"kind": "field", "names": "C"}, lowercase_paths=True)
    assert encode(field, [{"C": "No"}, {"C": "NO"}, {"C": None}]) == ["c=no", "c=no", "c=__HIVE_DEFAULT_PARTITION__"]
    times = {**pattern, **BY_FIELD}
    assert encode(layout(times, on_bad="NoTime", lowercase_paths=True), [{}]) == ["y=NoTime/m=NoTime"]


@pytest.mark.parametrize(
    ("partitioner", "naming", "message"),
    [
        ({"kind": "field", "names": []}, {}, "names of fields are missing"),
        ({"kind": "field", "names": ["a", "a"]}, {}, "has a field twice"),
        ({"kind": "field", "names": ["_kafka_s3"]}, {}, "are for other objects"),
        ({"kind": "field", "names": ["a\tb"]}, {}, "characters that no object key should have"),
        ({"kind": "field", "names": ["A", "a"]}, {"lowercase_paths": True}, "the same folders"),
        ({"kind": "field", "names": ["a"]}, {"directory_delim": "2"}, "folders of values would be ambiguous"),
        ({"kind": "field", "names": ["a"], "max_value_bytes": 10}, {}, "from 80 to 800"),
        ({"kind": "chain", "partitioners": ["daily"]}, {}, "needs two or more"),
        ({"kind": "chain", "partitioners": ["daily", "hourly"]}, {}, "two of one kind"),
        ({"kind": "chain", "partitioners": ["weekly", "hourly"]}, {}, "partitioners='weekly' is not known"),
        ({"kind": "daily", "timestamp_from": "clock"}, {}, "timestamp_from='clock' is not known"),
        ({"kind": "daily", "timestamp_from": {"kind": "field"}}, {}, "needs 'name'"),
    ],
)
def test_wrong_settings_are_refused(partitioner: Any, naming: dict[str, Any], message: str) -> None:
    """With the parameter, and what to write instead."""
    with pytest.raises(ConfigurationError, match=message):
        layout(partitioner, **naming)


@pytest.mark.parametrize(
    "partitioner",
    [{"kind": "field", "names": ["a"]}, {"kind": "daily", "timestamp_from": {"kind": "field", "name": "a"}}],
)
def test_values_without_fields_are_refused(partitioner: Any) -> None:
    """Bytes and texts have none."""
    with pytest.raises(ConfigurationError, match="values without fields; use value_converter='json'"):
        config.Layout(format=config.RawBytes(), partitioner=config.parse_partitioner(partitioner))
