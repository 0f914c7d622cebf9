"""A server that receives OpenLineage's events, and checks them by the classes of its client and by our schemas."""

from __future__ import annotations

import contextlib
import json
import threading
import typing
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

import msgspec
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

SCHEMAS: Final = Path(__file__).resolve().parents[1] / "docs" / "lineage" / "1-0-0"
CORE: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json"
_CORE_FACET: Final = {"type": "object", "required": ["_producer", "_schemaURL"]}
"""What OpenLineage's own schema, which the client does not have, requires of every facet."""


@contextlib.contextmanager
def lineage_server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a server, and the events that it has received, each of which is valid."""
    events: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/api/v1/lineage"
            events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", events
        for event in events:
            require_valid(event)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def require_valid(event: Mapping[str, Any]) -> None:
    """Make the classes of the client from an event: each of its fields has to be known, with the type declared."""
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

    datasets = {"inputs": InputDataset, "outputs": OutputDataset}
    RunEvent(
        **_fields(event, "eventType", "run", "job", "schemaURL", *datasets),
        eventType=RunState[event["eventType"]],
        run=_with_facets(Run, event["run"]),
        job=_with_facets(Job, event["job"]),
        **{name: [_with_facets(kind, each) for each in event.get(name, [])] for name, kind in datasets.items()},
    )


def _with_facets(kind: Callable[..., Any], entity: Mapping[str, Any]) -> Any:
    facets = [name for name in entity if name.lower().endswith("facets")]
    made = {name: {key: _facet(key, facet) for key, facet in entity[name].items()} for name in facets}
    return kind(**_fields(entity, *facets), **made)


def _facet(key: str, facet: Mapping[str, Any]) -> Any:
    kind = _facet_classes()[facet["_schemaURL"]]
    if kind.__module__.endswith(".base"):
        # Some of the provider's have no schema of their own.
        return kind()
    if (own := SCHEMAS / f"{kind.__name__}.json").exists():
        _validator(own).validate({key: facet})
        assert key in json.loads(own.read_text())["properties"]
    hints = typing.get_type_hints(kind)
    fields = {name: each for name, each in facet.items() if not name.startswith("_")}
    return kind(**{name: msgspec.convert(each, hints[name]) for name, each in fields.items()})


def _facet_classes() -> dict[str, Any]:
    """The classes of facets by the addresses of their schemas."""
    import airflow.providers.openlineage.plugins.facets  # noqa: F401 - declares classes, as the next one
    from openlineage.client.facet_v2 import BaseFacet

    import airflow_provider_kafka_s3.airflow.lineage  # noqa: F401

    classes, waiting = {}, [BaseFacet]
    while waiting:
        kind = waiting.pop()
        classes.setdefault(kind._get_schema(), kind)
        waiting += kind.__subclasses__()
    return classes


def _validator(path: Path) -> Draft202012Validator:
    core = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": {}}
    core["$defs"] = dict.fromkeys(("InputDatasetFacet", "RunFacet"), _CORE_FACET)  # type: ignore[assignment]
    registry: Any = Registry().with_resource(CORE, Resource.from_contents(core))
    schema = json.loads(path.read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, registry=registry)


def _fields(document: Mapping[str, Any], *without: str) -> dict[str, Any]:
    return {name: each for name, each in document.items() if name not in without}
