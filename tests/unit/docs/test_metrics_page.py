"""The page, the dashboard and the alert rules have the metrics of the list, and no others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import promql_parser
import pytest
import yaml

from airflow_provider_kafka_s3.inspect.metrics import METRICS, PREFIX
from tests.documentation import ROOT

DOCS = ROOT / "docs"
PRINTED = {f"{PREFIX}_{metric.name}" for metric in METRICS if metric.is_printed}
LABELS = {"pipeline", "topic"}
RULES = yaml.safe_load((DOCS / "metrics" / "alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((DOCS / "metrics" / "dashboard.json").read_text())
QUERIES = [
    *((rule["alert"], rule["expr"]) for rule in RULES),
    *((panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]),
]


def selectors(node: object) -> Iterator[promql_parser.VectorSelector]:
    """All selectors of series in a query."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("expr", "lhs", "rhs", "vector_selector", "vs"):
        if (inner := getattr(node, name, None)) is not None and not callable(inner):
            yield from selectors(inner)
    for argument in getattr(node, "args", None) or ():
        yield from selectors(argument)


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_queries_are_valid_and_ask_for_what_is_printed(title: str, query: str) -> None:
    """Names and labels; Grafana replaces its variables before Prometheus sees them."""
    parsed = promql_parser.parse(query.replace("$__range", "24h").replace("$__rate_interval", "5m"))
    asked = [*selectors(parsed)]
    names = {selector.name for selector in asked}
    assert names
    assert names == {*re.findall(rf"{PREFIX}_\w+", query)} <= PRINTED, title
    assert {matcher.name for selector in asked for matcher in selector.matchers.matchers} <= LABELS


def test_the_page_lists_every_metric() -> None:
    """With its kind, whether it is printed, its labels and its meaning."""
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (yes)? ?\| ([\w, ]+) \| (.*) \|$", (DOCS / "metrics.md").read_text(), re.MULTILINE
    )
    assert rows == [
        (metric.name, metric.kind, "yes" if metric.is_printed else "", ", ".join(metric.labels), metric.text)
        for metric in METRICS
    ]


def test_every_alert_has_its_entry_with_what_to_do() -> None:
    """One part of the page for each rule, in their order."""
    page = (DOCS / "monitoring.md").read_text()
    assert re.findall(r"^### (KafkaS3\w+)$", page, re.MULTILINE) == [rule["alert"] for rule in RULES]
    assert all(
        rule["annotations"]["summary"].startswith("{{ $labels.pipeline }} / {{ $labels.topic }}: ") for rule in RULES
    )
