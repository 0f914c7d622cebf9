"""The reference is generated from docstrings, so these describe every parameter, and mark templated ones."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import airflow_provider_kafka_s3
from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.airflow.run_settings import RunSettings
from airflow_provider_kafka_s3.config import (
    Content,
    Converter,
    Format,
    Limits,
    Naming,
    Partitioner,
    Rotation,
    Upload,
    Window,
)
from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator
from airflow_provider_kafka_s3.retry import RetryPolicy
from airflow_provider_kafka_s3.sensors.kafka_lag import KafkaLagSensor
from airflow_provider_kafka_s3.sensors.window_closed import KafkaWindowClosedSensor
from tests.documentation import ROOT, Block, blocks
from tests.unit.kafka_connect.connectors import MINIMAL

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OPERATORS = [
    block
    for page in PAGES
    for block in blocks(page)
    # Those of whole DAGs are parsed by tests/airflow.
    if block.language == "python" and re.search(r"\w(Operator|Sensor)[.(]", block.code) and "DAG(" not in block.code
]

each_class = pytest.mark.parametrize("documented", [KafkaToS3Operator, KafkaLagSensor, KafkaWindowClosedSensor])


def described(documented: Any, section: str = "Args") -> dict[str, str]:
    """The text about each name in a section of the docstring of a class; nothing without the section."""
    text = inspect.getdoc(documented) or ""
    found = re.findall(rf"^{section}:\n(.*?)(?=^\w+:\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return dict(re.findall(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", "".join(found), re.DOTALL | re.MULTILINE))


def own(documented: Any) -> set[str]:
    """The parameters that a class adds to those of its base."""
    return set(inspect.signature(documented.__init__).parameters) - {"self", "kwargs"}


@each_class
def test_every_parameter_is_described_by_its_class(documented: Any) -> None:
    """And nothing else; parameters of all sensors may be described in the base class."""
    assert own(documented) <= set(described(documented))
    accepted = {name for base in documented.__mro__ for name in inspect.signature(base.__init__).parameters}
    assert set(described(documented)) <= accepted


@pytest.mark.parametrize(
    "setting",
    [*get_args(Format), *get_args(Partitioner), Rotation, Naming, Limits, Upload, Window, RetryPolicy],
)
def test_every_field_of_a_setting_is_described_by_its_class(setting: type[msgspec.Struct]) -> None:
    """And nothing else."""
    assert set(described(setting, "Attributes")) == set(setting.__struct_fields__)


def test_every_parameter_of_the_operator_has_an_effect() -> None:
    """It is a field of the settings of a run, or one of the few that are read when a task runs."""
    read_by_tasks = {"action", "window", "name"}
    assert own(KafkaToS3Operator) == {*RunSettings.__struct_fields__, *read_by_tasks}


@pytest.mark.parametrize("kind", [*get_args(Format), *get_args(Partitioner)])
def test_every_format_and_partitioner_is_documented_and_public(kind: type[Format | Partitioner]) -> None:
    """On the page of the operator by its class and its kind, in the reference, and as a name of the package."""
    page = (ROOT / "docs" / "operator.md").read_text()
    assert re.search(rf'`{kind.__name__}`[ (|]+`"{kind.__struct_config__.tag}"`', page)
    assert f"::: {config.__name__}.{kind.__name__}\n" in (ROOT / "docs" / "reference" / "config.md").read_text()
    assert kind.__name__ in airflow_provider_kafka_s3.__all__


@pytest.mark.parametrize("kind", [*get_args(Converter), *get_args(Content)])
def test_every_converter_and_content_is_in_the_reference(kind: type[Converter | Content]) -> None:
    """And a name of the package."""
    assert f"::: {config.__name__}.{kind.__name__}\n" in (ROOT / "docs" / "reference" / "config.md").read_text()
    assert kind.__name__ in airflow_provider_kafka_s3.__all__


@pytest.mark.parametrize("kind", get_args(Format))
def test_every_format_is_on_the_page_of_formats(kind: type[Format]) -> None:
    """With the converters that go with it."""
    page = (ROOT / "docs" / "formats.md").read_text()
    assert f'\n| `{kind.__name__}`, `"{kind.__struct_config__.tag}"` | ' in page


@each_class
def test_templated_parameters_are_marked(documented: Any) -> None:
    """Of the parameters that the class adds."""
    marked = {name for name, text in described(documented).items() if "(templated)" in " ".join(text.split())}
    assert marked == set(documented.template_fields) & set(described(documented))


def test_the_fields_of_sparks_operator_that_are_templated_are_listed() -> None:
    """On the page of the operator, with its own."""
    page = (ROOT / "docs" / "operator.md").read_text()
    (listed,) = re.findall(r"Templated are .*?`properties_file`", page, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", listed)) == set(KafkaToS3Operator.template_fields)


@pytest.mark.parametrize("block", OPERATORS, ids=str)
def test_the_operators_and_sensors_of_the_pages_can_be_made(block: Block, tmp_path: Path) -> None:
    """Their parameters exist and have valid values."""
    connector = tmp_path / "connector.json"
    connector.write_text(json.dumps(MINIMAL))
    exec(block.code.replace("/opt/connectors/orders-to-s3.json", str(connector)), {})
