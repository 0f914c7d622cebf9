"""The command ``kafka-s3``: its commands, errors as messages, and exit codes."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

from airflow_provider_kafka_s3.cli import (
    cat,
    convert,
    ddl,
    doctor,
    expire,
    infer,
    init,
    maintenance,
    metrics,
    repair,
    replay,
    status,
    table,
    takeover,
    ui,
    verify,
)
from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import HelpFormatter, exit_codes
from airflow_provider_kafka_s3.cli.output import FAILED, INTERRUPTED, RETRY, USAGE, error_json
from airflow_provider_kafka_s3.cli.terminal import log_handler, print_answer, print_error, progress_on_terminal
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, TerminalError, message_of
from airflow_provider_kafka_s3.messages import readable
from airflow_provider_kafka_s3.version import __version__

__all__ = ["main", "parser"]

log = logging.getLogger(__name__)

_MODULES: Final = (
    *(init, status, metrics, ui, verify, cat, table, ddl, infer, replay),
    *(maintenance, expire, repair, doctor, convert, takeover),
)
"""Each has its commands, in the order of the help."""
_SECRETS: Final = (
    "No option takes a secret: secrets come from Airflow connections, from the file of --kafka-config and from boto3's "
    "own chain of credentials. Options that are not given come from KAFKA_S3_… variables or ~/.kafka-s3.toml."
)


def parser() -> argparse.ArgumentParser:
    """The parser with the options of all commands."""
    top = argparse.ArgumentParser(
        prog="kafka-s3",
        description="Inspect and repair pipelines from Kafka to S3.",
        epilog=f"{exit_codes('done, with findings')}\n\n{_SECRETS}",
        formatter_class=HelpFormatter,
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
    try:
        top = parser()
    except ConfigurationError as e:
        return _fail(e, as_json=False)
    if "_ARGCOMPLETE" in os.environ:  # a shell completes what is typed
        import argcomplete

        argcomplete.autocomplete(top)
    arguments = top.parse_args(argv)
    _log(verbose=arguments.verbose)
    try:
        # Airflow 2 logs to standard output, which is for the output of the command only.
        shown = contextlib.nullcontext() if arguments.asks else progress_on_terminal(f"kafka-s3 {arguments.command}")
        with contextlib.redirect_stdout(sys.stderr), shown:
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
    if arguments.json:
        print(json.dumps(answer.data, indent=2))
    else:
        print_answer(answer)
    return int(answer.code)


def _log(*, verbose: bool) -> None:
    """Log to standard error; progress on a terminal needs the messages that are not shown, too."""
    handler = log_handler()
    handler.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("botocore").setLevel(logging.WARNING)


def _fail(error: KafkaS3Error, *, as_json: bool) -> int:
    code = USAGE if isinstance(error, ConfigurationError) else FAILED if isinstance(error, TerminalError) else RETRY
    message = message_of(error)
    if as_json:
        print(json.dumps({"error": error_json(error)}, indent=2))
    print_error(readable(f"kafka-s3: {type(error).__name__}: {message}"))
    return code
