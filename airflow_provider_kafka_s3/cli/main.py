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

from airflow_provider_kafka_s3.cli import cat, convert, doctor, maintenance, repair, replay, status, takeover, verify
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
    "exit codes: 0 done; 1 done, with findings; 2 an option, connection or setting is wrong; 3 a person has to act "
    "first, as the error describes; 4 try again later. No option takes a secret: secrets come from Airflow "
    "connections, from the file of --kafka-config and from boto3's own chain of credentials."
)


def parser() -> argparse.ArgumentParser:
    """The parser with the options of all commands."""
    top = argparse.ArgumentParser(
        prog="kafka-s3", description="Inspect and repair pipelines from Kafka to S3.", epilog=_EPILOG
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(
        name: str, run: Command, summary: str, *, topics: str = "one", dry_run: bool = True
    ) -> argparse.ArgumentParser:
        command = _command(commands, name, run, summary)
        which = command.add_argument_group("pipeline and topic")
        which.add_argument("--topics-dir", default="topics", help="prefix of all keys (default: %(default)s)")
        which.add_argument("--pipeline", required=topics == "one", help="name of the pipeline")
        if topics == "one":
            which.add_argument("--topic", required=True, help="name of the topic")
        else:
            which.add_argument("--topic", action="append", help="name of a topic; repeatable; default: all")
        add_options(command)
        if dry_run:
            command.add_argument("--dry-run", action="store_true", help="write nothing; print what would be done")
        return command

    def signed(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
        command.add_argument("--reason", default="none given", help="reason, for the record")
        command.add_argument(
            "--operator",
            default=_operator(),
            help="person who decides, for the record (default: USER@HOST of this process)",
        )
        return command

    _add_inspection(commands, add)
    _add_readers(add)

    recover = signed(
        add(
            "recover",
            maintenance.recover,
            "Finish open batches, and land the offsets that abandoned ones released as debt, without Spark.",
        )
    )
    recover.add_argument("--decided-only", action="store_true", help="complete decided batches only; read no records")
    _add_unproven(recover)
    recover.add_argument(
        "--on-data-loss",
        choices=("fail", "skip"),
        default="fail",
        help="offsets that Kafka has deleted: fail, or skip them and record them as lost (default: %(default)s)",
    )
    recover.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="time to wait for another run to decide its batch (default: 0)",
    )

    abandon = signed(add("abandon", maintenance.abandon, "Abandon an undecided batch."))
    abandon.add_argument("--batch", type=int, required=True)
    abandon.add_argument(
        "--release",
        choices=("debt", "lost"),
        required=True,
        help="debt: its offsets are planned again, with the settings of that run; lost: they are never landed",
    )

    accept = signed(
        add(
            "accept-loss",
            maintenance.accept_loss,
            "Record objects or offsets that cannot be landed any more as lost, so that runs continue.",
        )
    )
    accept.add_argument(
        "--batch", type=int, action="append", help="complete this batch without its lost objects; repeatable"
    )
    accept.add_argument(
        "--deleted", action="store_true", help="with --batch: the batch is complete; record its deleted objects as lost"
    )
    accept.add_argument(
        "--other-cluster",
        action="store_true",
        help="with --batch: the landed cluster is gone for good, and the connection is to another one",
    )
    accept.add_argument(
        "--offsets", help="offsets that retention deleted, as PARTITION:START-END[,…], the end excluded"
    )

    signed(
        add("release", maintenance.release, "Let another pipeline land a topic of which this one has landed nothing.")
    )

    signed(add("reset", maintenance.reset, "Continue with a topic that was created again under the same name."))

    repair_parser = signed(add("repair", repair.repair, "Build the marker again from the log."))
    repair_parser.add_argument(
        "--starting-offsets",
        metavar="OFFSETS",
        help="first offsets of partitions, if there is no batch with a plan that has them: earliest, latest or "
        "PARTITION:OFFSET[,…] (default: earliest if a Kafka cluster is named, else 0)",
    )
    repair_parser.add_argument(
        "--gone-before",
        metavar="TIME",
        help="accept missing objects of batches decided before this time, such as 2026-01-01T00:00:00Z, as lost",
    )
    repair_parser.add_argument(
        "--batches", metavar="NUMBERS", help="batches of --gone-before, such as 2,5-7 (default: all)"
    )
    repair_parser.add_argument(
        "--restore-gone", action="store_true", help="let the next run write missing objects again"
    )
    repair_parser.add_argument(
        "--every-document",
        action="store_true",
        help="read all plans and manifests, and compare the index of the log with them",
    )

    _add_ages(add("gc", maintenance.collect, "Abort uploads that no batch can complete.", topics="many"))

    check = add(
        "doctor", doctor.doctor, "Check the store, Kafka, the schema registry, Spark and this machine.", topics="many"
    )
    check.add_argument("--jars", help="jars of the operator, separated by commas")

    _add_kafka_connect(commands)
    return top


def _add_inspection(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], add: Callable[..., argparse.ArgumentParser]
) -> None:
    """Add the commands that show or check what is landed."""
    status_parser = add(
        "status",
        status.status,
        "Show landed offsets, open batches and lag of topics.",
        topics="many",
        dry_run=False,
    )
    status_parser.add_argument(
        "--last", type=int, default=5, metavar="N", help="show the last N batches (default: %(default)s)"
    )

    listed = _command(commands, "list", status.list_topics, "List the pipelines below a prefix, and their topics.")
    listed.set_defaults(topic=None)
    listed.add_argument("--topics-dir", default="topics", help="prefix of all keys (default: %(default)s)")
    listed.add_argument("--pipeline", help="only topics of this pipeline")
    add_options(listed)
    verify_parser = add(
        "verify", verify.verify, "Read objects back and compare them with their manifests.", topics="many"
    )
    verify_parser.add_argument("--batch", type=int, action="append", help="only this batch; repeatable")
    verify_parser.add_argument("--offsets", help="only these offsets, as PARTITION:START-END[,…], the end excluded")
    verify_parser.add_argument("--restore", action="store_true", help="write missing objects again from Kafka")
    _add_unproven(verify_parser)


def _add_unproven(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--unsafe-unproven-records",
        action="store_true",
        help="write missing objects again also where neither their bytes nor the manifest, of an earlier version, "
        "show that Kafka has the landed records: you know it",
    )


def _add_readers(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands that read landed records."""
    cat.add_cat_options(add("cat", cat.cat, "Print landed records from an offset on.", dry_run=False))
    replay.add_replay_options(add("replay", replay.replay, "Send landed records to a topic of Kafka, each once."))


def _add_ages(collect: argparse.ArgumentParser) -> None:
    """Add the options of ``gc``."""
    collect.add_argument(
        "--older-than", type=float, default=7.0, metavar="DAYS", help="minimum age of an upload (default: %(default)s)"
    )
    collect.add_argument(
        "--landed", action="store_true", help="also uploads of any age at keys whose offsets are landed"
    )


def _add_kafka_connect(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands about connectors of Kafka Connect."""
    convert.add_options(
        _command(
            commands,
            "convert",
            convert.convert,
            "Print the DAG that replaces a connector: Confluent's or DeviantArt's S3 sink of Kafka Connect.",
        )
    )
    takeover_parser = _command(
        commands,
        "takeover",
        takeover.takeover,
        "Let a pipeline go on where a stopped connector has ended; a dry run without --apply.",
    )
    takeover.add_options(takeover_parser)
    add_options(takeover_parser)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, run: Command, summary: str
) -> argparse.ArgumentParser:
    """Add a command with the options of all commands."""
    command = commands.add_parser(name, help=summary, description=summary, epilog=_EPILOG)
    command.set_defaults(run=run)
    command.add_argument("--json", action="store_true", help="print JSON on stdout")
    command.add_argument("--verbose", "-v", action="store_true", help="log progress on stderr")
    return command


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


def _operator() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = "unknown"
    return f"{user}@{platform.node()}"
