"""Ports for the servers of tests."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dev import ports
from dev.ports import HOST, free_ports, listens


def test_ports_are_different_and_can_be_bound() -> None:
    """Those of one call and of several."""
    found = [*free_ports(3), *free_ports(2)]
    assert len(set(found)) == 5
    for port in found:
        with socket.create_server((HOST, port)):
            assert listens(port)
        assert not listens(port)


def test_a_port_belongs_to_its_process_until_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one does not get it although nothing listens yet."""
    code = "import sys; from dev.ports import free_ports; print(*free_ports(1), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        monkeypatch.setattr(ports, "_PORTS", range(port, port + 1))
        with pytest.raises(RuntimeError, match=f"1 free ports were not found in {port} to {port}"):
            free_ports(1)
        other.communicate()
    assert free_ports(1) == [port]


def test_a_port_on_which_a_server_listens_is_not_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever has started it."""
    (port,) = free_ports(1)
    monkeypatch.setattr(ports, "_FOLDER", tmp_path / "ports")
    monkeypatch.setattr(ports, "_PORTS", range(port, port + 1))
    with socket.create_server((HOST, port)), pytest.raises(RuntimeError, match="were not found"):
        free_ports(1)
