"""The command ``kafka-s3 doctor``: checks of all that a pipeline needs, each finding with a fix."""

from __future__ import annotations

import argparse
from typing import Final

from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command
from airflow_provider_kafka_s3.cli.findings import Finding, Level
from airflow_provider_kafka_s3.cli.machine_checks import check_kafka, check_machine
from airflow_provider_kafka_s3.cli.output import FINDINGS, OK, Answer, Line, Style
from airflow_provider_kafka_s3.cli.registry_checks import check_registry
from airflow_provider_kafka_s3.cli.store_checks import check_store

__all__ = ["COMMANDS", "doctor"]

_SIGNS: Final[dict[Level, tuple[str, Style]]] = {
    "ok": ("ok     ", "good"),
    "unknown": ("unknown", "plain"),
    "warning": ("WARNING", "warning"),
    "error": ("ERROR  ", "bad"),
}


def doctor(access: Access) -> Answer:
    """Run all checks."""
    findings = [
        *check_store(access),
        *check_kafka(access),
        *check_registry(access),
        *check_machine(access.arguments.jars),
    ]
    lines = [line for finding in findings for line in _lines(finding)]
    wrong = any(finding.level == "error" for finding in findings)
    return Answer({"findings": [vars(finding) for finding in findings]}, lines, FINDINGS if wrong else OK)


def _lines(finding: Finding) -> list[Line]:
    sign, style = _SIGNS[finding.level]
    lines = [Line(f"{sign}  {finding.check}: {finding.message}", style)]
    return [*lines, Line(f"         fix: {finding.fix}")] if finding.fix else lines


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jars", help="jars of the operator, separated by commas")


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
