"""The parameters that the documentation lists are those of the operator."""

from __future__ import annotations

import inspect
import re
from typing import Final

from airflow_provider_kafka_s3.operators.kafka_to_s3 import KafkaToS3Operator
from tests.documentation import ROOT

PAGE: Final = (ROOT / "docs" / "operator.md").read_text()


def test_every_parameter_is_in_a_table() -> None:
    """By its name, in the first column."""
    listed = {name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    own = set(inspect.signature(KafkaToS3Operator.__init__).parameters) - {"self", "kwargs"}
    assert own <= listed


def test_what_is_templated_is_said() -> None:
    """Own parameters are marked in the tables, those of Spark's operator are listed."""
    marked = set(re.findall(r"`(\w+)` \*t\*", PAGE))
    (spark,) = re.findall(r"Templated are .*?`properties_file`", PAGE, re.DOTALL)
    assert marked | set(re.findall(r"`(\w+)`", spark)) == set(KafkaToS3Operator.template_fields)
