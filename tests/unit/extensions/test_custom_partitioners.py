"""Partitioners of other packages: what they get, and what their results may be."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.converters.field_values import DocumentFields
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.extensions import REFUSED, Batch, safe_name
from airflow_provider_kafka_s3.extensions.loading import pinned
from airflow_provider_kafka_s3.layout.partitioners import make_partitioner
from tests.unit.extensions.conftest import WriteModule

AT = 1488477600000  # 2017-03-02T18:00:00Z


def layout(partitioner: Any, **naming: Any) -> config.Layout:
    """A layout of JSON documents, as a plan has it."""
    return pinned(
        config.Layout(
            format=config.JsonLines(),
            partitioner=config.parse_partitioner(partitioner),
            naming=config.Naming(**naming),
        )
    )


def encode(settings: config.Layout, values: Sequence[Any]) -> list[str | None]:
    """The encoded partition of each document; None if it is refused."""
    texts = pa.array([json.dumps(value).encode() for value in values], pa.binary())
    count = len(values)
    records = pa.RecordBatch.from_pydict(
        {
            "offset": pa.array(range(7, 7 + count), pa.int64()),
            "timestamp": pa.array([AT] * count, pa.int64()),
            "value": texts,
            "key": pa.array([b"k"] * count, pa.binary()),
        }
    )
    fields = DocumentFields([name.split(".") for name in settings.field_names]).read(texts)
    batch = Batch(records, "t", 3, dict(zip(settings.field_names, fields, strict=True)))
    encoded = make_partitioner(settings).encode(batch)
    assert sorted(encoded.refused) == np.flatnonzero(encoded.codes == REFUSED).tolist()
    assert len(set(encoded.paths)) == len(encoded.paths)
    return [None if code == REFUSED else encoded.paths[code] for code in encoded.codes.tolist()]


def tenants(shelf: str, **options: Any) -> dict[str, Any]:
    """Settings of the partitioner of another package."""
    return {"kind": "custom", "import_path": f"{shelf}.tenants:TenantPartitioner", "options": options}


def test_a_class_of_another_package_makes_the_folders(shelf: str) -> None:
    """It gets the fields that it declares, as far as they depend on its options, and may refuse records."""
    settings = layout(tenants(shelf, field="who.id", tiers={"acme": "gold"}))
    assert settings.field_names == ("who.id",)
    documents = [{"who": {"id": "acme"}}, {"who": {"id": "../b"}}, {"who": {"id": 5}}, {"who": {"id": "acme"}}, {}]
    gold = "shelf=gold/tenant=acme"
    assert encode(settings, documents) == [gold, "shelf=other/tenant=..%2Fb", None, gold, None]


def test_it_may_be_a_link_of_a_chain(shelf: str) -> None:
    """Its folders, then those of the time; and several classes are not two of one kind."""
    chain = layout({"kind": "chain", "partitioners": [tenants(shelf), {"kind": "daily"}, tenants(shelf)]})
    found = encode(chain, [{"tenant": "a"}, {"tenant": None}])
    assert found == ["shelf=other/tenant=a/year=2017/month=03/day=02/shelf=other/tenant=a", None]


def test_names_follow_the_layout(shelf: str) -> None:
    """Folders have the delimiter of the layout; those that differ in case only are one in lower case."""
    found = encode(
        layout(tenants(shelf), directory_delim="|", lowercase_paths=True), [{"tenant": "A"}, {"tenant": "a"}]
    )
    assert found == ["shelf=other|tenant=a"] * 2


def test_a_class_sees_only_what_it_declares(write_module: WriteModule) -> None:
    """Whatever else is read for others, so that it does not depend on their settings."""
    name = write_module(
        """
        class Columns(Partitioner):
            version = "1"
            def __init__(self, *, reads=()):
                self.reads = reads
            def encode(self, batch):
                names = "-".join(batch.records.schema.names)
                return Encoded(np.zeros(batch.records.num_rows, np.intp), [f"{names}/{sorted(batch.fields)}"])
        """
    )
    one = {"kind": "custom", "import_path": f"{name}:Columns"}
    chain = {"kind": "chain", "partitioners": [one, {"kind": "field", "names": "a"}]}
    assert encode(layout(chain), [{"a": "x"}]) == ["offset-value/[]/a=x"]
    whole = layout({**one, "options": {"reads": ["timestamp", "key"]}})
    assert (whole.whole_records, whole.reads_timestamps) == (True, True)
    assert encode(whole, [{}]) == ["offset-value-timestamp-key/[]"]
    plain = layout(one)
    assert (plain.whole_records, plain.reads_timestamps) == (False, False)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("None", "returned NoneType; return an Encoded"),
        ("Encoded(np.zeros(n - 1, np.intp), ['a'])", "returned 1 codes of int64 for 2 records"),
        ("Encoded([0.5] * n, ['a'])", "returned 2 codes of float64 for 2 records"),
        ("Encoded(np.zeros(n, np.intp), [])", "returned codes from 0 to 0 for 0 paths"),
        ("Encoded(np.full(n, -2), ['a'])", "returned codes from -2 to -2 for 1 paths"),
        ("Encoded(np.full(n, REFUSED), ['a'])", "returned 2 codes REFUSED, and reasons for 0 rows"),
        ("Encoded(np.zeros(n, np.intp), ['a'], {0: 'no'})", "returned 0 codes REFUSED, and reasons for 1 rows"),
        ("Encoded(np.full(n, REFUSED), [], {0: 1, 1: 2})", "returned a reason that is no text"),
        ("Encoded(np.zeros(n, np.intp), 'a')", "returned paths of str; return a list of texts"),
        ("Encoded(np.zeros(n, np.intp), [b'a'])", "returned a path that is bytes; return a text"),
        ("Encoded(np.zeros(n, np.intp), ['a//b'])", "returned a path with an empty folder"),
        ("Encoded(np.zeros(n, np.intp), [''])", "returned a path with an empty folder"),
        ("Encoded(np.zeros(n, np.intp), ['a/../b'])", "returned a path with an empty folder, '.' or '..'"),
        (
            "Encoded(np.zeros(n, np.intp), ['_kafka_s3/a'])",
            "returned a path with a folder that begins with '_kafka_s3'",
        ),
        (
            "Encoded(np.zeros(n, np.intp), ['_dead_letters'])",
            "returned a path with a folder that begins with '_kafka_s3'",
        ),
        ("Encoded(np.zeros(n, np.intp), ['a\\tb'])", "returned a path with characters that cannot be listed"),
        ("Encoded(np.zeros(n, np.intp), ['\\ud800'])", "returned a path with characters that cannot be listed"),
        ("Encoded(np.zeros(n, np.intp), ['é' * 101])", "returned a path of 202 bytes, and max_path_bytes is 200"),
    ],
)
def test_a_result_that_could_name_a_wrong_object_is_refused(
    write_module: WriteModule, result: str, message: str
) -> None:
    """With the place and the class, and without the path, which may hold a value."""
    name = write_module(
        f"""
        class Broken(Partitioner):
            version = "1"
            def encode(self, batch):
                n = batch.records.num_rows
                return {result}
        """
    )
    settings = layout({"kind": "custom", "import_path": f"{name}:Broken"})
    with pytest.raises(ConfigurationError) as raised:
        encode(settings, [{}, {}])
    assert str(raised.value).startswith(f"topic 't', partition 3, offsets 7 to 8: {name}:Broken {message}")


def test_an_exception_of_a_class_has_the_place_and_no_value(write_module: WriteModule) -> None:
    """That of a class over batches has the offsets of its batch, one for each record its offset; both have the line."""
    name = write_module(
        """
        class Whole(Partitioner):
            version = "1"
            def encode(self, batch):
                raise ValueError(batch.records.column("value")[0].as_py())

        class One(PerRecordPartitioner):
            version = "1"
            def path(self, record):
                return {}[record.value] if b"secret" in record.value else "a"
        """
    )
    for kind, place, error, line in (("Whole", "offsets 7 to 8", "ValueError", 7), ("One", "offset 8", "KeyError", 12)):
        settings = layout({"kind": "custom", "import_path": f"{name}:{kind}"})
        with pytest.raises(RecordError) as raised:
            encode(settings, [{}, "secret"])
        assert str(raised.value).startswith(f"topic 't', partition 3, {place}: {name}:{kind} raised {error} (")
        assert f"{name}.py, line {line}); correct the class" in str(raised.value)
        assert "secret" not in str(raised.value)


def test_the_longest_path_of_a_class_limits_the_key(write_module: WriteModule) -> None:
    """So that a key that is too long is refused before anything is planned."""
    name = write_module(
        """
        class Long(Partitioner):
            version = "1"
            max_path_bytes = 321
            def encode(self, batch):
                raise NotImplementedError
        """
    )
    assert len(make_partitioner(layout({"kind": "custom", "import_path": f"{name}:Long"})).longest) == 321


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a/b", "é", "\ud800", "_kafka_s3", "_dead_letters", "__EMPTY__", "~", "%"]
)
def test_safe_names_are_safe_and_different(text: str) -> None:
    """Every text is one folder that a partitioner may return."""
    name = safe_name(text)
    assert "/" not in name
    assert name.strip(".") != ""
    assert not name.startswith(("_kafka_s3", "_dead_letters"))
    assert name.isascii()
    others = ["", ".", "..", "a/b", "é", "\ud800", "_kafka_s3", "_dead_letters", "__EMPTY__", "~", "%"]
    assert [other for other in others if safe_name(other) == name] == [text]


def test_long_safe_names_are_cut_and_stay_different() -> None:
    """With a digest of the whole text, and no half of an encoded character."""
    names = {safe_name("é" * 200 + end) for end in "ab"}
    assert len(names) == 2
    assert all(len(name) <= 100 for name in names)
    assert all(re.fullmatch(r"(%[0-9A-F]{2})+~[0-9a-f]{64}", name) for name in names)
