"""A command of ``kafka-s3`` as its module declares it, and the options that commands have in common."""

from __future__ import annotations

import argparse
import getpass
import platform
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airflow_provider_kafka_s3.cli.access import Access, add_options
from airflow_provider_kafka_s3.cli.defaults import default_of
from airflow_provider_kafka_s3.cli.output import Answer

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["Command", "HelpFormatter", "add_topics_dir", "add_unproven", "exit_codes"]


class HelpFormatter(argparse.HelpFormatter):
    """Fills paragraphs, and leaves indented lines as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            paragraph if "\n  " in paragraph else textwrap.fill(paragraph, width, initial_indent=indent)
            for paragraph in text.split("\n\n")
        )


def exit_codes(findings: str) -> str:
    """The exit codes of commands, for the help.

    Args:
        findings: meaning of 1; empty: the command never ends with it.
    """
    return (
        f"exit codes: 0 done; {findings and f'1 {findings}; '}2 an option, connection or setting is wrong; 3 a person "
        f"has to act first, as the error describes; 4 try again later; 130 interrupted."
    )


def _no_options(parser: argparse.ArgumentParser) -> None:
    del parser


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command with its options.

    Attributes:
        name: as it is typed.
        run: its handler.
        summary: one sentence for the help.
        examples: for the help: options, with which the tests run the command.
        findings: meaning of the exit code 1; empty: the command never ends with it.
        topics: whether it is about one topic or about many of a pipeline; None: its own options say what it is about.
        has_dry_run: whether it has ``--dry-run``.
        is_signed: whether it records who decides, and why.
        has_store: whether it has the options for the bucket and for Kafka.
        asks: whether it asks on a terminal, where its progress would be in the way.
        add_options: adds its own options.
    """

    name: str
    run: Callable[[Access], Answer]
    summary: str
    examples: tuple[str, str]
    findings: str = ""
    topics: Literal["one", "many"] | None = "one"
    has_dry_run: bool = True
    is_signed: bool = False
    has_store: bool = True
    asks: bool = False
    add_options: Callable[[argparse.ArgumentParser], None] = _no_options

    def add_to(self, commands: SubParsers) -> None:
        """Add the command to those of a parser."""
        examples = "\n".join(("examples:", *(f"  kafka-s3 {self.name} {options}" for options in self.examples)))
        parser = commands.add_parser(
            self.name,
            help=self.summary,
            description=self.summary,
            epilog=f"{examples}\n\n{exit_codes(self.findings)}",
            formatter_class=HelpFormatter,
        )
        parser.set_defaults(run=self.run, command=self.name, asks=self.asks)
        parser.add_argument("--json", action="store_true", help="print JSON on stdout")
        parser.add_argument("--verbose", "-v", action="store_true", help="log progress on stderr")
        if self.topics is None:
            self.add_options(parser)
            if self.has_store:
                add_options(parser)
            return
        _add_topics(parser, self.topics)
        add_options(parser)
        if self.has_dry_run:
            parser.add_argument("--dry-run", action="store_true", help="write nothing; print what would be done")
        if self.is_signed:
            _add_signature(parser)
        self.add_options(parser)


def add_topics_dir(parser: argparse._ActionsContainer) -> None:
    """Add the option for the prefix of all keys."""
    parser.add_argument(
        "--topics-dir",
        default=default_of("topics_dir") or "topics",
        help="prefix of all keys (default: topics) [KAFKA_S3_TOPICS_DIR]",
    )


def add_unproven(parser: argparse.ArgumentParser) -> None:
    """Add the option of commands that may write landed objects again from Kafka."""
    parser.add_argument(
        "--unsafe-unproven-records",
        action="store_true",
        help="write missing objects again also where neither their bytes nor the manifest, of an earlier version, "
        "show that Kafka has the landed records: you know it",
    )


def add_given(parser: argparse.ArgumentParser) -> None:
    """Add the option of commands that may write objects again that a table owns."""
    parser.add_argument(
        "--unsafe-given-objects",
        action="store_true",
        help="write missing objects again also if they were given to a table (owned_by='table'), whose files may have "
        "their rows: you know that you need them",
    )


def _add_topics(parser: argparse.ArgumentParser, topics: Literal["one", "many"]) -> None:
    which = parser.add_argument_group("pipeline and topic")
    add_topics_dir(which)
    default = default_of("pipeline")
    which.add_argument(
        "--pipeline",
        default=default,
        required=topics == "one" and default is None,
        help="name of the pipeline [KAFKA_S3_PIPELINE]",
    )
    if topics == "one":
        which.add_argument("--topic", required=True, help="name of the topic")
    else:
        which.add_argument("--topic", action="append", help="name of a topic; repeatable; default: all")


def _add_signature(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", default="none given", help="reason, for the record")
    parser.add_argument(
        "--operator",
        default=_operator(),
        help="person who decides, for the record (default: USER@HOST of this process)",
    )


def _operator() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = "unknown"
    return f"{user}@{platform.node()}"
