"""The checks that users run on their own classes: good ones pass, and each broken rule is found."""

from __future__ import annotations

import json
import re

import pytest

from airflow_provider_kafka_s3 import BytesConverter, CustomFormat, CustomPartitioner, Naming
from airflow_provider_kafka_s3.exceptions import ConfigurationError, RecordError
from airflow_provider_kafka_s3.testing.extensions import ExtensionViolation, check_format, check_partitioner
from airflow_provider_kafka_s3.testing.kafka import SimulatedRecord
from tests.unit.extensions.conftest import WriteModule

RECORDS = [
    SimulatedRecord(
        offset=3 * i,
        timestamp=i,
        value=json.dumps({"tenant": tenant}).encode(),
        key=None if i % 3 else b"k",
        headers=(("region", b"eu"),) if i % 2 else (),
    )
    for i, tenant in enumerate(["a", "b", "a", None, "../c", "a", 5, "b", "é", "a"])
]


def test_good_classes_pass(shelf: str) -> None:
    """The paths and the bytes are returned, so that a test can compare them."""
    paths = check_partitioner(CustomPartitioner(import_path=f"{shelf}.tenants:TenantPartitioner"), RECORDS)
    assert paths[:4] == ["shelf=other/tenant=a", "shelf=other/tenant=b", "shelf=other/tenant=a", None]
    regions = CustomPartitioner(import_path=f"{shelf}.tenants:RegionPartitioner")
    found = check_partitioner(regions, RECORDS, value_converter=BytesConverter(), naming=Naming(lowercase_paths=True))
    assert found[:4] == ["region=unknown", "region=eu", None, "region=eu"]
    body = check_format(CustomFormat(import_path=f"{shelf}.lengths:LengthPrefixed"), RECORDS)
    assert (body[:4], body[-1]) == (b"SHLF", len(RECORDS))
    whole = check_format(CustomFormat(import_path=f"{shelf}.lengths:WholeRecords", compression="gzip"), RECORDS)
    assert whole[:2] == b"\x1f\x8b"


@pytest.mark.parametrize(
    "body",
    [
        # The code of a record is that of its place in the batch.
        "return Encoded(np.arange(n), [f'row={i}' for i in range(n)])",
        # All records of a batch have the path of the first one.
        "return Encoded(np.zeros(n, np.intp), [f'first={offsets[0]}'])",
        # It remembers earlier batches.
        "self.seen += n\nreturn Encoded(np.zeros(n, np.intp), [f'seen={self.seen // 4}'])",
        # Only records that come with others are refused.
        "if n == 1: return Encoded([0], ['alone'])\nreturn Encoded([REFUSED] * n, [], dict.fromkeys(range(n), 'no'))",
        # Another path every time.
        "import uuid\nreturn Encoded(np.zeros(n, np.intp), [uuid.uuid4().hex])",
    ],
)
def test_a_partitioner_that_depends_on_batches_is_found(write_module: WriteModule, body: str) -> None:
    """With the class, the offset and the ways to cut the records that differ."""
    lines = body.replace("\n", "\n" + " " * 16)
    name = write_module(
        f"""
        class Broken(Partitioner):
            version = "1"
            seen = 0
            def encode(self, batch):
                n = batch.records.num_rows
                offsets = batch.records.column("offset").to_pylist()
                {lines}
        """
    )
    with pytest.raises(ExtensionViolation, match=rf"^{name}:Broken: the paths depend on other records.*offset \d+ has"):
        check_partitioner(CustomPartitioner(import_path=f"{name}:Broken"), RECORDS)


def test_a_partitioner_with_a_wrong_number_of_codes_is_found(write_module: WriteModule) -> None:
    """By the error that a run would have."""
    name = write_module(
        """
        class Broken(Partitioner):
            version = "1"
            def encode(self, batch):
                return Encoded(np.zeros(max(1, batch.records.num_rows - 1), np.intp), ["a"])
        """
    )
    with pytest.raises(ConfigurationError, match="returned 9 codes of int64 for 10 records"):
        check_partitioner(CustomPartitioner(import_path=f"{name}:Broken"), RECORDS)


def test_a_format_whose_records_depend_on_others_is_found(write_module: WriteModule) -> None:
    """As a slice may begin at any record."""
    name = write_module(
        """
        class Broken(Format):
            version = "1"
            def encode(self, batch):
                return Frames([b"%d" % row for row in range(batch.records.num_rows)])
        """
    )
    with pytest.raises(ExtensionViolation, match=rf"^{name}:Broken: the bytes of the records depend on other records"):
        check_format(CustomFormat(import_path=f"{name}:Broken"), RECORDS)


def test_an_encoder_that_depends_on_its_calls_is_found(write_module: WriteModule) -> None:
    """As blocks that end where a batch ends do."""
    name = write_module(
        """
        class Blocks(ObjectEncoder):
            def write(self, frames):
                return b"block" + bytes(super().write(frames))
        class Broken(Format):
            version = "1"
            def encode(self, batch):
                return Frames(batch.records.column("value"))
            def open(self):
                return Blocks()
        """
    )
    with pytest.raises(
        ExtensionViolation, match=rf"^{name}:Broken: the bytes of the object differ if its records come"
    ):
        check_format(CustomFormat(import_path=f"{name}:Broken"), RECORDS)


def test_an_exception_is_the_cause_of_the_error(write_module: WriteModule) -> None:
    """With its traceback, which a run does not show."""
    name = write_module(
        """
        class Broken(PerRecordFormat):
            version = "1"
            def record(self, record):
                return {}["absent"]
        """
    )
    with pytest.raises(RecordError, match=rf"offset 0: {name}:Broken raised KeyError") as raised:
        check_format(CustomFormat(import_path=f"{name}:Broken"), RECORDS)
    causes = [raised.value.__cause__]
    while causes[-1] is not None:
        causes.append(causes[-1].__cause__)
    assert [type(cause).__name__ for cause in causes if cause is not None][-1] == "KeyError"


def test_a_check_without_records_is_an_error(shelf: str) -> None:
    """It would show nothing."""
    with pytest.raises(ValueError, match=re.escape("records is empty")):
        check_format(CustomFormat(import_path=f"{shelf}.lengths:LengthPrefixed"), [])
