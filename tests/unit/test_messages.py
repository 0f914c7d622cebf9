"""Errors in a log: lines that fit on a screen, and commands that can be copied."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.presence import missing_objects
from airflow_provider_kafka_s3.batch.rebuilt_objects import object_builder
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.exceptions import SparkJobError, message_of
from airflow_provider_kafka_s3.messages import count, either, or_nearest, readable, size
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.submit.versions import reinstall
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka

LONG = "a-topic-with-a-name-that-is-as-long-as-kafka-allows." * 3


def topic_log(topic: str = "orders", topics_dir: str = "topics") -> TopicLog:
    """A log whose commands have all options of the operator."""
    options = ("--kafka-conn-id", "kafka_default", "--aws-conn-id", "aws_default")
    store = DurableStore(MemoryStore("lake"), Retrier(RetryPolicy()))
    return TopicLog(store, TopicAddress(topics_dir=topics_dir, pipeline="to-lake", topic=topic), options)


def missing(log: TopicLog) -> str:
    """The error about deleted objects: two commands, and URLs."""
    committer = Committer(log, SimulatedKafka(), object_builder(log.store))
    return str(missing_objects(committer, [7, 8], [f"topics/{log.topic}/partition=0/{n:010}.json" for n in range(3)]))


REAL = {
    "missing objects": missing(topic_log()),
    "missing objects of a long name": missing(topic_log(LONG)),
    "a record": f"offset 5 of partition 0 is not JSON. {topic_log().remedies.abandon_or_leave_out(7)}",
    "a gap": f"offsets [0, 5) are gone. {topic_log().remedies.skip_gap(7)}",
    "two versions of pyspark": f"install one version of both: `{reinstall({'pyspark': '4.2.0'})}`",
    "no Spark": (
        "there is no spark-submit; install Spark with `pip install 'airflow-provider-kafka-s3[spark]'` (pyspark at the "
        "version of pyspark-client), or name the command by spark_binary"
    ),
}


def commands_of(message: str) -> list[str]:
    """The commands of a message, which are between backticks."""
    return message.split("`")[1::2]


@pytest.mark.parametrize("message", REAL.values(), ids=REAL)
def test_a_command_is_a_line_of_its_own_that_a_shell_accepts(message: str) -> None:
    """Whole, without backticks, however long; nothing else is indented."""
    lines = readable(message).splitlines()
    assert commands_of(message)
    assert [line.strip() for line in lines if line.startswith(" ")] == commands_of(message)
    for command in commands_of(message):
        assert shlex.split(command)[0] in ("kafka-s3", "pip")


@pytest.mark.parametrize("message", REAL.values(), ids=REAL)
def test_prose_fits_on_a_screen_and_no_word_is_lost(message: str) -> None:
    """Only a word that is longer than a line makes a longer line."""
    prose = [line for line in readable(message).splitlines() if not line.startswith(" ")]
    assert prose[0][:60] == message[: len(prose[0])][:60]
    assert [line for line in prose if len(line) > 110 and " " in line] == []
    words = {word.strip("`.,;:()") for word in message.split()}
    assert words == {word.strip("`.,;:()") for word in readable(message).split()}


def test_the_message_about_a_deleted_object() -> None:
    """The full text of one message."""
    options = "--kafka-conn-id kafka_default --aws-conn-id aws_default --bucket lake --topics-dir topics"
    whose = "--pipeline to-lake --topic orders"
    assert readable(f"batch 7 is stuck ({topic_log().remedies.recover()}). Or: {topic_log().remedies.reset()}") == (
        f"batch 7 is stuck\n    kafka-s3 recover {options} {whose}\nOr:\n    kafka-s3 reset {options} {whose}"
    )


def test_quotes_in_a_name_neither_end_a_command_nor_hide_its_end() -> None:
    """A backtick may be part of a name, which then is quoted for the shell."""
    for name in ("a`b", "it's", "a\"b`c'd"):
        command = topic_log(topics_dir=name).remedies.repair()
        shown = readable(f"do {command}, then look").splitlines()
        assert shown == ["do", f"    {command[1:-1]}", "then look"]
        assert name in shlex.split(shown[1])


def test_lines_of_a_traceback_and_notes_are_kept() -> None:
    """The frames of a traceback are not changed; a note follows the message."""
    code = "    " + "x = " * 60
    error = SparkJobError(f"the Spark driver ended without a result. Cannot execute\nTraceback:\n{code}\nKilled")
    error.add_note("run `airflow tasks clear orders`")
    assert readable(message_of(error)).splitlines() == [
        "the Spark driver ended without a result. Cannot execute",
        "Traceback:",
        code.rstrip(),
        "Killed; run",
        "    airflow tasks clear orders",
    ]


@given(st.text())
def test_any_text_is_readable(message: str) -> None:
    """Messages contain texts of servers."""
    readable(message)


def test_parentheses_stay_in_pairs() -> None:
    """They are removed around a command alone."""
    assert readable("it is gone (`kafka-s3 repair`). See it") == "it is gone\n    kafka-s3 repair\nSee it"
    assert readable("gone (`kafka-s3 status` has more). See it").splitlines() == [
        "gone (",
        "    kafka-s3 status",
        "has more). See it",
    ]


def test_other_code_is_not_broken() -> None:
    """Another command has no line of its own, and is not broken."""
    shown = readable("word " * 20 + "`make browser as root` and more").splitlines()
    assert shown == ["word " * 19 + "word", "`make browser as root` and more"]


def test_counts_have_the_form_of_their_number() -> None:
    """Also of nouns with another ending."""
    assert [count(1, "batch"), count(2, "batch"), count(0, "object")] == ["1 batch", "2 batches", "0 objects"]
    assert [count(40_000, "record"), size(5 * 1024 * 1024), size(7)] == ["40,000 records", "5.0 MiB", "7 B"]


def test_a_misspelt_name_has_a_nearest_name_and_choices_are_listed() -> None:
    """A name that is similar to no known name has none."""
    known = ["kind", "path_format", "daily"]
    assert or_nearest("path_fromat", known, "it has more") == "; did you mean 'path_format'? It has more"
    assert or_nearest("Daily", known, "use this") == "; did you mean 'daily'? Use this"
    assert [or_nearest(name, known, "it has more") for name in ("avro", None)] == ["; it has more"] * 2
    assert [either(["a"]), either("ab"), either("abc")] == ["'a'", "'a' or 'b'", "'a', 'b' or 'c'"]
