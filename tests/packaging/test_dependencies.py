"""All imports of the package are declared dependencies, so that an install by its metadata alone is complete."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from typing import Any, Final

import pytest

from tests.packaging.conftest import OURS, ROOT

pytestmark = pytest.mark.any_airflow

OPTIONAL: Final = {
    "pyspark": "the extra `spark`: a driver may run from a Spark of its own",
    "py4j": "comes with pyspark, which requires it",
    "pyiceberg": "the extra `iceberg`: tables are a task of their own",
    "hive_metastore": "the extra `hive`: the client of a Hive metastore that pyiceberg has",
    "thrift": "the extra `hive`",
    "fastapi": "comes with the API server of Airflow 3, which alone imports the app of the page",
    "flask": "comes with the web server of Airflow 2, which alone imports the view of the page",
    "flask_appbuilder": "as flask",
    "airflow.providers.openlineage": "imported only when Airflow's OpenLineage provider calls",
    "openlineage": "as above: its client",
}
"""Optional imports, and why the package works without them."""

_PROVIDER: Final = "apache-airflow-providers-"


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """The metadata of the package."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


@pytest.fixture(scope="module")
def declared(project: dict[str, Any]) -> dict[str, str]:
    """Bounds of the dependencies by their names."""
    return bounds(project["dependencies"])


def bounds(requirements: list[str]) -> dict[str, str]:
    """The version bounds of each requirement, by name."""
    return dict(re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?(.*)$", "\n".join(requirements), re.MULTILINE))


def imported(tree: ast.AST) -> Iterator[str]:
    """Modules that code imports when it runs; what only type checkers import is left out."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test) == "TYPE_CHECKING":
        return
    if isinstance(tree, ast.Import):
        yield from (name.name for name in tree.names)
    elif isinstance(tree, ast.ImportFrom):
        yield tree.module or ""
    for child in ast.iter_child_nodes(tree):
        yield from imported(child)


def third_party() -> dict[str, str]:
    """Modules of others that the package imports, and a file that does."""
    found = {}
    for folder in (OURS, "spark_jobs"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for module in imported(ast.parse(file.read_text())):
                if module.partition(".")[0] not in {OURS, *sys.stdlib_module_names}:
                    found[module] = str(file.relative_to(ROOT))
    return found


def test_everything_that_is_imported_is_declared(declared: dict[str, str]) -> None:
    """By the distribution that installs the module; Airflow's providers share one package, so by their names."""
    distributions = packages_distributions()
    providers = {name.replace(_PROVIDER, "airflow.providers.").replace("-", ".") for name in declared}
    undeclared = {}
    for module, file in third_party().items():
        if any(f"{module}.".startswith(f"{name}.") for name in OPTIONAL):
            continue
        if module.startswith("airflow.providers."):
            is_declared = any(f"{module}.".startswith(f"{name}.") for name in providers)
        elif module.startswith("airflow."):
            is_declared = "apache-airflow" in declared
        else:
            is_declared = not declared.keys().isdisjoint(
                name.lower() for name in distributions.get(module.partition(".")[0], [])
            )
        if not is_declared:
            undeclared[module] = file
    assert undeclared == {}


def test_optional_imports_are_still_used() -> None:
    """An exception that is no longer necessary would hide a new one."""
    modules = third_party()
    assert [name for name in OPTIONAL if not any(f"{module}.".startswith(f"{name}.") for module in modules)] == []


def test_every_dependency_has_a_lower_bound(declared: dict[str, str]) -> None:
    """Without one a resolver may choose a release that is too old."""
    assert [name for name, bound in declared.items() if not re.match(r">=\d", bound)] == []


def test_executors_need_nothing_newer_than_the_package_does(declared: dict[str, str]) -> None:
    """One set of versions serves the worker and the cluster."""
    lines = (ROOT / "spark_jobs" / "requirements.txt").read_text().splitlines()
    executors = bounds([line for line in lines if not line.startswith("#")])
    shared = executors.keys() & declared.keys()
    assert {name: executors[name] for name in shared} == {name: declared[name] for name in shared}
    # Spark needs pandas on executors; nothing of the package imports it.
    assert executors.keys() - shared == {"pandas"}


def test_only_tested_pythons_are_claimed(project: dict[str, Any]) -> None:
    """The Python of the locks, which all tests run with, to the newest that those of the newest Spark look for."""
    (oldest,) = set(re.findall(r"--python-version (\S+)", (ROOT / "Makefile").read_text()))
    (newer,) = re.findall(r"for minor in ([\d ]+);", (ROOT / "dev" / "check.sh").read_text())
    claimed = [name.rpartition(" ")[2] for name in project["classifiers"] if "Programming Language" in name]
    assert claimed == [oldest, *(f"3.{minor}" for minor in sorted(map(int, newer.split())))]
    assert project["requires-python"] == f">={oldest}"


def test_metadata_link_to_nothing_that_does_not_exist(project: dict[str, Any]) -> None:
    """The project has no public page yet."""
    assert "urls" not in project
