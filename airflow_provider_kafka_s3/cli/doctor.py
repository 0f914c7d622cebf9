"""The command ``kafka-s3 doctor``: checks of all that a pipeline needs, each finding with a fix."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import Final

from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command
from airflow_provider_kafka_s3.cli.findings import Finding, Level, guarded
from airflow_provider_kafka_s3.cli.machine_checks import check_kafka, check_machine
from airflow_provider_kafka_s3.cli.output import FINDINGS, OK, Answer, Line, Style
from airflow_provider_kafka_s3.cli.registry_checks import check_registry
from airflow_provider_kafka_s3.cli.report import report_text
from airflow_provider_kafka_s3.cli.store_checks import check_store
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["COMMANDS", "doctor"]

_STDOUT: Final = "-"
_SIGNS: Final[dict[Level, tuple[str, Style]]] = {
    "ok": ("ok     ", "good"),
    "unknown": ("unknown", "plain"),
    "warning": ("WARNING", "warning"),
    "error": ("ERROR  ", "bad"),
}


def doctor(access: Access) -> Answer:
    """Run all checks; with ``--report``, write what a report of a bug needs."""
    path: str | None = getattr(access.arguments, "report", None)
    if path is not None and path != _STDOUT and Path(path).exists():
        raise ConfigurationError(f"--report {path} exists; name another file. Nothing was checked")
    findings: list[Finding] = []
    for name, check in {"store": check_store, "kafka": check_kafka, "schema registry": check_registry}.items():
        run = functools.partial(check, access)
        # A report is needed above all where the options are wrong.
        findings += run() if path is None else guarded(name, run)
    findings += check_machine(access.arguments.jars)
    lines = [line for finding in findings for line in _lines(finding)]
    code = FINDINGS if any(finding.level == "error" for finding in findings) else OK
    data = {"findings": [vars(finding) for finding in findings]}
    if path is None:
        return Answer(data, lines, code)
    text = report_text(access, findings)
    if path == _STDOUT:
        return Answer({}, code=code, raw=text.encode())
    try:
        with Path(path).open("x") as file:
            file.write(text)
    except OSError as e:
        raise ConfigurationError(f"--report {path} cannot be written ({e.strerror})") from e
    written = Line(f"{path} was written. It has no secrets, but names of hosts, buckets and topics: read it", "good")
    return Answer({**data, "report": path}, [*lines, written], code)


def _lines(finding: Finding) -> list[Line]:
    sign, style = _SIGNS[finding.level]
    lines = [Line(f"{sign}  {finding.check}: {finding.message}", style)]
    return [*lines, Line(f"         fix: {finding.fix}")] if finding.fix else lines


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jars", help="jars of the operator, separated by commas")
    parser.add_argument(
        "--report",
        nargs="?",
        const=_STDOUT,
        metavar="FILE",
        help="write what a report of a bug needs, without secrets: versions, settings, findings, and the state of the "
        "topics of --pipeline; without FILE it is printed",
    )


COMMANDS: Final = (
    Command(
        name="doctor",
        run=doctor,
        summary="Check the store, Kafka, the schema registry, Spark and this machine.",
        examples=(
            "--bucket lake --bootstrap-server broker:9092 --dry-run",
            "--bucket lake --pipeline orders --topic orders --json",
        ),
        findings="a check has failed",
        topics="many",
        add_options=_add_options,
    ),
)
