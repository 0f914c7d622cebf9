"""``kafka-s3 init``: the file of a DAG for a topic, by what topic, bucket and connections show."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command, add_topics_dir
from airflow_provider_kafka_s3.cli.connection_choice import DEFAULT_IDS, ConnectionChoice, choose_connections
from airflow_provider_kafka_s3.cli.dag_check import require_parsed
from airflow_provider_kafka_s3.cli.defaults import default_of
from airflow_provider_kafka_s3.cli.doctor import doctor
from airflow_provider_kafka_s3.cli.new_dag import (
    FORMATS,
    PARTITIONERS,
    Choice,
    choose_format,
    choose_naming,
    choose_partitioner,
    registry_converter,
    retained,
    suggest_format,
)
from airflow_provider_kafka_s3.cli.output import FINDINGS, OK, Answer, Line, Table
from airflow_provider_kafka_s3.cli.stored_connections import has_connection
from airflow_provider_kafka_s3.cli.terminal import ask, can_ask
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.inspect.topic_sample import TopicSample, sample_topic
from airflow_provider_kafka_s3.inspect.topics import owned_topic
from airflow_provider_kafka_s3.kafka_connect.call import dag_file

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COMMANDS", "init"]

_STARTS: Final = ("earliest", "latest")
_NULLS: Final = ("ignore", "fail")


def _add_options(parser: argparse.ArgumentParser) -> None:
    pipeline = parser.add_argument_group("the DAG (what is not given is asked on a terminal)")
    pipeline.add_argument("--topic", help="name of the topic")
    add_topics_dir(pipeline)
    pipeline.add_argument(
        "--pipeline",
        default=default_of("pipeline"),
        help="name of the pipeline, and id of the DAG (default: the topic) [KAFKA_S3_PIPELINE]",
    )
    pipeline.add_argument("--format", choices=FORMATS, help="format of the objects (default: by the values)")
    pipeline.add_argument("--on-null", choices=_NULLS, help="what a null value does; needed if the topic has some")
    pipeline.add_argument(
        "--partitioner", choices=PARTITIONERS, help="folders of the objects (default: by the rate of the records)"
    )
    pipeline.add_argument("--starting-offsets", choices=_STARTS, help="where the first run begins")
    pipeline.add_argument("--spark-conn-id", metavar="ID", help="Airflow connection of type spark")
    pipeline.add_argument("--jars", help="jars of the operator, separated by commas")
    pipeline.add_argument("--file", metavar="FILE", help="file of the DAG (default: PIPELINE.py in this folder)")
    pipeline.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    pipeline.add_argument(
        "--records", type=int, default=1_000, metavar="N", help="look at N records at most (default: %(default)s)"
    )
    pipeline.add_argument("--yes", "-y", action="store_true", help="ask nothing: use the defaults")


def init(access: Access) -> Answer:
    """Write the file of a DAG, and check what it needs. Nothing is written to Kafka or the bucket."""
    arguments = access.arguments
    if arguments.records < 1:
        raise ConfigurationError(f"--records {arguments.records} must be a positive number")
    if arguments.file is not None:
        _require_place(Path(arguments.file), overwrite=arguments.overwrite)
    questions = _Questions(arguments)
    topic = _where(access, questions)
    sample = sample_topic(access.source, topic, records=arguments.records)
    owner = owned_topic(access.store, addresses.owner_key(access.topics_dir, topic), topics_dir=access.topics_dir)
    draft = _draft(access, questions, sample, None if owner is None else owner.pipeline)
    pipeline: str = draft.parameters["pipeline"]
    arguments.pipeline, arguments.topic, arguments.dry_run = pipeline, [topic], True
    needs_registry = config.needs_registry(draft.parameters.get("value_converter"))
    connections = choose_connections(access, pipeline, arguments.spark_conn_id, needs_registry=needs_registry)
    for choice in connections:
        draft.add(choice.parameter, choice.conn_id, choice.comment)
    path = Path(arguments.file or questions.answer("file", "File of the DAG", default=f"{pipeline}.py"))
    _require_place(path, overwrite=arguments.overwrite)
    text = dag_file(draft.parameters, f"It lands topic {topic!r} of Kafka in bucket {access.bucket!r}.", draft.comments)
    require_parsed(text, path.name, pipeline)
    _write(path, text, overwrite=arguments.overwrite)
    checks = doctor(access)
    commands = [choice.command for choice in connections if choice.command]
    is_done = not commands and checks.code == OK
    return Answer(
        {
            "file": str(path),
            "dag_file": text,
            "sample": sample.to_json(),
            "connections": [asdict(choice) for choice in connections],
            "commands": commands,
            **checks.data,
        },
        [
            *_lines(path, draft, connections),
            "",
            "Checks (doctor --dry-run):",
            *checks.lines,
            *_next(access, path),
        ],
        OK if is_done else FINDINGS,
    )


class _Questions:
    """What is not given: asked on a terminal, else the default, else an error that names the options."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self.can_ask = can_ask() and not arguments.yes and not arguments.json
        self._missing: list[str] = []

    def answer(
        self,
        name: str,
        question: str,
        *,
        default: str | None = None,
        choices: Sequence[str] = (),
        options: str = "",
    ) -> str:
        """The value of an option.

        Args:
            name: of the option, with ``_``.
            question: for a person.
            default: for an empty answer, and for programs; None: there is none.
            choices: what it may be; empty: any text.
            options: that may be given instead, for the error; empty: the option.

        Returns:
            Empty if it is missing, see :meth:`require`.
        """
        value: str | None = getattr(self._arguments, name, None)
        if value is None and self.can_ask:
            value = ask(question, choices=choices, default=default)
        if value is None and default is None:
            self._missing.append(options or f"--{name.replace('_', '-')}")
        return default or "" if value is None else value

    def require(self, reason: str = "") -> None:
        """Raise a ConfigurationError if anything is missing.

        Args:
            reason: why there is no default.
        """
        if self._missing:
            because = f" ({reason})" if reason else ""
            raise ConfigurationError(
                f"{', '.join(self._missing)} must be given, since nothing is asked without a terminal or with "
                f"--yes{because}. Nothing was written"
            )


def _where(access: Access, questions: _Questions) -> str:
    """Name broker, topic, bucket and store in the arguments; returns the topic."""
    arguments = access.arguments
    if not access.has_kafka:
        broker = questions.answer(
            "broker",
            "Kafka broker (HOST:PORT), or id of an Airflow connection",
            default=_default_id("kafka_conn_id"),
            options="--bootstrap-server, --kafka-config or --kafka-conn-id",
        )
        setattr(arguments, "bootstrap_server" if ":" in broker else "kafka_conn_id", broker or None)
    topic = questions.answer("topic", "Topic")
    if not access.option("bucket"):
        arguments.bucket = questions.answer("bucket", "Bucket")
    if not (access.option("aws_conn_id") or access.option("endpoint_url")):
        has_options = arguments.region or arguments.ca_bundle or arguments.addressing_style
        store = questions.answer(
            "store",
            "URL of an S3-compatible store, or id of an Airflow connection; empty: Amazon S3 by boto3's credentials",
            default="" if has_options else _default_id("aws_conn_id") or "",
        )
        setattr(arguments, "endpoint_url" if "://" in store else "aws_conn_id", store or None)
    if not questions.can_ask:
        questions.answer("starting_offsets", "")
    questions.require()
    return topic


def _default_id(parameter: str) -> str | None:
    """The id of the operator's default connection, if it exists."""
    return DEFAULT_IDS[parameter] if has_connection(DEFAULT_IDS[parameter]) else None


@dataclass(frozen=True)
class _Draft:
    """Parameters of the operator, with their comments.

    Attributes:
        parameters: by name.
        comments: by the names of the parameters that have one.
        warnings: what a person should look at before the first run.
    """

    parameters: dict[str, Any] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, name: str, value: Any, comment: str = "") -> None:
        """Add a parameter."""
        self.parameters[name] = value
        if comment:
            self.comments[name] = comment[0].upper() + comment[1:].rstrip(".") + "."


def _draft(access: Access, questions: _Questions, sample: TopicSample, owner: str | None) -> _Draft:
    """Choose the parameters, except the connections."""
    arguments, draft = access.arguments, _Draft()
    draft.add("task_id", "land")
    draft.add("topics", sample.topic)
    draft.add("bucket", access.bucket)
    pipeline = questions.answer("pipeline", "Name of the pipeline", default=owner or sample.topic)
    addresses.validate_pipeline(pipeline)
    if owner not in (None, pipeline):
        raise ConfigurationError(
            f"topic {sample.topic!r} belongs to pipeline {owner!r} below {access.store.url(access.topics_dir)}; "
            f"use --pipeline {owner}, or another --topics-dir. Nothing was written"
        )
    draft.add("pipeline", pipeline, "the owner of the stored offsets: with another name it would begin anew")
    draft.add("offsets", "incremental", "a run lands all records since the stored offsets")
    start = questions.answer("starting_offsets", f"Where the first run begins; {retained(sample)}", choices=_STARTS)
    used = "where the first run begins" if owner is None else "not used: the pipeline has begun to land this topic"
    draft.add("starting_offsets", start, f"{used}; {retained(sample)}")
    if not arguments.format and any("registry" in kind for kind in sample.kinds) and not access.has_registry:
        _ask_for_registry(access, questions)
    converter = (
        None
        if arguments.format == "bytes"
        else registry_converter(sample, access.registry, arguments.format or "parquet")
    )
    kind = _chosen(questions, "format", "Format", suggest_format(sample, converter), FORMATS)
    on_null: Any = "fail"
    if sample.null_values:
        question = f"{sample.null_values:,} of {sample.records:,} sampled values are null; what they do"
        on_null = questions.answer("on_null", question, choices=_NULLS)
        questions.require(f"{sample.null_values:,} of {sample.records:,} sampled values are null")
    elif arguments.on_null:
        on_null = arguments.on_null
    chosen = choose_format(sample, kind.value or "", kind.reason, on_null, converter)
    draft.add("format", chosen.format, ". ".join(filter(None, (chosen.reason, chosen.warning))))
    if chosen.warning:
        draft.warnings.append(chosen.warning)
    if chosen.value_converter is not None:
        draft.add("value_converter", chosen.value_converter)
    folders = _chosen(questions, "partitioner", "Folders of the objects", choose_partitioner(sample), PARTITIONERS)
    draft.add("partitioner", folders.value, folders.reason)
    if access.topics_dir != "topics":
        draft.add("topics_dir", access.topics_dir)
    if (naming := choose_naming(chosen.format, chosen.value_converter, sample.topic)) is not None:
        draft.add("naming", naming, "readers skip names that begin with '_' or '.'")
    if access.upload != config.Upload():
        draft.add("upload", access.upload)
    if arguments.jars:
        draft.add("jars", arguments.jars)
    return draft


def _ask_for_registry(access: Access, questions: _Questions) -> None:
    if not questions.can_ask:
        return
    question = "The values have the header of a schema registry: its URL, or id of its Airflow connection; empty: none"
    registry = ask(question, default=_default_id("registry_conn_id") or "")
    setattr(access.arguments, "registry_url" if "://" in registry else "registry_conn_id", registry or None)


def _chosen(questions: _Questions, name: str, label: str, choice: Choice, choices: Sequence[str]) -> Choice:
    """What is given or answered, with the reason of the sample if it is the same."""
    value = questions.answer(name, f"{label}; {choice.reason}", default=choice.value, choices=choices)
    questions.require(choice.reason)
    return choice if value == choice.value else Choice(value, f"as given; {choice.reason}")


def _require_place(path: Path, *, overwrite: bool) -> None:
    if path.suffix != ".py":
        raise ConfigurationError(f"--file {path}: the name of a DAG's file ends in .py. Nothing was written")
    if not path.parent.is_dir():
        raise ConfigurationError(f"--file {path}: there is no folder {path.parent}. Nothing was written")
    if path.exists() and not overwrite:
        raise ConfigurationError(
            f"{path} exists; name another file by --file, or replace it by --overwrite. Nothing was written"
        )


def _write(path: Path, text: str, *, overwrite: bool) -> None:
    try:
        with path.open("w" if overwrite else "x") as file:
            file.write(text)
    except OSError as e:
        raise ConfigurationError(f"{path} cannot be written ({e.strerror})") from e


def _lines(path: Path, draft: _Draft, connections: Sequence[ConnectionChoice]) -> Iterator[str | Line | Table]:
    parameters: Mapping[str, Any] = draft.parameters
    yield Line(f"{path} was written, and Airflow parses it: DAG {parameters['pipeline']!r}", "good")
    shown = ("topics", "bucket", "starting_offsets", "format", "value_converter", "partitioner")
    for name in shown:
        if name in parameters:
            comment = f"  ({draft.comments[name]})" if name in draft.comments else ""
            value = parameters[name]
            yield f"  {name}={value if isinstance(value, str) else type(value).__name__}{comment}"
    for choice in connections:
        state = "is missing" if choice.command else "exists" if choice.conn_id else "not needed"
        yield f"  {choice.parameter}={choice.conn_id!r}  ({state})"
    yield from (Line(f"WARNING  {warning}", "warning") for warning in draft.warnings)
    commands = [choice.command for choice in connections if choice.command]
    if commands:
        yield from ("", Line("These connections are missing. Paste this where Airflow runs:", "warning"))
        yield from (f"  {command}" for command in commands)


def _next(access: Access, path: Path) -> Iterator[str]:
    from airflow.configuration import conf

    dags = Path(conf.get("core", "dags_folder"))
    pipeline = access.arguments.pipeline
    yield from ("", "Next:")
    if dags.resolve() not in path.resolve().parents:
        folder = shlex.quote(str(dags))
        made = "" if dags.is_dir() else f"mkdir -p {folder} && "
        yield f"  {made}cp {shlex.quote(str(path))} {folder}/"
    yield f"  {access.command('doctor').strip('`')}  # checks conditional writes, too, with one small object"
    yield f"  airflow dags test {shlex.quote(pipeline)}"


COMMANDS: Final = (
    Command(
        name="init",
        run=init,
        summary="Write the file of a DAG that lands a topic, by what topic, bucket and connections show.",
        examples=(
            "--bootstrap-server broker:9092 --topic orders --bucket lake --starting-offsets earliest",
            "--topic orders --bucket lake --starting-offsets latest --format json --file landing.py --yes --json",
        ),
        findings="the file was written, and connections are missing or a check has failed",
        topics=None,
        asks=True,
        add_options=_add_options,
    ),
)
