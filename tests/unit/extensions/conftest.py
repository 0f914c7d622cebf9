"""Packages of somebody else, which can be imported in one test only."""

from __future__ import annotations

import importlib
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.outside.shelf import packed

WriteModule = Callable[[str], str]

_NUMBERS = itertools.count()


def _forget(package: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The package ``shelf_layouts``, from its zip file."""
    monkeypatch.syspath_prepend(packed(tmp_path))
    yield "shelf_layouts"
    _forget("shelf_layouts")


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteModule]:
    """Write a module: ``write_module(text)`` returns its name. It has the public names of the interface."""
    monkeypatch.syspath_prepend(tmp_path)
    written: list[str] = []

    def write(text: str) -> str:
        name = f"written_{next(_NUMBERS)}"
        lines = "from airflow_provider_kafka_s3.extensions import *\nimport numpy as np\n" + textwrap.dedent(text)
        (tmp_path / f"{name}.py").write_text(lines)
        importlib.invalidate_caches()
        written.append(name)
        return name

    yield write
    for name in written:
        _forget(name)
