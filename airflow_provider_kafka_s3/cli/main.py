"""The command ``kafka-s3``: its commands, errors as messages, and exit codes."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
from collections.abc import Sequence
from typing import Final

from airflow_provider_kafka_s3.cli import cat, convert, doctor, maintenance, repair, replay, status, takeover, verify
from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import EPILOG
from airflow_provider_kafka_s3.cli.output import FAILED, INTERRUPTED, RETRY, USAGE, error_json
from airflow_provider_kafka_s3.documents.codec import printable
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, TerminalError, message_of
from airflow_provider_kafka_s3.messages import readable
from airflow_provider_kafka_s3.version import __version__

__all__ = ["main", "parser"]

log = logging.getLogger(__name__)

_MODULES: Final = (status, verify, cat, replay, maintenance, repair, doctor, convert, takeover)
"""Each has its commands, in the order of the help."""


def parser() -> argparse.ArgumentParser:
    """The parser with the options of all commands."""
    top = argparse.ArgumentParser(
        prog="kafka-s3", description="Inspect and repair pipelines from Kafka to S3.", epilog=EPILOG
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in _MODULES:
        for command in module.COMMANDS:
            command.add_to(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: arguments; None: those of the process.

    Returns:
        The exit code, see :mod:`airflow_provider_kafka_s3.cli.output`.
    """
    arguments = parser().parse_args(argv)
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.WARNING,
        format="%(levelname)s %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("botocore").setLevel(logging.WARNING)
    try:
        # Airflow 2 logs to standard output, which is for the output of the command only.
        with contextlib.redirect_stdout(sys.stderr):
            answer = arguments.run(Access(arguments))
    except KafkaS3Error as e:
        return _fail(e, as_json=arguments.json)
    except KeyboardInterrupt:
        print("kafka-s3: interrupted; the command may be repeated", file=sys.stderr)
        return INTERRUPTED
    if answer.raw is not None:
        sys.stdout.buffer.write(answer.raw)
        sys.stdout.buffer.flush()
        return int(answer.code)
    # Text of documents in the bucket may contain control sequences of a terminal.
    lines = (printable(line, shown=len(line)) for line in answer.lines)
    print(json.dumps(answer.data, indent=2) if arguments.json else "\n".join(lines))
    return int(answer.code)


def _fail(error: KafkaS3Error, *, as_json: bool) -> int:
    code = USAGE if isinstance(error, ConfigurationError) else FAILED if isinstance(error, TerminalError) else RETRY
    message = message_of(error)
    if as_json:
        print(json.dumps({"error": error_json(error)}, indent=2))
    print(readable(f"kafka-s3: {type(error).__name__}: {message}"), file=sys.stderr)
    return code
