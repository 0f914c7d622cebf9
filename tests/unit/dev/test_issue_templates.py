"""The forms for issues are those that GitHub accepts, and say what a report needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_provider_kafka_s3.cli import main
from tests.documentation import ROOT

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
FIELDS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}
REPORT = "kafka-s3 doctor --report"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_a_form_has_what_github_requires(form: Path) -> None:
    """Name and description, and fields with ids and labels of their own; the first problem would hide the form."""
    content: dict[str, Any] = yaml.safe_load(form.read_text())
    assert content.keys() == {"name", "description", "labels", "body"}
    assert all(isinstance(content[name], str) for name in ("name", "description"))
    fields = [field for field in content["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in content["body"]} <= FIELDS
    assert len({field["id"] for field in fields}) == len({field["attributes"]["label"] for field in fields})
    for field in content["body"]:
        assert field.keys() <= {"type", "id", "attributes", "validations"}
        texts = [field["attributes"].get("description", ""), *field["attributes"].get("options", [])]
        assert all(isinstance(text, str) for text in texts), "YAML reads an unquoted yes as true"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_a_form_names_the_command_that_makes_a_report(form: Path) -> None:
    """Which the command line has."""
    assert REPORT in form.read_text()
    assert main.parser().parse_args(["doctor", "--report"]).report == "-"


def test_the_forms_are_linked() -> None:
    """From where contributors read."""
    assert [form.name for form in FORMS] == ["bug_report.yml", "question.yml"]
    assert REPORT in (ROOT / "docs" / "contributing.md").read_text()
    assert REPORT in (ROOT / "SECURITY.md").read_text()
