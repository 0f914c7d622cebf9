"""``python -m tests.benchmark``: what landing costs, against reading alone and against Spark's own writer.

All cases read the same topic in the same slices, each in a warm session of ``local[2]`` of its own, on the cores that
the broker and the S3 server use too. CPU is that of the driver, the JVM and the Python workers; that of broker and
server is listed beside it.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

from dev.kafka_broker import KafkaBroker
from tests.benchmark import wide
from tests.benchmark.data import avro_messages, load, messages
from tests.benchmark.formats import formats, ratios
from tests.benchmark.formats import table as formats_table
from tests.benchmark.landed import GOALS as LANDED_GOALS
from tests.benchmark.landed import compactions
from tests.benchmark.landed import ratios as ratios_of_compactions
from tests.benchmark.landed import table as landed_table
from tests.benchmark.large_records import GOAL as LARGE_GOAL
from tests.benchmark.large_records import growth, large_records
from tests.benchmark.large_records import table as large_table
from tests.benchmark.partitioners import GOALS, less_memory, partitioners
from tests.benchmark.partitioners import ratios as ratios_of_partitioners
from tests.benchmark.partitioners import table as partitioners_table
from tests.benchmark.replay import GOAL as REPLAY_GOAL
from tests.benchmark.replay import ratios as ratios_of_replays
from tests.benchmark.replay import replays
from tests.benchmark.replay import table as replay_table
from tests.benchmark.scale import scale
from tests.benchmark.scale import table as scale_table
from tests.benchmark.shapes import shapes
from tests.benchmark.shapes import table as shapes_table
from tests.benchmark.slow_store import slow_stores
from tests.benchmark.slow_store import table as slow_store_table
from tests.benchmark.small import FORKED, RECORDS, small_runs
from tests.benchmark.small import GOAL as SMALL_GOAL
from tests.benchmark.small import table as small_table
from tests.benchmark.small_objects import small_objects
from tests.benchmark.small_objects import table as small_objects_table
from tests.benchmark.stages import stages
from tests.benchmark.stages import table as stages_table
from tests.benchmark.stores import store
from tests.benchmark.tables import COMMITS, EXPIRED, tables
from tests.benchmark.tables import GOALS as TABLES_GOALS
from tests.benchmark.tables import table as tables_table
from tests.spark.pipeline import ROOT

CASES = FLOOR, _, _, GZIP, SPARK = (
    "floor: three columns, noop",
    "ours: bytes",
    "ours: JSON",
    "ours: JSON gzip",
    "Spark write.text gzip",
)
JSON_CASES = JSON_PARQUET, SPARK_JSON = "ours: JSON to Parquet", "Spark from_json, Parquet"
AVRO_CASES = AVRO_PARQUET, SPARK_AVRO = "ours: Avro to Parquet", "Spark from_avro, Parquet"
PARTITIONS = 4
MEGABYTE = 1_000_000


def main() -> int:
    """Measure, print the table, write the JSON; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="of each case; medians count (default: %(default)s)")
    parser.add_argument("--slice-records", type=int, default=5_000_000, help="offsets of one slice at most")
    parser.add_argument("--store", choices=["versitygw", "moto"], default="versitygw", help="S3 server")
    parts = (
        "records",
        "formats",
        "large",
        "partitioners",
        "replay",
        "scale",
        "shapes",
        "slow-store",
        "small",
        "stages",
        "tables",
        "landed",
        "small-objects",
        *(f"scale-{case}" for case in wide.CASES),
    )
    parser.add_argument("--only", choices=parts, help="default: all but shapes, stages, small-objects and scale-…")
    parser.add_argument("--json", type=Path, default=ROOT / ".build" / "benchmark.json", help="where the figures go")
    options = parser.parse_args()
    alone = {"formats": _formats, "partitioners": _partitioners, "small-objects": _small_objects}
    alone |= {f"scale-{case}": functools.partial(_wide, case, options.store) for case in wide.CASES}
    if options.only in alone:
        return _report({"cores": os.cpu_count(), **alone[options.only]()}, options.json)
    with (
        store(options.store) as server,
        KafkaBroker(heap="1g", optimised=True) as broker,
        tempfile.TemporaryDirectory() as folder,
    ):
        config = {
            "bootstrap_servers": broker.bootstrap_servers,
            "topic": "benchmark",
            "records": options.records,
            "rounds": options.rounds,
            "slice_records": options.slice_records,
            "endpoint": server.endpoint,
            "s3_pid": server.pid,
            "broker_pid": _broker_pid(),
            "folder": folder,
        }
        summary: dict[str, Any] = {"s3_server": server.name, "cores": os.cpu_count(), "goals": []}
        if options.only is None:
            of_encoders = [_formats(), _partitioners()]
        if options.only in (None, "large"):
            _add_large_records(summary, server.endpoint)
        if options.only in (None, "replay"):
            _add_replays(summary, server.endpoint, broker, options.rounds)
        if options.only in (None, "landed", "records", "slow-store", "small", "stages"):
            print(f"Producing {options.records:,} records …", flush=True)
            load(broker, "benchmark", messages(options.records, PARTITIONS), PARTITIONS)
        if options.only in (None, "slow-store"):
            print("Stores that take longer …", flush=True)
            summary["slow_store"] = slow_stores(config, _drive)
        if options.only in (None, "landed"):
            _add_compactions(summary, config)
        _add_if_named(summary, config, broker, options.only)
        if options.only in (None, "records"):
            # Columns cost more time for each record, so fewer records measure as well.
            half = {**config, "records": options.records // 2}
            load(broker, "benchmark-avro", avro_messages(half["records"], PARTITIONS), PARTITIONS)
            configs = [
                *({**config, "case": case} for case in CASES),
                *({**half, "case": case} for case in JSON_CASES),
                *({**half, "case": case, "topic": "benchmark-avro"} for case in AVRO_CASES),
            ]
            results = [result for case in configs for result in _drive(case)]
            summary |= summarise(results, options.records, server.name)
        if options.only in (None, "records", "small"):
            print("Small runs, by spark-submit and by a Spark Connect server …", flush=True)
            summary["small_runs"] = runs = small_runs(config)
            summary["goals"].append(_goal("a small run by a warm driver, s", runs[FORKED], "<=", SMALL_GOAL))
        if options.only in (None, "scale"):
            summary["scale"] = found = scale(config, broker)
            summary["goals"] += [
                _goal("a look after 10,000 batches / after 10", found["history"]["look_ratio"], "<=", 2.0),
                _goal("growth of a driver by 10,000 objects, MB", found["objects"]["driver_grows_mb"], "<=", 200.0),
                _goal("a topic of 500 in one run, s (wish: 0.1)", found["topics"]["s_per_topic"], "<=", 0.15),
            ]
        if options.only in (None, "tables"):
            _add_tables(summary, server.endpoint)
        if options.only is None:
            for part in of_encoders:
                summary["goals"] += part.pop("goals")
                summary |= part
    return _report(summary, options.json)


def _report(summary: dict[str, Any], path: Path) -> int:
    """Print the table, write the JSON; 1 if a bound is missed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=1) + "\n")
    print(table(summary))
    print(f"Figures: {path}")
    return 0 if all(goal["met"] for goal in summary["goals"]) else 1


def _small_objects() -> dict[str, Any]:
    return {"s3_server": "versitygw", "goals": [], "small_objects": small_objects()}


def _wide(case: str, name: str) -> dict[str, Any]:
    with store(name) as server:
        found = wide.wide(case, {"endpoint": server.endpoint})
        return {"s3_server": server.name, "goals": [], "scale": {case: found}}


def _formats() -> dict[str, Any]:
    found = formats()
    most = max(found["memory_mb"].values())
    bounds = ("<=", 1.3), (">=", 5.0), (">=", 3.0), (">=", 4.0)
    goals = [
        _goal(f"CPU of {what}", ratio, *bound)
        for (what, ratio), bound in zip(ratios(found).items(), bounds, strict=True)
    ]
    return {"formats": found, "goals": [*goals, _goal("largest worker of a format, MB", most, "<=", 400.0)]}


def _partitioners() -> dict[str, Any]:
    found = partitioners()
    of_default = ratios_of_partitioners(found)
    few, many = found["topics_mb"]
    goals = [
        *(_goal(f"CPU by {name} / by partition", of_default[name], "<=", bound) for name, bound in GOALS.items()),
        _goal("memory saved of fixed buffers of 25 MiB", less_memory(found), ">=", 0.6),
        _goal("growth of a worker by 300 topics, MB", many - few, "<=", 30.0),
    ]
    return {"partitioners": found, "goals": goals}


def _add_large_records(summary: dict[str, Any], endpoint: str) -> None:
    print("Large records …", flush=True)
    summary["large"] = found = large_records(endpoint)
    summary["goals"] += [
        _goal(f"heap for each byte of a record of 50 MB / of 10 MB, {shape}", growth(peaks), "<=", LARGE_GOAL)
        for shape, peaks in found.items()
    ]


def _add_replays(summary: dict[str, Any], endpoint: str, broker: KafkaBroker, rounds: int) -> None:
    print("Replays …", flush=True)
    summary["replay"] = sent = replays(endpoint, broker, rounds)
    summary["goals"] += [
        _goal(f"CPU of a replay from {name} / of a plain producer", ratio, "<=", REPLAY_GOAL)
        for name, ratio in ratios_of_replays(sent).items()
    ]


def _add_if_named(summary: dict[str, Any], config: dict[str, Any], broker: KafkaBroker, only: str | None) -> None:
    """The parts that are measured only if they are named."""
    if only == "stages":
        summary["stages"] = stages(config)
    if only == "shapes":
        summary["shapes"] = shapes(config, _drive, broker)


def _add_compactions(summary: dict[str, Any], config: dict[str, Any]) -> None:
    print("Compactions …", flush=True)
    summary["records_of_topic"] = config["records"]
    summary["landed"] = found = compactions(config)
    of_ours = ratios_of_compactions(found)
    summary["goals"] += [
        _goal(f"CPU of {way} / of a compaction", of_ours[way], ">=", bound) for way, bound in LANDED_GOALS.items()
    ]


def _add_tables(summary: dict[str, Any], endpoint: str) -> None:
    print("Tables …", flush=True)
    summary["tables"] = measured = tables(endpoint)
    summary["goals"] += [
        _goal(f"commit {COMMITS:,} / commit {number} to a table, {EXPIRED}", measured[EXPIRED][name], "<=", bound)
        for number, (name, bound) in TABLES_GOALS.items()
    ]


def _broker_pid() -> int:
    for process in psutil.Process().children(recursive=True):
        if "kafka.Kafka" in process.cmdline() and "java" in Path(process.cmdline()[0]).name:
            return process.pid
    raise RuntimeError("the broker's process is not there")


def _drive(config: dict[str, Any]) -> list[dict[str, Any]]:
    print(f"{config['case']}: starting Spark, warming up …", flush=True)
    results = []
    with subprocess.Popen(
        [sys.executable, "-m", "tests.benchmark.driver"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        json.dump(config, process.stdin)
        process.stdin.close()
        for line in process.stdout:
            result = json.loads(line)
            results.append(result)
            print(f"  {result['case']}: {result['wall']:.2f} s", flush=True)
    if process.returncode:
        raise RuntimeError(f"the benchmark's driver ended with exit code {process.returncode}")
    return results


def summarise(results: list[dict[str, Any]], records: int, server: str) -> dict[str, Any]:
    """Medians of the rounds, ratios, and whether the bounds are kept."""
    cases: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(r["case"] for r in results if "round" in r):
        rounds = [r for r in results if r["case"] == name]
        cases[name] = {
            "wall": statistics.median(r["wall"] for r in rounds),
            **{f"cpu_{tree}": statistics.median(r["cpu"][tree] for r in rounds) for tree in ("job", "s3", "broker")},
            "records": rounds[-1]["records"],
            "bytes": rounds[-1].get("bytes"),
            "rss": max(r.get("rss", 0) for r in rounds) or None,
        }
    (quarter,) = (r for r in results if r["case"] == "quarter")
    (nothing,) = (r for r in results if r["case"] == "nothing new")

    def less_cpu(ours: str, peer: str) -> float:
        return float(cases[peer]["cpu_job"] / cases[ours]["cpu_job"])

    slower = {name: cases[name]["wall"] / cases[FLOOR]["wall"] for name in CASES}
    largest, largest_parquet = (
        max(cases[name]["rss"] or 0 for name in some) / MEGABYTE for some in (CASES, [JSON_PARQUET, AVRO_PARQUET])
    )
    growth = (cases[GZIP]["rss"] - quarter["rss"]) / MEGABYTE
    goals = [
        _goal("CPU of Spark's gzip writer / of ours", less_cpu(GZIP, SPARK), ">=", 3.0),
        _goal("CPU of Spark's from_json and Parquet writer / of ours", less_cpu(JSON_PARQUET, SPARK_JSON), ">=", 2.0),
        _goal("CPU of Spark's from_avro and Parquet writer / of ours", less_cpu(AVRO_PARQUET, SPARK_AVRO), ">=", 2.4),
        _goal("wall of our gzip / of the floor (wish: 1.5)", slower[GZIP], "<=", 2.5),
        _goal("largest Python worker, MB", largest, "<=", 300.0),
        _goal("largest Python worker of Parquet, MB", largest_parquet, "<=", 400.0),
        _goal("growth of a worker when the data grow 4 times, MB", growth, "<=", 30.0),
        _goal("a run with nothing new, s", nothing["wall"], "<=", 2.0),
    ]
    return {
        "records": records,
        "s3_server": server,
        "cores": os.cpu_count(),
        "cases": {name: {**case, "floors": slower.get(name)} for name, case in cases.items()},
        "goals": goals,
    }


def _goal(what: str, value: float, relation: str, bound: float) -> dict[str, Any]:
    met = value >= bound if relation == ">=" else value <= bound
    return {"what": what, "value": round(value, 2), "relation": relation, "bound": bound, "met": met}


def table(summary: dict[str, Any]) -> str:
    """The figures as text."""
    lines: list[str] = []
    if "cases" in summary:
        lines += _cases_table(summary)
    if "small_runs" in summary:
        head = f"  a run of {RECORDS:,} records, driver included, / by a warm driver:"
        lines += ["", head, *small_table(summary["small_runs"]), ""]
    if "small_objects" in summary:
        lines += ["", "  small objects made large ones:", *small_objects_table(summary["small_objects"]), ""]
    if "formats" in summary:
        lines += ["", f"  formats, {summary['cores']} cores:", *formats_table(summary["formats"]), ""]
    if "partitioners" in summary:
        found = summary["partitioners"]
        lines += ["", f"  partitioners, {summary['cores']} cores:", *partitioners_table(found), ""]
    if "large" in summary:
        lines += ["", f"  large records, {summary['cores']} cores:", *large_table(summary["large"]), ""]
    if "replay" in summary:
        lines += ["", f"  replays, {summary['cores']} cores:", *replay_table(summary["replay"]), ""]
    if "slow_store" in summary:
        lines += ["", f"  slow stores, {summary['cores']} cores:", *slow_store_table(summary["slow_store"]), ""]
    if "shapes" in summary:
        lines += ["", f"  shapes of topics, {summary['cores']} cores:", *shapes_table(summary["shapes"]), ""]
    if "stages" in summary:
        lines += ["", f"  stages of a task, {summary['cores']} cores:", *stages_table(summary["stages"]), ""]
    if "scale" in summary:
        lines += ["", f"  scale, {summary['cores']} cores, {summary['s3_server']}:", *scale_table(summary["scale"]), ""]
    if "landed" in summary:
        head = f"  {summary['records_of_topic']:,} records of many small objects as few large ones, by local[2]:"
        lines += ["", head, *landed_table(summary["landed"]), ""]
    if "tables" in summary:
        head = f"  a commit of a batch to a table, {summary['cores']} cores:"
        lines += ["", head, *tables_table(summary["tables"]), ""]
    for goal in summary["goals"]:
        verdict = "kept" if goal["met"] else "MISSED"
        lines.append(f"  {goal['what']}: {goal['value']} ({goal['relation']} {goal['bound']:g}) {verdict}")
    return "\n".join([*lines, ""])


def _cases_table(summary: dict[str, Any]) -> list[str]:
    head = f"{'case':28}{'wall s':>8}{'/floor':>8}{'CPU s':>8}{'krec/CPU s':>12}{'out MB':>8}{'worker MB':>11}"
    server = f"local[2] of {summary['cores']}, {summary['s3_server']}"
    lines = [
        "",
        f"{summary['records']:,} JSON records (Parquet: half of them, also as Avro), {PARTITIONS} partitions, {server}",
        head + f"{'S3 CPU s':>10}{'broker CPU s':>14}",
    ]
    for name, case in summary["cases"].items():
        size = "" if case["bytes"] is None else f"{case['bytes'] / MEGABYTE:.0f}"
        rss = "" if case["rss"] is None else f"{case['rss'] / MEGABYTE:.0f}"
        rate = case["records"] / case["cpu_job"] / 1000
        floors = "" if case["floors"] is None else f"{case['floors']:.2f}"
        lines.append(
            f"{name:28}{case['wall']:8.2f}{floors:>8}{case['cpu_job']:8.2f}{rate:12.0f}{size:>8}{rss:>11}"
            f"{case['cpu_s3']:10.2f}{case['cpu_broker']:14.2f}"
        )
    return [*lines, ""]


if __name__ == "__main__":
    sys.exit(main())
