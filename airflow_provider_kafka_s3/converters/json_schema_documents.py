"""JSON Schema documents of a registry, and what the references in them name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urljoin

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.registry.schemas import SchemaReference

__all__ = ["SchemaDocuments"]


class SchemaDocuments:
    """A schema and the schemas that it refers to.

    A reference is resolved against the identifier (``$id``; ``id`` in draft 4) of the schema around it. The documents
    of the registry are found under the names of its references and under their own identifiers.
    """

    def __init__(self, text: str, references: Sequence[SchemaReference] = ()) -> None:
        """Parse the documents.

        Args:
            text: of the schema.
            references: of the registry.

        Raises:
            ConfigurationError: a text is not JSON.
        """
        self._resources: dict[str, Any] = {}
        self._anchors: dict[tuple[int, str], Any] = {}
        # By identity of a schema: the address that references in it start from, and its document.
        self._places: dict[int, tuple[str, Any]] = {}
        self.main: Any = _loaded(text)
        base = self._add(self.main, "")
        # Schemas are known by their identity, so all documents are kept.
        self._documents = [self.main]
        for reference in references:
            document = _loaded(reference.text)
            self._documents.append(document)
            address = _joined(base, reference.name)
            for name in (self._add(document, address), reference.name, address):
                self._resources.setdefault(name.partition("#")[0], document)

    def resolve(self, reference: str, schema: Mapping[str, Any]) -> Any:
        """The schema that ``$ref`` in a schema names.

        Raises:
            ConfigurationError: there is none.
        """
        base, document = self._places.get(id(schema), ("", self.main))
        address, _, fragment = reference.partition("#")
        if address:
            base = _joined(base, address)
            document = self._resources.get(base, self._resources.get(address))
            if document is None:
                raise ConfigurationError(f"it refers to {reference[:200]!r}, which is none of its references")
        # Generators of schemas give identifiers to parts without a meaning, so the whole document counts as well.
        for root in (self._resources.get(base, document), document):
            part = self._part(root, unquote(fragment))
            if part is not None:
                return part
        raise ConfigurationError(f"it refers to {reference[:200]!r}, which does not exist")

    def _part(self, root: Any, fragment: str) -> Any:
        if fragment and not fragment.startswith("/"):
            document = self._places.get(id(root), ("", root))[1]
            return self._anchors.get((id(document), fragment))
        part = root
        for step in fragment.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(part, Mapping):
                part = part.get(name)
            elif isinstance(part, list) and re.fullmatch("[0-9]{1,6}", name) and int(name) < len(part):
                part = part[int(name)]
            else:
                return None
        return part

    def _add(self, document: Any, name: str) -> str:
        """Index a document; returns its address."""
        keyword = "id" if isinstance(document, Mapping) and "draft-04" in str(document.get("$schema")) else "$id"
        stack = [(document, name)]
        while stack:
            schema, base = stack.pop()
            if isinstance(schema, Mapping):
                base = self._identified(schema, base, keyword, document)
                self._places[id(schema)] = (base, document)
            stack += [(part, base) for part in _parts(schema)]
        address, _ = self._places.get(id(document), (name, None))
        self._resources.setdefault(address, document)
        return address

    def _identified(self, schema: Mapping[str, Any], base: str, keyword: str, document: Any) -> str:
        """The address of a schema, which its identifier may change."""
        for name in (schema.get("$anchor"), schema.get("$dynamicAnchor")):
            if isinstance(name, str):
                self._anchors.setdefault((id(document), name), schema)
        identifier = schema.get(keyword)
        if not isinstance(identifier, str):
            return base
        address, _, fragment = identifier.partition("#")
        if address:
            base = _joined(base, address)
            self._resources.setdefault(base, schema)
        elif fragment:
            self._anchors.setdefault((id(document), fragment), schema)
        return base


def _joined(base: str, address: str) -> str:
    try:
        return urljoin(base, address)
    except ValueError:
        return address


def _parts(schema: Any) -> Iterator[Any]:
    """What may be, or have, a schema inside another one."""
    values = schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ()
    yield from (value for value in values if isinstance(value, Mapping | list))


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ConfigurationError(f"the JSON Schema is not JSON: {e}") from None
