"""The parameters that the documentation lists are those of the operator."""

from __future__ import annotations

import inspect
import re
from typing import Final, get_args

import pytest

from airflow_provider_kafka_s3.config import Format, Limits, Naming, Partitioner, Rotation, Upload, Window
from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator
from tests.documentation import ROOT

PAGE: Final = (ROOT / "docs" / "operator.md").read_text()


def test_every_parameter_is_in_a_table() -> None:
    """By its name, in the first column."""
    listed = {name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    own = set(inspect.signature(KafkaToS3Operator.__init__).parameters) - {"self", "kwargs"}
    assert own <= listed
    fields = {field for group in (Rotation, Naming, Limits, Upload, Window) for field in group.__struct_fields__}
    assert fields <= listed


@pytest.mark.parametrize("kind", [*get_args(Format), *get_args(Partitioner)])
def test_every_format_and_partitioner_is_in_a_table_with_its_fields(kind: type[Format | Partitioner]) -> None:
    """By its class and its kind; fields that several have are told once."""
    (row,) = re.findall(rf"^\| `{kind.__name__}`, kind `{kind.__struct_config__.tag}` \|.*$", PAGE, re.MULTILINE)
    told = set(re.findall(r"`(\w+)`", PAGE[: PAGE.index(row) + len(row)]))
    assert set(kind.__struct_fields__) <= told


def test_what_is_templated_is_said() -> None:
    """Own parameters are marked in the tables, those of Spark's operator are listed."""
    marked = set(re.findall(r"`(\w+)` \*t\*", PAGE))
    (spark,) = re.findall(r"Templated are .*?`properties_file`", PAGE, re.DOTALL)
    assert marked | set(re.findall(r"`(\w+)`", spark)) == set(KafkaToS3Operator.template_fields)
