"""Every code block of the documentation is run, parsed or compared: none is only text."""

from __future__ import annotations

import ast
import configparser
import contextlib
import importlib.util
import io
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest
import sqlglot
import yaml

from airflow_provider_kafka_s3.cli import main
from airflow_provider_kafka_s3.config import JsonLines, Layout
from airflow_provider_kafka_s3.layout.keys import named_object_parser
from tests.documentation import ROOT, Block, blocks, commands
from tests.unit.docs.test_documentation import PAGES

OUTPUTS: Final[Mapping[str, str]] = {
    "README.md: DAG flights_daily": "unit/cli/test_documented_output.py::test_the_readme_shows_what_a_run_logs",
    "docs/migration.md: # WARNING": "kafka/test_migration.py::test_a_connector_is_moved",
    "docs/migration.md: pipeline orders-to-s3": "kafka/test_migration.py::test_a_connector_is_moved",
    "docs/migration.md: orders-to-s3 / orders": "kafka/test_migration.py::test_a_connector_is_moved",
    "docs/tutorial.md: orders / orders": "unit/cli/test_documented_output.py::test_the_tutorial_shows",
    "docs/tutorial.md: topics/orders/year=2026": "unit/cli/test_documented_output.py::test_the_tutorial_shows",
    "docs/monitoring.md: last batches": "unit/cli/test_documented_output.py::test_the_page_of_monitoring",
}
"""The test that compares an output, by its page and the first words of the block."""

ILLUSTRATIONS: Final[Mapping[str, str]] = {
    "README.md: s3://lake": "some keys of a bucket, whose forms tests/vectors and tests/golden hold",
    "docs/clusters.md: 8 tasks ran": "shortened: versions and paths of a machine; tests/spark compares its form",
    "docs/design/architecture.md: operators": "a drawing of the layers, which `lint-imports` checks",
    "docs/design/tables.md: load the table": "the steps of the protocol, in words",
    "docs/design/tables.md: describe the table": "the steps of the protocol, in words",
}
"""Blocks that no command prints, with the reason."""

OTHER_PROGRAMS: Final = {
    ".",
    "aws",
    "curl",
    "docker",
    "echo",
    "eval",
    "export",
    "jq",
    "mkdir",
    "mv",
    "mvn",
    "pre-commit",
    "python",
    "python3.11",
    "uv",
    "$compose",
}
"""Programs whose options are not known here."""


def each(*languages: str) -> pytest.MarkDecorator:
    """All blocks of these languages."""
    chosen = [block for page in PAGES for block in blocks(page) if block.language in languages]
    return pytest.mark.parametrize("block", chosen, ids=str)


def test_every_block_has_a_language_that_is_checked() -> None:
    """One of another language would be read by nobody."""
    checked = {"python", "json", "sh", "sql", "toml", "yaml", "ini", "text", ""}
    assert {block.language for page in PAGES for block in blocks(page)} <= checked


@each("toml", "yaml", "ini")
def test_settings_are_parsed(block: Block) -> None:
    """By the parser of the program that reads them; none is empty."""
    if block.language == "ini":
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(block.code)
        assert parser.sections()
        return
    parse: Callable[[str], object] = tomllib.loads if block.language == "toml" else yaml.safe_load
    assert parse(block.code)


@each("sql")
def test_statements_are_parsed(block: Block) -> None:
    """In the dialect of the engine whose section they are in; those without one are for DuckDB."""
    engines = re.findall(r"Athena|Trino|Spark|DuckDB", block.heading)
    dialect = engines[0].lower() if engines else "duckdb"
    assert [statement for statement in sqlglot.parse(block.code, dialect=dialect) if statement is not None]


@each("sh")
def test_commands_exist(block: Block) -> None:
    """The package's own parser takes its commands, and targets of make, files and services are there."""
    for words in commands(block.code):
        program, *arguments = words
        if program == "kafka-s3":
            require_options(arguments)
        elif program == "make":
            targets = set(re.findall(r"^([a-z0-9.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
            assert {word for word in arguments if "=" not in word} <= targets
        elif program.rpartition("/")[2] == "pip":
            files = re.findall(r"(?:--constraint|--requirement|-r) (\S+)", " ".join(arguments))
            assert [name for name in files if not (ROOT / name).is_file()] == []
        elif program != "airflow" and "=" not in program:
            # Those of Airflow are parsed by tests/unit/airflow, with each of its versions.
            assert program.rpartition("/")[2] in OTHER_PROGRAMS, words
        if program == "docker":
            services = yaml.safe_load((ROOT / arguments[arguments.index("--file") + 1]).read_text())["services"]
            action = next(index for index, word in enumerate(arguments) if word in ("up", "down"))
            named = [word for word in arguments[action + 1 :] if not word.startswith("-")]
            assert set(named) <= set(services)


def require_options(arguments: list[str]) -> None:
    """Require that the parser of ``kafka-s3`` takes them."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        try:
            main.parser().parse_args(arguments)
        except SystemExit:
            pytest.fail(f"kafka-s3 {shlex.join(arguments)}: {errors.getvalue()}")


@each("python")
def test_imports_exist(block: Block) -> None:
    """Modules of other packages can be found; names of this one are checked by test_documentation.py."""
    for node in ast.walk(ast.parse(block.code)):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        for module in modules:
            if module.partition(".")[0] not in ("mycompany_layouts", "my_dags"):  # those of the reader
                assert importlib.util.find_spec(module.partition(".")[0]) is not None, module


def test_names_of_snippets_are_defined(tmp_path: Path) -> None:
    """Each is imported or assigned, in the snippet itself or in an earlier one of its page."""
    for page in PAGES:
        code = "\n\n".join(block.code for block in blocks(page) if block.language == "python")
        (tmp_path / f"{page.stem}.py").write_text(code)
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821", str(tmp_path)]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@each("text", "")
def test_outputs_are_compared(block: Block) -> None:
    """By a test that exists; a block without one has names of objects, or a reason."""
    lines = [line for line in block.code.splitlines() if line.strip()]
    title = f"{block.page}: {lines[0].strip()}"
    if all(line.startswith("topics/") for line in lines) and not any(title.startswith(start) for start in OUTPUTS):
        parse = named_object_parser(Layout(format=JsonLines()), lines[0].split("/")[1])
        assert all(parse(line) is not None for line in lines)
        return
    known = [test for start, test in {**OUTPUTS, **ILLUSTRATIONS}.items() if title.startswith(start)]
    assert known, f"{title}: name the test that compares it in OUTPUTS, or the reason in ILLUSTRATIONS"
    if known[0] in OUTPUTS.values():
        path, _, name = known[0].partition("::")
        assert f"def {name}" in (ROOT / "tests" / path).read_text()


def test_no_listed_output_is_gone() -> None:
    """The lists name blocks of the pages, and no others."""
    titles = [
        f"{block.page}: {block.code.strip()}"
        for page in PAGES
        for block in blocks(page)
        if block.language in ("text", "")
    ]
    listed = [*OUTPUTS, *ILLUSTRATIONS]
    assert [start for start in listed if not any(title.startswith(start) for title in titles)] == []
