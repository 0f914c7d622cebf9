"""Leaves out what pyspark does at the start and the end of a driver's process, and the job does not need.

Together it takes more than a second. Each function relies on details of pyspark, and changes nothing where they are
others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["drop_numpy_converters", "import_installed_pyspark", "leave_accumulators", "leave_out_pandas"]

_PACKAGES: Final = ("pyspark", "py4j")


class _Installed:
    """Finds pyspark and py4j in one folder, whatever comes before it on the path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - of the protocol
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """See :class:`importlib.abc.MetaPathFinder`."""
        return PathFinder.find_spec(name, [str(self._folder)], target) if name in _PACKAGES else None


def import_installed_pyspark() -> None:
    """Have pyspark imported from where pip installed it, instead of Spark's zip files.

    Both are in the same distribution. Python compiles the modules of a zip file again in every process, which takes
    0.3 s. Another Spark than pip's has no folder with modules that are compiled.
    """
    home = Path(os.environ.get("SPARK_HOME", ""))
    if all((home.parent / name / "__init__.py").is_file() for name in _PACKAGES) and home.name == "pyspark":
        sys.meta_path.insert(0, _Installed(home.parent))


def drop_numpy_converters() -> None:
    """Make calls of Java without pyspark's converters of numpy's values, of which the driver passes none.

    For the first argument of any call they import pyspark's tools for tests, and pandas with them, which takes 0.3 s.
    """
    import pyspark.sql.types  # noqa: F401 - registers them
    from py4j import protocol

    converters = protocol.INPUT_CONVERTER
    converters[:] = [each for each in converters if not type(each).__name__.startswith("Numpy")]


def leave_out_pandas() -> None:
    """Have ``mapInArrow`` require no pandas, which it does not use. The import takes 0.7 s.

    What uses pandas imports it, and its version is checked wherever a user of it calls pyspark.
    """
    from pyspark.sql.pandas import functions

    functions.require_minimum_pandas_version = lambda: None  # type: ignore[attr-defined]


def leave_accumulators(session: SparkSession) -> None:
    """Have a session stop without its server of accumulators, whose thread ends with this process.

    The server looks for its end once in a second, counted from the end of the last task. Java has sent all updates when
    an action returns.
    """
    session.sparkContext._accumulatorServer = None  # type: ignore[assignment]
