"""The JSON schemas of the control documents, which are published with the package: one file for each kind.

``python -m airflow_provider_kafka_s3.documents.schemas`` writes the files again, from the classes of the documents.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from airflow_provider_kafka_s3.config import DeviantArtNaming, KeyNaming, Naming
from airflow_provider_kafka_s3.documents.codec import FORMAT, Document
from airflow_provider_kafka_s3.documents.expiry import Expiry
from airflow_provider_kafka_s3.documents.log_index import LogIndex
from airflow_provider_kafka_s3.documents.manifest import Amend, Manifest
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.owner import Owner
from airflow_provider_kafka_s3.documents.owning_table import OwningTable
from airflow_provider_kafka_s3.documents.pinned_schema import PinnedSchema
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.documents.planner import PlannerProcess, PlannerTask
from airflow_provider_kafka_s3.documents.replay import ReplayBegin, ReplayEnd, ReplayEpoch, ReplayPlan
from airflow_provider_kafka_s3.documents.run import RunRecord
from airflow_provider_kafka_s3.documents.topic_summary import TopicSummary

__all__ = ["KINDS", "SCHEMAS", "json_schema", "schema_path", "schema_text"]

KINDS: Final[tuple[type[Document], ...]] = (
    *(Marker, Plan, Manifest, Amend, RunRecord, PinnedSchema, Owner, OwningTable, Expiry),
    *(ReplayPlan, ReplayBegin, ReplayEnd, ReplayEpoch, LogIndex, TopicSummary),
)
"""All kinds of control documents."""

SCHEMAS: Final = Path(__file__).parent / "schemas"
"""The folder of the files."""

_OFFSETS: Final[dict[str, Any]] = {
    "description": "Offsets by Kafka partition: ascending ranges [start, end) that do not touch.",
    "type": "object",
    "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,9})$"},
    "additionalProperties": {
        "type": "array",
        "minItems": 1,
        "items": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2},
    },
}
_ATTRIBUTE: Final = re.compile(r"^(\w+): (.*(?:\n .*)*)", re.MULTILINE)
_STAMP: Final = ("written_by", "write_id", "created_at", "version")


def schema_path(kind: type[Document]) -> Path:
    """The file of the schema of a kind."""
    return SCHEMAS / f"{kind.__name__.lower()}.json"


def json_schema(kind: type[Document]) -> dict[str, Any]:
    """The JSON schema of a kind: its fields and those of the envelope that every document has.

    A document that is valid by it may still be refused: sums, orders and checksums are beyond a schema.
    """
    (schema,), definitions = msgspec.json.schema_components([kind], schema_hook=_of_hooks)
    more, others = msgspec.json.schema_components((Naming, DeviantArtNaming, PlannerProcess, PlannerTask))
    definitions = {**definitions, **others, "KeyNaming": {"anyOf": list(more[:2])}, "Offsets": _OFFSETS}
    body = definitions.pop(schema["$ref"].rpartition("/")[2])
    envelope: dict[str, Any] = {
        "kind": {"const": kind.__name__.lower()},
        "format": {"const": FORMAT},
        "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        **{name: {"type": "string"} for name in _STAMP},
    }
    if kind is Plan:
        envelope |= {"process": more[2], "task": more[3]}
    body["properties"] = {**body["properties"], **envelope}
    body["required"] = sorted({*body.get("required", ()), "kind", "format", "sha256"})
    definitions = _used(body, definitions)
    for struct in (body, *definitions.values()):
        _describe_fields(struct)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **body,
        "$defs": dict(sorted(definitions.items())),
    }


def schema_text(kind: type[Document]) -> str:
    """The text of the file of a kind."""
    return json.dumps(json_schema(kind), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all files again."""
    SCHEMAS.mkdir(exist_ok=True)
    for old in SCHEMAS.glob("*.json"):
        old.unlink()
    for kind in KINDS:
        schema_path(kind).write_text(schema_text(kind), encoding="utf-8")


def _of_hooks(kind: type) -> dict[str, Any]:
    """The schemas of types that ``msgspec`` does not have."""
    if kind in (Offsets, KeyNaming):
        return {"$ref": f"#/$defs/{kind.__name__}"}
    raise NotImplementedError(kind)


def _describe_fields(struct: dict[str, Any]) -> None:
    """Move the descriptions of fields from the docstring of their class to the fields."""
    text, _, attributes = struct.get("description", "").partition("Attributes:\n")
    if text:
        struct["description"] = " ".join(text.split())
    for name, description in _ATTRIBUTE.findall(inspect.cleandoc(attributes)):
        if name in struct.get("properties", ()):
            struct["properties"][name] = {
                **struct["properties"][name],
                "description": " ".join(description.replace("``", "").split()),
            }


def _used(body: object, definitions: dict[str, Any]) -> dict[str, Any]:
    """The definitions that a schema refers to, and those that these refer to."""
    used: dict[str, Any] = {}
    todo: list[object] = [body]
    while todo:
        part = todo.pop()
        if isinstance(part, list):
            todo.extend(part)
        elif isinstance(part, dict):
            todo.extend(part.values())
            reference = part.get("$ref")
            name = str(reference).rpartition("/")[2]
            if reference is not None and name not in used:
                used[name] = definitions[name]
                todo.append(definitions[name])
    return used


if __name__ == "__main__":
    main()
