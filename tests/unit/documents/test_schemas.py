"""The JSON schemas of documents, and their reference, are those of the classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.documents.codec import Document
from airflow_provider_kafka_s3.documents.schemas import KINDS, SCHEMAS, json_schema, schema_path, schema_text

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "documents.md"
ENVELOPE = {"kind", "format", "sha256", "written_by", "write_id", "created_at", "version", "process", "task"}

kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def structs(kind: type[Document]) -> dict[str, dict[str, Any]]:
    """The structs of a document by their names, itself included."""
    schema = json_schema(kind)
    return {s["title"]: s for s in (schema, *schema["$defs"].values()) if "properties" in s}


@kinds
def test_the_published_schema_is_that_of_the_class(kind: type[Document]) -> None:
    """``python -m airflow_provider_kafka_s3.documents.schemas`` writes it again."""
    assert schema_path(kind).read_text() == schema_text(kind), (
        f"the fields of {kind.__name__} have changed, and format 1 is frozen: see docs/compatibility.md. If it allows "
        f"the change, write the schemas again with `python -m airflow_provider_kafka_s3.documents.schemas`, and name "
        f"the change in CHANGELOG.md"
    )


def test_there_is_a_schema_of_every_kind_and_no_other() -> None:
    """A new kind of document is one of the interfaces from its first release on."""
    assert {*Document.__subclasses__()} == {*KINDS}
    assert {path.name for path in SCHEMAS.iterdir()} == {schema_path(kind).name for kind in KINDS}


@kinds
def test_every_field_has_a_meaning(kind: type[Document]) -> None:
    """In the docstring of its class, from which schema and reference are made."""
    without = {
        f"{title}.{name}"
        for title, struct in structs(kind).items()
        for name, field in struct["properties"].items()
        if "description" not in field and name not in ENVELOPE | {"kind"}
    }
    assert without == set()


def test_the_reference_has_every_document_and_its_parts() -> None:
    """With a row of the table, a link to the schema and the fields; settings are on a page of their own."""
    page, settings = PAGE.read_text(), (PAGE.parent / "config.md").read_text()
    for kind in KINDS:
        assert (
            f"| [{kind.__name__}](../../airflow_provider_kafka_s3/documents/schemas/{schema_path(kind).name}) |" in page
        )
        assert {name for name in structs(kind) if f".{name}\n    options" not in page + settings} == set()
