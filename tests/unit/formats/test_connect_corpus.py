"""The recorded runs of Kafka Connect's S3 sink: every case whose settings exist here gives the same objects.

``docs/formats.md`` has the differences.

Cases are chosen by their configuration, so that a case runs as soon as its settings are supported. Two things differ
by design: a bounded batch closes what Connect leaves open at the end, and JSON is written byte for byte where Connect
parses and writes it again.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.kafka_connect.convert import convert
from airflow_provider_kafka_s3.kafka_connect.convert import layout_of as converted_layout

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "connect_corpus.json").read_text())["cases"]

SUPPORTED_KEYS = {
    "format.class",
    "value.converter",
    "value.converter.schemas.enable",
    "key.converter",
    "partitioner.class",
    "flush.size",
    "topics.dir",
    "directory.delim",
    "file.delim",
    "filename.offset.zero.pad.width",
    "s3.compression.type",
    "format.bytearray.separator",
    "format.bytearray.extension",
    "behavior.on.null.values",
    "locale",
    "timezone",
    "timestamp.extractor",
    "timestamp.field",
    "partition.field.name",
    "path.format",
    "partition.duration.ms",
    "rotate.file.on.partition.change",
}
LOSSY_IN_CONNECT = {
    "J01": "numbers beyond a double become the text Infinity, and -0 becomes 0",
    "J02": "integers beyond 64 bits wrap around",
}
DIFFERENT_BY_DESIGN = {
    "N06": "the JSON text null is a document here, and a null value in Connect's JSON converter",
    "F06": "a control character in a value is percent-encoded, since it cannot be listed as XML",
    "F07": "fields of JSON documents without a schema make folders here, and an error in Connect",
    "F10": "dates of a schema make folders here, and an error in Connect",
}

REFUSED_BEFORE_ANY_RECORD = {"B09": "bytes and strings are no pair; Connect fails with the first record"}


def short(class_name: str) -> str:
    """The class without its package."""
    return class_name.rpartition(".")[2]


def ignored_keys(settings: dict[str, str]) -> set[str]:
    """The settings that have no effect in Connect: rotation by time needs a partitioner by time."""
    return {"rotate.interval.ms"} if short(settings["partitioner.class"]) == "DefaultPartitioner" else set()


def applies(case: dict[str, Any]) -> bool:
    """Whether every setting of the case is one that exists here."""
    settings = case["config"]
    return (
        settings.keys()
        <= SUPPORTED_KEYS
        | ignored_keys(settings)  # without rotate.interval.ms, rotate.file.on.partition.change has no effect
        and (short(settings["format.class"]), short(settings["value.converter"]))
        in {
            ("JsonFormat", "JsonConverter"),
            ("ByteArrayFormat", "ByteArrayConverter"),
            ("ByteArrayFormat", "StringConverter"),
        }
        and settings.get("timestamp.extractor", "Record") in ("Record", "RecordField")
        and settings.get("behavior.on.null.values", "fail") in ("fail", "ignore")
    )


APPLICABLE = [c for c in CASES if applies(c)]
COMPARED = [c for c in APPLICABLE if c["id"] not in DIFFERENT_BY_DESIGN]


def without_order(line: bytes) -> Any:
    """A line with the entries of maps in one order: Connect keeps no order of those whose keys are no strings."""
    document = json.loads(line)
    if isinstance(document, dict) and isinstance(document.get("mi"), list):
        document["mi"].sort()
    return document


def layout_of(settings: dict[str, str]) -> config.Layout:
    """The sink's settings as a layout."""
    converted = convert(settings, topics="corpus", bucket="lake", pipeline="corpus")
    return converted_layout(converted.parameters)


def sent(value: Any, envelope: Any = None) -> bytes | None:
    """A value of the corpus as it was in Kafka, in its envelope if it has one."""
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    if value is not None and envelope is not None:
        return f'{{"schema":{json.dumps(envelope)},"payload":{value}}}'.encode()
    return None if value is None else str(value).encode()


def records_of(case: dict[str, Any], make_batch: Any) -> dict[int, pa.RecordBatch]:
    """One batch per Kafka partition."""
    rows: dict[int, list[tuple[int, int, bytes | None]]] = {}
    for index, (partition, timestamp, _key, value, *_headers) in enumerate(case["records"]):
        of_partition = rows.setdefault(partition, [])
        offset = case["offsets"][index] if "offsets" in case else len(of_partition)
        of_partition.append((offset, timestamp, sent(value, case.get("envelope"))))
    return {
        p: make_batch([v for _, _, v in r], offsets=[o for o, _, _ in r], timestamps=[t for _, t, _ in r])
        for p, r in rows.items()
    }


def run(case: dict[str, Any], make_batch: Any, write_objects: Any, rows_per_batch: int = 10_000) -> dict[str, Any]:
    """Write a case; key -> (Kafka partition, offsets, decompressed bytes)."""
    layout = layout_of(case["config"])
    objects = {}
    for partition, batch in records_of(case, make_batch).items():
        batches = [batch.slice(i, rows_per_batch) for i in range(0, batch.num_rows, rows_per_batch)]
        written = write_objects(layout, batches, topic=case["topic"], partition=partition)
        for key, one in written.items():
            body = gzip.decompress(one.body) if key.endswith(".gz") else bytes(one.body)
            objects[key] = (partition, one.offsets, body)
    return objects


def test_the_corpus_is_used_as_far_as_settings_exist() -> None:
    """The number of cases is asserted: fewer would be a loss, more have to be examined."""
    assert len(CASES) == 79
    assert len(APPLICABLE) == 59
    assert len([c for c in COMPARED if c["error"] is None]) == 46
    assert len([c for c in COMPARED if c["error"] is not None]) == 9
    assert {c["id"] for c in APPLICABLE} >= LOSSY_IN_CONNECT.keys() | DIFFERENT_BY_DESIGN.keys()


@pytest.mark.parametrize("rows_per_batch", [1, 10_000])
@pytest.mark.parametrize("case", [c for c in COMPARED if c["error"] is None], ids=lambda c: c["id"])
def test_objects_are_those_that_connect_wrote(
    case: dict[str, Any], rows_per_batch: int, make_batch: Any, write_objects: Any
) -> None:
    """Same keys, same records in them, same bytes where Connect does not parse; and the open objects closed."""
    objects = run(case, make_batch, write_objects, rows_per_batch)
    expected = {o["key"]: o for o in case["objects"]}
    assert expected.keys() <= objects.keys()

    for key, recorded in expected.items():
        body = objects[key][2]
        if short(case["config"]["format.class"]) == "ByteArrayFormat":
            assert hashlib.sha256(body).hexdigest() == recorded["sha256"]
            assert len(body) == recorded["size"]
        else:
            lines, theirs = body.split(b"\n"), recorded["content"].encode().split(b"\n")
            assert len(lines) == len(theirs)
            assert lines[-1] == b""
            if case["id"] not in LOSSY_IN_CONNECT:
                assert [without_order(x) for x in lines[:-1]] == [without_order(x) for x in theirs[:-1]]

    nulls = {
        (p, o.as_py())
        for p, b in records_of(case, make_batch).items()
        for o, v in zip(b.column("offset"), b.column("value"), strict=True)
        if not v.is_valid
    }
    tail = {(int(p), o) for p, offsets in case["open_tail"].items() for o in offsets} - nulls
    assert {(p, o) for key in objects.keys() - expected.keys() for p, o in _offsets(objects[key])} == tail


@pytest.mark.parametrize(
    "case",
    [
        c
        for c in COMPARED
        if c["error"] is None and short(c["config"]["format.class"]) == "JsonFormat" and "envelope" not in c
    ],
    ids=lambda c: c["id"],
)
def test_json_values_are_written_byte_for_byte(case: dict[str, Any], make_batch: Any, write_objects: Any) -> None:
    """The object contains what was produced, even where Connect loses digits."""
    batches = records_of(case, make_batch)
    for partition, offsets, body in run(case, make_batch, write_objects).values():
        batch = batches[partition].to_pylist()
        produced = {r["offset"]: r["value"] for r in batch}
        assert body == b"".join(produced[o] + b"\n" for o in offsets)


@pytest.mark.parametrize("case", [c for c in COMPARED if c["error"] is not None], ids=lambda c: c["id"])
def test_what_connect_refuses_is_refused(case: dict[str, Any], make_batch: Any, write_objects: Any) -> None:
    """A wrong setting or a record that cannot be written is an error here too, of the right kind."""
    settings_are_wrong = case["id"] in REFUSED_BEFORE_ANY_RECORD or (
        short(case["error"].get("chain", [{"class": "ConfigException"}])[0]["class"]) == "ConfigException"
    )
    with pytest.raises(ConfigurationError if settings_are_wrong else RecordError):
        run(case, make_batch, write_objects)


def test_a_control_character_of_a_value_is_percent_encoded(make_batch: Any, write_objects: Any) -> None:
    """F06 differs by design in one of its 14 objects, whose name holds a tab in Connect."""
    (case,) = (c for c in APPLICABLE if c["id"] == "F06")
    expected = {o["key"].replace("tab\tx", "tab%09x") for o in case["objects"]}
    assert run(case, make_batch, write_objects).keys() == expected


@pytest.mark.parametrize(("case_id", "folders"), [("F07", {"f=a": [0], "f=b": [1]}), ("F10", {"dt=2017-03-02": [0]})])
def test_fields_that_connect_refuses_make_folders(
    case_id: str, folders: dict[str, list[int]], make_batch: Any, write_objects: Any
) -> None:
    """F07 and F10 differ by design: maps have fields, and dates have a text."""
    (case,) = (c for c in APPLICABLE if c["id"] == case_id)
    written = run(case, make_batch, write_objects)
    assert {key.split("/")[2]: offsets for key, (_, offsets, _) in written.items()} == folders


def test_the_json_text_null_is_a_document(make_batch: Any, write_objects: Any) -> None:
    """N06 differs by design: only a Kafka null is a null value, ``null`` is JSON and is written."""
    case = next(c for c in APPLICABLE if c["id"] == "N06")
    assert [body for _, _, body in run(case, make_batch, write_objects).values()] == [b'{"seq":0}\n', b"null\n"]


@pytest.mark.parametrize("rows_per_batch", [1, 10_000])
def test_the_limit_of_open_objects_ends_the_one_that_was_opened_first(
    rows_per_batch: int, make_batch: Any, write_objects: Any
) -> None:
    """R12 differs by design: Connect ends all open objects; here the same records are in fewer ones."""
    (case,) = (c for c in CASES if c["id"] == "R12")
    objects = run(case, make_batch, write_objects, rows_per_batch)
    assert [offsets for _, offsets, _ in objects.values()] == [[0, 2], [1, 4], [3, 6, 7], [5, 9, 11], [8, 10]]
    assert len(objects) < len(case["objects"])


def test_every_case_is_run() -> None:
    """Each case is compared by a test, or named here with its reason."""
    others = {
        "A01 A03 R10 R13 R15 R17 R19": "tests/unit/batch/test_schema_changes.py",
        "K01 K03 K06 K07 N03 N08": "tests/unit/batch/test_connect_siblings.py",
        "R12": "test_the_limit_of_open_objects_ends_the_one_that_was_opened_first",
        "R02 R03 R04 R07 R09 N07": "rotation by time, which does not exist here",
    }
    elsewhere = [name for names in others for name in names.split()]
    here = [c["id"] for c in APPLICABLE]
    assert sorted(here + elsewhere) == sorted(c["id"] for c in CASES)


def _offsets(one: tuple[int, list[int], bytes]) -> list[tuple[int, int]]:
    return [(one[0], o) for o in one[1]]
