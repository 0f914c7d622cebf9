"""Buttons of a task in Airflow's UI: its manifest, its marker, and its Spark application.

Only the task has the addresses. Airflow 3 reads them when the task ends, in its own process, so the operator keeps
them: an XCom that is not there is an ERROR in the log of Airflow 3. Airflow 2.11 reads them in the webserver whenever
somebody looks, so they are XComs, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from airflow.providers.common.compat.sdk import BaseOperatorLink  # noqa: TID253 - it is the base class

from airflow_provider_kafka_s3.layout import keys

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, Context

    from airflow_provider_kafka_s3.airflow.run_context import RunContext

__all__ = [
    "ManifestLink",
    "MarkerLink",
    "SparkHistoryLink",
    "manifest_url",
    "marker_url",
    "object_url",
    "push",
    "spark_url",
]

_MANIFEST: Final = "manifest_url"
_MARKER: Final = "marker_url"
_SPARK: Final = "spark_url"

_CONSOLES: Final = {"cn-": "console.amazonaws.cn", "us-gov-": "console.amazonaws-us-gov.com"}
"""Beginnings of the names of regions whose console is another one."""


class _TaskLink(BaseOperatorLink):
    """A link that the task has stored by :func:`push`."""

    key: str

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """The address, or nothing while there is none; then Airflow greys the button out."""
        kept: Mapping[str, str] | None = getattr(operator, "link_urls", None)
        if kept is not None:
            return kept.get(self.key, "")
        # The webserver of Airflow 2.11 has a copy of the operator that has not run.
        from airflow.providers.common.compat.sdk import XCom

        return XCom.get_value(key=self.key, ti_key=ti_key) or ""


class ManifestLink(_TaskLink):
    """To the manifest of the last batch; of a task with several topics, to the folder of the pipeline."""

    key = _MANIFEST

    @property
    def name(self) -> str:
        """Of the button."""
        return "Manifest"


class MarkerLink(_TaskLink):
    """To the marker with the stored offsets; of a task with several topics, to the folder of the pipeline."""

    key = _MARKER

    @property
    def name(self) -> str:
        """Of the button."""
        return "Stored offsets"


class SparkHistoryLink(_TaskLink):
    """To the last Spark application of the task, if the Spark connection names a history server."""

    key = _SPARK

    @property
    def name(self) -> str:
        """Of the button."""
        return "Spark"


def push(kept: dict[str, str], context: Context, **urls: str | None) -> None:
    """Store addresses where the links find them.

    Args:
        kept: ``link_urls`` of the operator, which is not the task of the context if a function of another task executes
            it.
        context: of the task.
        urls: ``manifest_url``, ``marker_url`` and ``spark_url``, as far as they are known.
    """
    for key, url in urls.items():
        if url is not None:
            kept[key] = url
            context["ti"].xcom_push(key=key, value=url)


def marker_url(run: RunContext) -> str:
    """Where a person finds the stored offsets of a task."""
    return _of_task(run, lambda topic: keys.marker_key(run.runs[topic].log.prefix))


def manifest_url(run: RunContext, returned: Mapping[str, Any]) -> str | None:
    """Where a person finds the last manifest of a task; None: it has no batch.

    Args:
        run: of the task.
        returned: what the task returns.
    """
    last = {topic: t["batches"][-1]["batch"] for topic, t in returned["topics"].items() if t["batches"]}
    if not last:
        return None
    return _of_task(run, lambda topic: keys.manifest_key(run.runs[topic].log.prefix, last[topic]))


def object_url(run: RunContext, key: str) -> str:
    """Where a person finds a key: in the console of AWS, or at the endpoint of another store.

    Airflow 3 shows no button for an ``s3://`` address. What an endpoint answers to a browser is its own affair: MinIO
    leads to its console, others to the object, if they let anybody read it.
    """
    settings = run.access.settings
    endpoint = urlsplit(settings.endpoint_url or "")
    if settings.endpoint_url and not (endpoint.hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn")):
        # Without a user and a password in the address.
        base = urlunsplit(endpoint._replace(netloc=endpoint.netloc.rpartition("@")[2], query="", fragment=""))
        path = quote(f"{run.bucket}/{key}")
        return f"{base.rstrip('/')}/{path}"
    region = settings.region or ""
    console = next((c for start, c in _CONSOLES.items() if region.startswith(start)), "console.aws.amazon.com")
    kind = "buckets" if key.endswith("/") else "object"
    query = urlencode({**({"region": region} if region else {}), "prefix": key})
    return f"https://{console}/s3/{kind}/{quote(run.bucket)}?{query}"


def spark_url(history_url: str | None, application_id: str | None) -> str | None:
    """Where a person finds a Spark application after its end; None: unknown.

    The UI of a running application ends with it, and is rarely reachable from where people are; what the history server
    shows is the same, and stays.

    Args:
        history_url: address of the history server, if there is one.
        application_id: of the application; None: it is not known.
    """
    if history_url is None or application_id is None:
        return None
    return f"{history_url.rstrip('/')}/history/{quote(application_id)}/"


def _of_task(run: RunContext, key: Callable[[str], str]) -> str:
    topics = list(run.runs)
    if len(topics) == 1:
        return object_url(run, key(topics[0]))
    # What all topics have in common: `<topics_dir>/_kafka_s3/<pipeline>/`.
    return object_url(run, run.runs[topics[0]].log.prefix.rstrip("/").rpartition("/")[0] + "/")
