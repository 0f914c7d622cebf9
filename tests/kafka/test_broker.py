"""The broker for development: it starts or reports the reason, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.kafka_broker import BrokerError, KafkaBroker, main
from dev.ports import free_ports, listens
from dev.waiting import wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where brokers started by this test put their data."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    tempfile.tempdir = None


def test_a_taken_port_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    """Before any JVM is started."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        assert main(["--port", str(port)]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert f"port {port} is in use" in line


def test_missing_jars_name_the_command_that_fetches_them(tmp_path: Path) -> None:
    """The error has the command `make jars`."""
    with pytest.raises(BrokerError, match="make jars"):
        KafkaBroker(jars=tmp_path).start()


def test_a_broker_that_does_not_start_is_an_error_with_the_end_of_its_log(temporary: Path) -> None:
    """Neither a process nor data remain."""
    (free,) = free_ports(1)

    with pytest.raises(BrokerError, match=r"(?s)exit status 1.*no\.such\.Authorizer"):
        KafkaBroker(config={"authorizer.class.name": "no.such.Authorizer"}, port=free).start()

    assert list(temporary.glob("kafka-broker-*")) == []
    assert not listens(free)


def test_the_broker_ends_with_its_parent_process_even_if_that_is_killed(temporary: Path) -> None:
    """SIGKILL leaves neither a process nor data behind, nor does the signal of an orderly stop."""
    for number in (signal.SIGKILL, signal.SIGTERM):
        (port,) = free_ports(1)
        starter = subprocess.Popen(
            [sys.executable, "-m", "dev.kafka_broker", "--port", str(port), "--topic", "t:2"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        assert starter.stdout is not None
        assert f"127.0.0.1:{port}" in starter.stdout.readline()

        starter.send_signal(number)
        starter.wait(timeout=30)
        starter.stdout.close()

        wait_until(lambda: not listens(port), "the broker's end")  # noqa: B023
        wait_until(lambda: list(temporary.glob("kafka-broker-*")) == [], "the deletion of its data")
