"""Sends every metric once, as a task of Airflow does; a process of its own, as a backend is chosen once in each."""

from __future__ import annotations


def main() -> None:
    """Choose the backend by Airflow's configuration, send, and wait until all is sent."""
    from airflow_provider_kafka_s3.airflow.metrics import TaskMetrics
    from airflow_provider_kafka_s3.inspect.metrics import METRICS

    try:
        from airflow.sdk.observability.metrics import stats_utils
        from airflow.sdk.observability.stats import initialize
    except ImportError:
        pass  # Airflow 2 chooses the backend when it is first used
    else:
        initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
    metrics = TaskMetrics("shop")
    for metric in METRICS:
        others = {"topic": "orders.eu", "kind": "terminal"}
        metrics.send(metric.name, 3, **{label: others[label] for label in metric.labels if label in others})
    from opentelemetry.metrics import get_meter_provider

    getattr(get_meter_provider(), "force_flush", lambda: None)()


if __name__ == "__main__":
    main()
