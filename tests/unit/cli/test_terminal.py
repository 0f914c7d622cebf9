"""On a terminal commands print tables, colours and progress; in a pipe the same words as plain text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from airflow_provider_kafka_s3.cli import terminal
from airflow_provider_kafka_s3.inspect import verify
from airflow_provider_kafka_s3.progress import progress, shown_by
from tests.unit.cli.conftest import PIPELINE, TOPIC, TOPICS_DIR, World

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output is for a terminal of 200 columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)


def words(text: str) -> list[str]:
    """What is printed, without colours and the lines of tables."""
    return re.sub(r"[─━]", "", ESCAPES.sub("", text)).split()


@pytest.mark.parametrize("command", ["status", "verify"])
def test_a_terminal_shows_the_words_of_a_pipe(world: World, command: str, request: pytest.FixtureRequest) -> None:
    """Colours and tables add nothing that the words do not say."""
    world.run("first")
    plain = world.on_topic(command).out
    request.getfixturevalue("on_terminal")
    shown = world.on_topic(command).out
    assert ESCAPES.search(plain) is None
    assert ESCAPES.search(shown) is not None
    assert words(shown) == words(plain)


def test_no_color_removes_the_colours_and_keeps_the_table(
    world: World, on_terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As https://no-color.org has it."""
    monkeypatch.setenv("NO_COLOR", "1")
    world.run("first")
    shown = world.on_topic("status").out
    assert "──" in shown
    assert not re.search(r"\x1b\[(?:\d+;)*3[0-7]m", shown)


def test_a_text_of_a_document_cannot_change_the_terminal(world: World, on_terminal: None) -> None:
    """Control sequences and markup in the name of a run are shown as texts."""
    world.run("first")
    world.fill(3)
    world.die("*.plan.json", "\x1b[31m[red]second")
    shown = world.on_topic("status").out
    assert "\x1b[31m[red]second" not in shown
    assert "[red]second" in ESCAPES.sub("", shown)


def test_a_long_verification_shows_how_far_it_is(
    world: World, on_terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar of the offsets, with rate and time left, on standard error, and it is removed at the end."""
    world.run("first")
    read, shown = verify._read_back, threading.Event()

    def read_back(*arguments: object) -> tuple[int, str | None]:
        # The bar is on the terminal before the first object is read.
        assert shown.wait(30)
        return read(*arguments)  # type: ignore[arg-type]

    class Bars(terminal._Bars):
        def __init__(self, command: str) -> None:
            super().__init__(command)
            begin = self._bars.start

            def start() -> None:
                begin()
                shown.set()

            self._begin.cancel()
            self._begin = threading.Timer(0, start)
            self._begin.start()

    monkeypatch.setattr(verify, "_read_back", read_back)
    monkeypatch.setattr(terminal, "_Bars", Bars)
    output = world.on_topic("verify")
    assert output.code == 0
    assert f"topic {TOPIC}: verify" in ESCAPES.sub("", output.err)
    assert "100 %" in ESCAPES.sub("", output.err)
    assert "\x1b[2K" in output.err


def test_a_short_command_shows_no_progress(world: World, on_terminal: None) -> None:
    """Nothing is on standard error."""
    world.run("first")
    assert world.on_topic("verify").err == ""


def test_nothing_is_shown_without_a_display() -> None:
    """An operation in a task of Airflow is reported to nobody; one ends with its context."""
    seen: list[tuple[str, float]] = []

    class Display:
        def operation(self, what: str, total: int, unit: str) -> object:
            import contextlib

            @contextlib.contextmanager
            def operation() -> object:  # type: ignore[misc]
                yield lambda by: seen.append((f"{what} of {total} {unit}", by))

            return operation()

    with progress("a", total=2, unit="batch") as advance:
        advance(1)
    with shown_by(Display()), progress("b", total=2, unit="batch") as advance:  # type: ignore[arg-type]
        advance(1)
    with progress("c", total=2, unit="batch") as advance:
        advance(1)
    assert seen == [("b of 2 batch", 1)]


def test_a_shell_completes_commands_and_options(tmp_path: Path) -> None:
    """By argcomplete."""
    for line, expected in (("kafka-s3 ver", "verify"), ("kafka-s3 verify --rest", "--restore")):
        completions = tmp_path / "completions"
        environment = {
            **os.environ,
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(completions),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
        }
        command = [sys.executable, "-m", "airflow_provider_kafka_s3.cli"]
        subprocess.run(command, env=environment, check=True, timeout=120)
        assert completions.read_text().split() == [expected]


def test_defaults_of_options_come_from_a_file_and_variables_win(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Options that are given win over both."""
    world.run("first")
    path = tmp_path / "defaults.toml"
    path.write_text(f'bucket = "lake"\ntopics_dir = "{TOPICS_DIR}"\npipeline = "{PIPELINE}"\n')
    monkeypatch.setenv("KAFKA_S3_DEFAULTS", str(path))
    assert world.cli("verify", "--topic", TOPIC).code == 0
    assert world.cli("repair", "--topic", TOPIC, "--dry-run").code == 0
    monkeypatch.setenv("KAFKA_S3_PIPELINE", "another")
    refused = world.cli("verify", "--topic", TOPIC)
    assert (refused.code, "'another'" in refused.error) == (2, True)
    assert world.cli("verify", "--topic", TOPIC, "--pipeline", PIPELINE).code == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "which does not exist"),
        ("bucket", "is not TOML"),
        ("topic = 'orders'", "topic = 'orders' is no default of an option"),
        ("bucket = 7", "bucket = 7 is no default of an option"),
    ],
)
def test_a_file_of_defaults_that_is_wrong_is_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None, message: str
) -> None:
    """Exit code 2; it names the file."""
    path = tmp_path / "defaults.toml"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("KAFKA_S3_DEFAULTS", str(path))
    output = world.on_topic("status")
    assert output.code == 2
    assert message in output.error
    assert "defaults.toml" in output.error
