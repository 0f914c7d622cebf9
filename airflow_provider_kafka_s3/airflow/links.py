"""Buttons of a task in Airflow's UI: its manifest, its marker, and its Spark application.

Airflow 3 reads the URLs in the process of the task, when the task ends. There the operator keeps them, since reading an
XCom that does not exist is logged as an ERROR. Airflow 2.11 reads them in the webserver whenever it shows the task, so
they are also pushed as XComs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from airflow.providers.common.compat.sdk import BaseOperatorLink  # noqa: TID253 - it is the base class

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.exceptions import KafkaS3Error
from airflow_provider_kafka_s3.storage.browser import browser_url

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, Context

    from airflow_provider_kafka_s3.airflow.run_context import RunContext

__all__ = [
    "ManifestLink",
    "MarkerLink",
    "SparkHistoryLink",
    "manifest_url",
    "marker_url",
    "push",
    "spark_url",
]

_MANIFEST: Final = "manifest_url"
_MARKER: Final = "marker_url"
_SPARK: Final = "spark_url"


class _TaskLink(BaseOperatorLink):
    """A link whose URL the task stores with :func:`push`."""

    key: str

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """The URL, or an empty text if there is none; then Airflow disables the button."""
        kept: Mapping[str, str] | None = getattr(operator, "link_urls", None)
        if kept is not None:
            return kept.get(self.key, "")
        # The operator in the webserver of Airflow 2.11 is a deserialized one, without `link_urls`.
        from airflow.providers.common.compat.sdk import XCom

        return XCom.get_value(key=self.key, ti_key=ti_key) or ""


class ManifestLink(_TaskLink):
    """Link to the manifest of the last batch; of a task with several topics, to the folder of the pipeline."""

    key = _MANIFEST

    @property
    def name(self) -> str:
        """Text of the button."""
        return "Manifest"


class MarkerLink(_TaskLink):
    """Link to the marker with the stored offsets; of a task with several topics, to the folder of the pipeline."""

    key = _MARKER

    @property
    def name(self) -> str:
        """Text of the button."""
        return "Stored offsets"


class SparkHistoryLink(_TaskLink):
    """Link to the last Spark application of the task, if the Spark connection names a history server."""

    key = _SPARK

    @property
    def name(self) -> str:
        """Text of the button."""
        return "Spark"


def push(kept: dict[str, str], context: Context, **urls: str | None) -> None:
    """Store URLs where the links read them.

    Args:
        kept: ``link_urls`` of the operator. It may be another operator than the task of the context, if a function of
            that task executes it.
        context: of the task.
        urls: ``manifest_url``, ``marker_url`` and ``spark_url``; None: unknown, not stored.
    """
    for key, url in urls.items():
        if url is not None:
            kept[key] = url
            context["ti"].xcom_push(key=key, value=url)


def marker_url(run: RunContext, *, unsure: bool = False) -> str | None:
    """URL of the stored offsets of a task, for a browser; None: a first run has failed before there were any.

    Args:
        run: of the task.
        unsure: whether they may not exist.
    """
    if unsure and len(run.runs) == 1:
        (topic,) = run.runs.values()
        # One request: an outage is no reason to wait for a link.
        with contextlib.suppress(KafkaS3Error):
            if topic.log.store.store.head(addresses.marker_key(topic.log.prefix)) is None:
                return None
    return _of_task(run, lambda topic: addresses.marker_key(run.runs[topic].log.prefix))


def manifest_url(run: RunContext, returned: Mapping[str, Any]) -> str | None:
    """URL of the last manifest of a task, for a browser; None: it has no batch.

    Args:
        run: of the task.
        returned: XCom of the task.
    """
    last = {topic: t["batches"][-1]["batch"] for topic, t in returned["topics"].items() if t["batches"]}
    if not last:
        return None
    return _of_task(run, lambda topic: addresses.manifest_key(run.runs[topic].log.prefix, last[topic]))


def spark_url(history_url: str | None, application_id: str | None) -> str | None:
    """URL of a Spark application on the history server; None: unknown.

    The application's own UI ends with it, and is often not reachable from a browser.

    Args:
        history_url: URL of the history server; None: there is none.
        application_id: id of the application; None: unknown.
    """
    if history_url is None or application_id is None:
        return None
    return f"{history_url.rstrip('/')}/history/{quote(application_id)}/"


def _of_task(run: RunContext, key: Callable[[str], str]) -> str:
    topics = list(run.runs)
    # Airflow 3 shows no button for an ``s3://`` URL.
    if len(topics) == 1:
        return browser_url(run.access.settings, run.bucket, key(topics[0]))
    # The folder of the pipeline: `<topics_dir>/_kafka_s3/<pipeline>/`.
    folder = run.runs[topics[0]].log.prefix.rstrip("/").rpartition("/")[0] + "/"
    return browser_url(run.access.settings, run.bucket, folder)
