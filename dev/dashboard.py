"""``make dashboard``: the dashboard of ``docs/metrics``, filled by a real Prometheus while the demo runs.

Grafana is not started here: its panels are drawn by this module from what Prometheus answers to their queries. It fails
if a query or a rule is wrong, if a panel that should have data has none, or if the totals are not those of the demo.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from dev import flights
from dev.browser import chromium
from dev.demo import BUCKET, Demo
from dev.ports import HOST, free_ports, listens
from dev.prometheus import ALERTS, ROOT, Prometheus
from dev.waiting import wait_for_start

__all__ = ["main"]

DASHBOARD: Final = ALERTS.parent / "dashboard.json"
PICTURE: Final = ALERTS.parent / "dashboard.png"
_STEP: Final = 2.0
"""Seconds between two points."""
_EMPTY: Final = frozenset({"Small objects"})
"""Panels that may have no data in the demo."""
_COLORS: Final = ("#1f78c1", "#eb7b18", "#2f9e44", "#b33dc6", "#c92a2a", "#0b7285")


@dataclass(frozen=True)
class Series:
    """One line of a panel.

    Attributes:
        name: of its labels.
        points: time and value.
    """

    name: str
    points: Sequence[tuple[float, float]]


def main() -> int:
    """Run the demo under Prometheus, draw the dashboard, and print the last value of each panel."""
    with contextlib.ExitStack() as servers:
        demo = Demo(servers)
        port = _page(demo, servers)
        prometheus = servers.enter_context(Prometheus(f"{HOST}:{port}"))
        began = time.time()
        demo.run()
        # As JSON and as Avro; the page shows the pipelines of one prefix, so those that are compacted are not in.
        _wait(prometheus, 2 * flights.FLIGHTS)
        panels = {panel["title"]: _read(prometheus, panel, began) for panel in _panels()}
        _print(panels)
        wrong = [title for title, series in panels.items() if not series and title not in _EMPTY]
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        wrong += [f"rule {rule['name']}: {rule.get('lastError')}" for rule in rules if rule["health"] != "ok"]
        firing = sorted(alert["labels"]["alertname"] for alert in prometheus.get("alerts")["alerts"])
        print(f"{len(rules)} alert rules are evaluated; pending or firing: {', '.join(firing) or 'none'}")
        _draw(panels, time.time() - began)
        print(f"{PICTURE.relative_to(ROOT)} shows the panels")
    if wrong:
        print(f"without data, or wrong: {', '.join(wrong)}", file=sys.stderr)
    return int(bool(wrong))


def _page(demo: Demo, servers: contextlib.ExitStack) -> int:
    """Start the page, which has the metrics; its port."""
    (port,) = free_ports(1)
    options = f"ui --aws-conn-id aws_default --kafka-conn-id kafka_default --bucket {BUCKET} --port {port}"
    output = demo.airflow.folder / "ui.log"
    command = [sys.executable, "-m", "airflow_provider_kafka_s3.cli", *options.split()]
    with output.open("wb") as log:
        process = subprocess.Popen(command, env=demo.airflow.environment, cwd=ROOT, stdout=log, stderr=log)
    servers.enter_context(process)
    servers.callback(process.terminate)
    wait_for_start("kafka-s3 ui", lambda: listens(port), [process], timeout=60, log=output.read_text, interval=0.1)
    return port


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return panels


def _query(expression: str, seconds: float) -> str:
    """An expression of a panel with the variables of Grafana: all pipelines, and the time of the demo."""
    variables = {"$pipeline": ".*", "$topic": ".*", "$__range": f"{seconds:.0f}s", "$__rate_interval": "30s"}
    for name, value in variables.items():
        expression = expression.replace(name, value)
    # The demo takes minutes, and rates over an hour would have one point.
    return expression.replace("[1h]", "[30s]")


def _read(prometheus: Prometheus, panel: Mapping[str, Any], began: float) -> list[Series]:
    now, found = time.time(), list[Series]()
    for target in panel["targets"]:
        expression = _query(target["expr"], now - began)
        if panel["type"] == "stat":
            answer = prometheus.get("query", query=expression, time=now)["result"]
            lines = [(row["metric"], [row["value"]]) for row in answer]
        else:
            answer = prometheus.get("query_range", query=expression, start=began, end=now, step=_STEP)["result"]
            lines = [(row["metric"], row["values"]) for row in answer]
        for labels, values in lines:
            name = re.sub(r"{{(\w+)}}", lambda label, of=labels: of.get(label[1], ""), target["legendFormat"])  # type: ignore[misc]
            # Before the first batch a mean is no number.
            points = [(float(at), float(value)) for at, value in values if value != "NaN"]
            found += [Series(name, points)] if points else []
    return found


def _wait(prometheus: Prometheus, records: int) -> None:
    """Wait until the totals of all pipelines have arrived."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answer = prometheus.get("query", query="sum(kafka_s3_records_total)")["result"]
        if answer and float(answer[0]["value"][1]) == records:
            return
        time.sleep(_STEP)
    raise RuntimeError(f"Prometheus has {answer} records in all pipelines, and the demo has landed {records:,}")


def _print(panels: Mapping[str, Sequence[Series]]) -> None:
    for title, series in panels.items():
        print(f"{title}:")
        for line in series:
            print(f"  {line.name}: {line.points[-1][1]:,.1f} at the end, {max(v for _, v in line.points):,.1f} at most")


def _draw(panels: Mapping[str, Sequence[Series]], seconds: float) -> None:
    boxes = []
    for panel in _panels():
        series, place = panels[panel["title"]], panel["gridPos"]
        body = _stat(series) if panel["type"] == "stat" else _lines(series, seconds)
        style = f"grid-column: {place['x'] + 1} / span {place['w']}; grid-row: {place['y'] + 1} / span {place['h']}"
        boxes.append(Markup('<section style="{}"><h2>{}</h2>{}</section>').format(style, panel["title"], body))
    page = Markup(_PAGE).format(boxes=Markup("").join(boxes))
    with chromium() as browser:
        window = browser.new_page(viewport={"width": 1200, "height": 1100})
        window.set_content(str(page))
        window.screenshot(path=str(PICTURE), full_page=True)


def _stat(series: Sequence[Series]) -> Markup:
    return Markup("<p>{}</p>").format(f"{series[0].points[-1][1]:,.0f}" if series else "no data")


def _lines(series: Sequence[Series], seconds: float) -> Markup:
    if not series:
        return Markup("<div>no data</div>")
    most = max(value for line in series for _, value in line.points) or 1.0
    first = min(at for line in series for at, _ in line.points)
    shapes, legend = [], []
    for number, line in enumerate(series):
        color = _COLORS[number % len(_COLORS)]
        path = " ".join(
            f"{(at - first) / seconds * 560:.1f},{100 - value / most * 95:.1f}" for at, value in line.points
        )
        shapes.append(Markup('<polyline points="{}" stroke="{}"/>').format(path, color))
        legend.append(Markup('<span style="color: {}">{}</span>').format(color, line.name))
    template = '<small>{}</small><svg viewBox="0 0 560 102" preserveAspectRatio="none">{}</svg><footer>{}</footer>'
    return Markup(template).format(f"at most {most:,.0f}", Markup("").join(shapes), Markup(" ").join(legend))


_PAGE: Final = """<!doctype html><style>
body {{ font: 13px sans-serif; margin: 8px; display: grid; grid-template-columns: repeat(24, 1fr);
  grid-auto-rows: 28px; gap: 4px; background: #f4f5f5 }}
section {{ background: #fff; border: 1px solid #d8d9da; padding: 4px 10px; display: flex; flex-direction: column;
  overflow: hidden }}
h2 {{ font-size: 13px; margin: 0 }} p {{ font-size: 30px; margin: 8px 0; text-align: center }}
svg {{ flex: 1; min-height: 0; width: 100% }} small {{ color: #777 }}
footer span {{ margin-right: 12px; font-size: 11px }}
polyline {{ fill: none; stroke-width: 1.5; vector-effect: non-scaling-stroke }}
</style>{boxes}"""


if __name__ == "__main__":
    sys.exit(main())
