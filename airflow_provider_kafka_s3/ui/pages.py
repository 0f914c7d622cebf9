"""Paths and what they show, as HTML or JSON; whatever server is before it calls :meth:`Pages.respond`."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, TransientError, message_of

if TYPE_CHECKING:
    import jinja2

    from airflow_provider_kafka_s3.documents.planner import PlannerTask
    from airflow_provider_kafka_s3.ui.model import TopicRow
    from airflow_provider_kafka_s3.ui.places import Place

__all__ = ["HEADERS", "ROUTES", "Pages", "Response"]

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Of every response: no script runs, and nothing is loaded from elsewhere."""

ROUTES: Final = (
    "",
    "topic/{place}/{pipeline}/{topic}",
    "batch/{place}/{pipeline}/{topic}/{batch}",
    "dag/{dag}",
    "metrics",
    "style.css",
    "api/topics",
    "api/topic/{place}/{pipeline}/{topic}",
    "api/batch/{place}/{pipeline}/{topic}/{batch}",
    "api/openapi.json",
)
"""All paths, below the one of the app."""

_KEPT_SECONDS: Final = 15.0
"""Time for which the list of all topics is kept, so that reloads cost the bucket nothing."""

_SHOWN: Final = 500
"""Objects, and ranges of offsets, in the page of a batch."""

_TEMPLATES: Final = Path(__file__).with_name("templates")
_STYLE: Final = Path(__file__).with_name("style.css")


@dataclass(frozen=True)
class Response:
    """What a server sends.

    Attributes:
        status: code of HTTP.
        content_type: of the body.
        body: text.
    """

    status: int
    content_type: str
    body: str


class _NotFoundError(Exception):
    """There is no such page."""


class Pages:
    """The pages over some places. It may be called by several threads."""

    def __init__(
        self,
        places: Callable[[], Sequence[Place]],
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        task_path: Callable[[PlannerTask], str] | None = None,
    ) -> None:
        """Prepare the pages; nothing is read yet.

        Args:
            places: gives the places, when a page needs them first.
            monotonic: clock in seconds.
            now: clock in seconds since the epoch.
            task_path: gives the path of a task instance in Airflow's UI, relative to the first of these pages and
                percent-encoded; None: the pages are not in Airflow.
        """
        self._now = now
        self._task_path = task_path
        self._make_places = places
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._rows: tuple[float, list[TopicRow]] | None = None

    @cached_property
    def _places(self) -> Mapping[int, Place]:
        return dict(enumerate(self._make_places()))

    @cached_property
    def _templates(self) -> jinja2.Environment:
        import jinja2

        from airflow_provider_kafka_s3.messages import size
        from airflow_provider_kafka_s3.ui import charts, texts

        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined
        )
        environment.filters.update(
            size=size,
            segment=lambda text: urllib.parse.quote(str(text), safe=""),
            time=texts.time,
            duration=texts.duration,
        )
        environment.globals.update(charts=charts, task_path=self._task_path)
        return environment

    def respond(self, path: str) -> Response:
        """The response to GET.

        Args:
            path: below that of the app, percent-encoded, without a query.
        """
        parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
        # Links are relative, so that they hold behind any prefix and proxy.
        up = "../" * (len(path.lstrip("/").split("/")) - 1)
        is_api = parts[0] == "api"
        try:
            return self._respond(parts, up)
        except _NotFoundError:
            status, message = 404, f"there is no page {path!r}"
        except ConfigurationError as e:
            status, message = 404, message_of(e)
        except TransientError as e:
            status, message = 503, message_of(e)
        except KafkaS3Error as e:
            status, message = 500, message_of(e)
        if is_api:
            return Response(status, "application/json", json.dumps({"error": message}))
        return self._html("error.html", up, status=status, message=message)

    def _respond(self, parts: Sequence[str], up: str) -> Response:
        from airflow_provider_kafka_s3.ui import model

        match parts:
            case [""]:
                return self._topics_page(up, self._topic_rows())
            case ["topic", place, pipeline, topic]:
                view = model.topic_view(*self._place(place), pipeline, topic, self._time())
                return self._html("topic.html", up, view=view)
            case ["batch", place, pipeline, topic, batch]:
                page = model.batch_view(*self._place(place), pipeline, topic, _number(batch))
                return self._html("batch.html", up, view=page, most=_SHOWN)
            case ["dag", dag]:
                return self._topics_page(up, [row for row in self._topic_rows() if row.dag == dag], dag)
            case ["metrics"]:
                return Response(200, "text/plain; version=0.0.4; charset=utf-8", self._metrics())
            case ["style.css"]:
                return Response(200, "text/css; charset=utf-8", _STYLE.read_text())
            case ["api", "topics"]:
                return _json({"topics": self._topic_rows()})
            case ["api", "topic", place, pipeline, topic]:
                return _json(model.topic_view(*self._place(place), pipeline, topic, self._time()))
            case ["api", "batch", place, pipeline, topic, batch]:
                return _json(model.batch_view(*self._place(place), pipeline, topic, _number(batch)))
            case ["api", "openapi.json"]:
                return _json(_openapi())
        raise _NotFoundError

    def _topics_page(self, up: str, rows: Sequence[TopicRow], dag: str = "") -> Response:
        return self._html("topics.html", up, rows=rows, places=[*self._places.values()], dag=dag)

    def _topic_rows(self) -> list[TopicRow]:
        from airflow_provider_kafka_s3.ui.model import topic_rows

        with self._lock:
            now = self._monotonic()
            if self._rows is None or now - self._rows[0] > _KEPT_SECONDS:
                self._rows = (now, topic_rows(self._places, self._time()))
            return self._rows[1]

    def _time(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._now(), dt.UTC)

    def _metrics(self) -> str:
        from airflow_provider_kafka_s3.inspect.metrics import prometheus_text

        rows = [row for row in self._topic_rows() if row.topic]
        return prometheus_text(({"pipeline": row.pipeline, "topic": row.topic}, self._gauges(row)) for row in rows)

    def _gauges(self, row: TopicRow) -> Mapping[str, float]:
        """Of a topic; those of one that cannot be read are left out, and its page has the reason."""
        if row.state == "unknown":
            return {"up": 0}
        place = self._places[row.place]
        topic = place.open(row.pipeline, row.topic)

        def gauges(use_kafka: bool) -> Mapping[str, float]:
            return topic.gauges(now=self._now(), use_kafka=use_kafka)

        try:
            return place.with_kafka(gauges)[0]
        except KafkaS3Error:
            return {"up": 0}

    def _place(self, text: str) -> tuple[int, Place]:
        number = _number(text)
        if number not in self._places:
            raise _NotFoundError
        return number, self._places[number]

    def _html(self, template: str, up: str, status: int = 200, **names: Any) -> Response:
        body = self._templates.get_template(template).render(up=up or "./", status=status, **names)
        return Response(status, "text/html; charset=utf-8", body)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise _NotFoundError
    return int(text)


def _json(value: object) -> Response:
    return Response(200, "application/json", msgspec.json.encode(value, enc_hook=str).decode())


def _openapi() -> dict[str, Any]:
    """The description of the paths of the API."""
    paths = {}
    for route in ROUTES:
        if route.startswith("api/"):
            names = [part[1:-1] for part in route.split("/") if part.startswith("{")]
            paths[f"/{route}"] = {
                "get": {
                    "parameters": [
                        {
                            "name": name,
                            "in": "path",
                            "required": True,
                            "schema": {"type": "integer" if name in ("place", "batch") else "string"},
                        }
                        for name in names
                    ],
                    "responses": {"200": {"description": "JSON, the same as the page shows"}},
                }
            }
    return {"openapi": "3.1.0", "info": {"title": "Kafka to S3", "version": "1"}, "paths": paths}
