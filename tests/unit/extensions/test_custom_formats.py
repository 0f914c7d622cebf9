"""Formats of other packages: what they get, and what their results may be."""

from __future__ import annotations

import gzip
import json
import struct
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.extensions.loading import pinned
from airflow_provider_kafka_s3.formats.parts import MAIN
from airflow_provider_kafka_s3.formats.registry import make_formats
from tests.unit.extensions.conftest import WriteModule

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.int64()),
        pa.field("value", pa.binary()),
        pa.field("key", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def batch(*values: bytes | None) -> pa.RecordBatch:
    """Whole records from offset 7 on."""
    rows = [
        {"offset": 7 + i, "timestamp": -1, "value": value, "key": b"k", "headers": [{"key": "h", "value": b"x"}]}
        for i, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def write(
    settings: dict[str, Any], *batches: pa.RecordBatch, **layout: Any
) -> tuple[bytes, list[tuple[int, str]], list[int]]:
    """The bytes of an object; the row and the reason of each record that is not in it; the sizes of the others."""
    made = pinned(config.Layout(format=config.parse_format({"kind": "custom", **settings}), **layout))
    formats = make_formats(made, topic="t", partition=lambda: 3)
    writer, body, rejected, sizes = formats.open(MAIN, "key", None), bytearray(), [], list[int]()
    for each in batches:
        prepared = formats.prepare(each)
        rejected += [(r.row, r.reason) for r in prepared.rejected]
        sizes += prepared.sizes.tolist()
        if prepared.records.num_rows:
            for piece in writer.write(prepared.take(MAIN, slice(0, prepared.records.num_rows), None)):
                body += piece
    for piece in writer.close():
        body += piece
    return bytes(body), rejected, sizes


def test_a_class_of_another_package_makes_the_objects(shelf: str) -> None:
    """With what it puts before and behind the records, compressed, in any batches; null values are rejected."""
    settings = {"import_path": f"{shelf}.lengths:LengthPrefixed", "extension": ".shelf", "compression": "gzip"}
    assert config.parse_format({"kind": "custom", **settings}).object_extension == ".shelf.gz"
    whole = write(settings, batch(b"ab", None, b""))
    assert gzip.decompress(whole[0]) == b"SHLF\0\0\0\x02ab\0\0\0\0" + struct.pack(">I", 2)
    assert whole[1:] == ([(1, "the value is null (a tombstone), and on_null='fail'")], [6, 4])
    assert write(settings, batch(b"ab"), batch(b""))[0] == whole[0]
    ignored = write({**settings, "on_null": "ignore"}, batch(None, b"ab", b""))
    assert ignored == (whole[0], [], [6, 4])


def test_a_class_may_write_whole_records_and_tombstones(shelf: str) -> None:
    """It gets the keys, headers and timestamps that it declares, and null values with ``on_null='write'``."""
    settings = {"import_path": f"{shelf}.lengths:WholeRecords", "on_null": "write"}
    layout = pinned(config.Layout(format=config.parse_format({"kind": "custom", **settings})))
    assert (layout.whole_records, layout.reads_timestamps) == (True, True)
    body, rejected, _ = write(settings, batch(b"a", b"\xff", None))
    assert [json.loads(line) for line in body.splitlines()] == [
        {"at": None, "key": "k", "headers": ["h"], "offset": 7, "value": "a"},
        {"at": None, "key": "k", "headers": ["h"], "offset": 9, "value": None},
    ]
    assert rejected == [(1, "the value is not UTF-8")]


def test_values_may_have_to_be_json_documents(shelf: str) -> None:
    """So that partitioners find their fields in them; the class gets the bytes as they are."""
    settings = {"import_path": f"{shelf}.lengths:WholeRecords", "on_null": "write"}
    body, rejected, _ = write(settings, batch(b'{"a": 1}', b"{", None), value_converter=config.JsonConverter())
    assert [json.loads(line)["value"] for line in body.splitlines()] == ['{"a": 1}', None]
    assert [row for row, _ in rejected] == [1]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("None", "returned NoneType; return Frames"),
        ("Frames([b'a'])", "returned 1 frames for 2 records; return one each"),
        ("Frames(['a', 'b'])", "returned frames that are no bytes"),
        ("Frames(pa.array(['a', 'b']))", "returned frames of string; return binary"),
        ("Frames(pa.array([b'a', None]))", "returned frames of binary; return binary or large_binary without nulls"),
        ("Frames([b'a', b'b'], {2: 'no'})", "refused what is no row of the batch"),
        ("Frames([b'a', b'b'], {0: 1})", "refused what is no row of the batch, or for a reason that is no text"),
    ],
)
def test_frames_that_are_not_those_of_the_records_are_refused(
    write_module: WriteModule, result: str, message: str
) -> None:
    """With the place and the class."""
    name = write_module(
        f"""
        import pyarrow as pa
        class Broken(Format):
            version = "1"
            def encode(self, batch):
                return {result}
        """
    )
    with pytest.raises(ConfigurationError) as raised:
        write({"import_path": f"{name}:Broken"}, batch(b"1", b"2"))
    assert str(raised.value).startswith(f"topic 't', partition 3, offsets 7 to 8: {name}:Broken {message}")


@pytest.mark.parametrize(
    ("method", "error", "message"),
    [
        ("def begin(self): return 'text'", ConfigurationError, "begin of .*:Broken returned str; return bytes"),
        (
            "def write(self, frames): return None",
            ConfigurationError,
            "write of .*:Broken returned NoneType; return bytes",
        ),
        (
            "def end(self): raise OSError('secret')",
            RecordError,
            r"object 'key': .*:Broken raised OSError \(.*line \d+\)",
        ),
    ],
)
def test_an_encoder_that_fails_names_the_object(
    write_module: WriteModule, method: str, error: type[Exception], message: str
) -> None:
    """And not what the exception has in its text, which may be a value."""
    name = write_module(
        f"""
        class Encoder(ObjectEncoder):
            {method}
        class Broken(Format):
            version = "1"
            def encode(self, batch):
                return Frames(batch.records.column("value").to_pylist())
            def open(self):
                return Encoder()
        """
    )
    with pytest.raises(error, match=message) as raised:
        write({"import_path": f"{name}:Broken"}, batch(b"1", b"2"))
    assert "secret" not in str(raised.value)


def test_frames_may_be_an_arrow_array(write_module: WriteModule) -> None:
    """Without a Python object for each record."""
    name = write_module(
        """
        class Same(Format):
            version = "1"
            def encode(self, batch):
                return Frames(batch.records.column("value"), {0: "is the first"})
        """
    )
    found = write({"import_path": f"{name}:Same"}, batch(b"1", b"22", b"3"))
    assert found == (b"223", [(0, "is the first")], [2, 1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"content": config.Envelope()}, "content='envelope' needs a format whose fields may be records"),
        ({"value_converter": config.StringConverter()}, "does not go with format"),
        ({"value_converter": config.JsonConverter(schemas_enable=True)}, "converts values by their schema"),
    ],
)
def test_what_a_class_cannot_have_is_refused(given: dict[str, Any], message: str) -> None:
    """When the DAG is parsed: it gets the bytes of values."""
    with pytest.raises(ConfigurationError, match=message):
        config.Layout(format=config.CustomFormat(import_path="a:B"), **given)


def test_a_class_is_for_values_only() -> None:
    """Not for the objects of keys beside them; its extension is not that of another object."""
    custom = config.CustomFormat(import_path="a:B", extension=".keys.json")
    with pytest.raises(ConfigurationError, match="a format of your own is for values only"):
        config.SiblingObjects(keys=custom)
    with pytest.raises(ConfigurationError, match="is that of objects beside those of values"):
        config.Layout(format=custom, content=config.SiblingObjects())
