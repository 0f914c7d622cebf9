"""The command ``kafka-s3``: options, the table of commands, errors as messages and exit codes."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import json
import logging
import platform
import sys
from collections.abc import Callable, Sequence
from typing import Final

from airflow_provider_kafka_s3.cli import doctor, maintenance, repair, status, verify
from airflow_provider_kafka_s3.cli.access import Access, add_options
from airflow_provider_kafka_s3.cli.output import FAILED, INTERRUPTED, RETRY, USAGE, Answer, error_json
from airflow_provider_kafka_s3.documents.codec import printable
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, TerminalError, message_of
from airflow_provider_kafka_s3.messages import readable
from airflow_provider_kafka_s3.version import __version__

__all__ = ["main", "parser"]

log = logging.getLogger(__name__)

Command = Callable[[Access], Answer]

_EPILOG: Final = (
    "exit codes: 0 done; 1 done, and something was found; 2 an option, connection or setting is wrong; 3 a person has "
    "to act first, as the error describes; 4 try again later. Secrets are no options: they come from Airflow "
    "connections, from the file of --kafka-config and from boto3's own chain."
)


def parser() -> argparse.ArgumentParser:
    """The options of all commands."""
    top = argparse.ArgumentParser(
        prog="kafka-s3", description="Look at pipelines from Kafka to S3, and mend them.", epilog=_EPILOG
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(
        name: str, run: Command, what: str, *, topics: str = "one", dry_run: bool = True
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=what, description=what, epilog=_EPILOG)
        command.set_defaults(run=run)
        which = command.add_argument_group("which log")
        which.add_argument("--topics-dir", default="topics", help="prefix of all keys (default: %(default)s)")
        which.add_argument("--pipeline", required=topics == "one", help="name of the pipeline")
        if topics == "one":
            which.add_argument("--topic", required=True, help="name of the topic")
        else:
            which.add_argument("--topic", action="append", help="name of a topic; repeatable; default: all")
        add_options(command)
        command.add_argument("--json", action="store_true", help="answer with JSON on stdout")
        command.add_argument("--verbose", "-v", action="store_true", help="tell on stderr what is being done")
        if dry_run:
            command.add_argument("--dry-run", action="store_true", help="write nothing; say what would be done")
        return command

    def signed(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
        command.add_argument("--reason", default="none given", help="why, for the record")
        command.add_argument(
            "--operator",
            default=_operator(),
            help="who decides this, for the record (default: USER@HOST of this process)",
        )
        return command

    status_parser = add(
        "status",
        status.status,
        "How far topics are landed, what is open, how far behind.",
        topics="many",
        dry_run=False,
    )
    status_parser.add_argument(
        "--last", type=int, default=5, metavar="N", help="show the last N batches (default: %(default)s)"
    )

    verify_parser = add(
        "verify", verify.verify, "Read objects back and compare them with their manifests.", topics="many"
    )
    verify_parser.add_argument("--batch", type=int, action="append", help="only this batch; repeatable")
    verify_parser.add_argument("--offsets", help="only these, as PARTITION:START-END[,…], the end excluded")
    verify_parser.add_argument("--restore", action="store_true", help="write again from Kafka what is missing")

    recover = signed(
        add("recover", maintenance.recover, "Finish every open batch, and land what abandoned ones owe, without Spark.")
    )
    recover.add_argument("--decided-only", action="store_true", help="complete what is decided; read no records")
    recover.add_argument(
        "--on-data-loss", choices=("fail", "skip"), default="fail", help="offsets that are gone (default: %(default)s)"
    )
    recover.add_argument(
        "--wait", type=float, default=0.0, metavar="SECONDS", help="let another run decide its batch (default: 0)"
    )

    abandon = signed(add("abandon", maintenance.abandon, "Give an undecided batch up."))
    abandon.add_argument("--batch", type=int, required=True)
    abandon.add_argument(
        "--release",
        choices=("debt", "lost"),
        required=True,
        help="debt: its offsets are planned again, with the settings of then; lost: they are never landed",
    )

    accept = signed(
        add("accept-loss", maintenance.accept_loss, "Record what cannot be landed any more as lost, and go on.")
    )
    accept.add_argument("--batch", type=int, action="append", help="complete it without what cannot be had; repeatable")
    accept.add_argument("--deleted", action="store_true", help="of complete batches: what is gone stays away")
    accept.add_argument(
        "--other-cluster",
        action="store_true",
        help="with --batch: the cluster that was landed is gone for good, and the connection leads to another one",
    )
    accept.add_argument(
        "--offsets", help="offsets that retention deleted, as PARTITION:START-END[,…], the end excluded"
    )

    signed(add("reset", maintenance.reset, "Turn to the topic that was created again under the same name."))

    repair_parser = signed(add("repair", repair.repair, "Build the marker again from the log."))
    repair_parser.add_argument(
        "--starting-offsets",
        metavar="OFFSETS",
        help="where partitions begin, if there is no batch, whose plan has it: earliest, latest or "
        "PARTITION:OFFSET[,…] (default: earliest if Kafka can be asked, else 0)",
    )
    repair_parser.add_argument(
        "--gone-before",
        metavar="TIME",
        help="objects that are gone from batches decided before this time, such as 2026-01-01T00:00:00Z, stay gone",
    )
    repair_parser.add_argument(
        "--batches", metavar="NUMBERS", help="--gone-before is only about these batches, such as 2,5-7 (default: all)"
    )
    repair_parser.add_argument(
        "--restore-gone", action="store_true", help="objects that are gone are written again by the next run"
    )

    collect = add("gc", maintenance.collect, "Abort uploads that no batch can complete.", topics="many")
    collect.add_argument(
        "--older-than", type=float, default=7.0, metavar="DAYS", help="since S3 began them (default: %(default)s)"
    )

    check = add("doctor", doctor.doctor, "Look whether store, Kafka, Spark and this machine are fit.", topics="many")
    check.add_argument("--jars", help="the jars that the operator gets, separated by commas")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: its arguments; None: of the process.

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
        # Airflow 2 logs to standard output, which belongs to the answer.
        with contextlib.redirect_stdout(sys.stderr):
            answer = arguments.run(Access(arguments))
    except KafkaS3Error as e:
        return _fail(e, as_json=arguments.json)
    except KeyboardInterrupt:
        print("kafka-s3: interrupted; the same command may be given again", file=sys.stderr)
        return INTERRUPTED
    # What documents of the bucket say about themselves must not give orders to a terminal.
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


def _operator() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = "unknown"
    return f"{user}@{platform.node()}"
