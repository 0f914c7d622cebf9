"""Snippets of the pages are valid, and facts repeated from other files are equal. `make docs` checks links."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from airflow_provider_kafka_s3.get_provider_info import get_provider_info
from tests.documentation import README, ROOT, snippets

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docker").glob("*.md")])

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def test_every_page_and_example_is_found_from_the_contents() -> None:
    """On GitHub, which has no navigation, readers begin at docs/index.md."""
    index = ROOT / "docs" / "index.md"
    found = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)\s#]+)", index.read_text())} | {index}
    assert set((ROOT / "docs").rglob("*.md")) <= found
    assert set((ROOT / "dags").glob("*.py")) <= found


@each_page
def test_no_page_has_the_marks_of_an_unfinished_merge(page: Path) -> None:
    """A reader would see both versions of a paragraph."""
    assert not re.findall(r"^(?:<{7}|={7}|>{7})(?: .*)?$", page.read_text(), re.MULTILINE)


def test_every_test_that_shows_a_boundary_exists() -> None:
    """SECURITY.md names them."""
    named = re.findall(r"`([a-z]+/[\w/]+\.py)`", (ROOT / "SECURITY.md").read_text())
    assert named
    assert [name for name in named if not (ROOT / "tests" / name).is_file()] == []


@each_page
def test_snippets_can_be_copied(page: Path) -> None:
    """Python compiles, JSON and shell are parsed."""
    for code in snippets(page, "python"):
        ast.parse(code)
    for code in snippets(page, "json"):
        json.loads(code)
    for code in snippets(page, "sh"):
        done = subprocess.run(["/bin/bash", "-n"], input=code, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + code


@each_page
def test_snippets_import_public_names(page: Path) -> None:
    """Each name of the package that a snippet imports is public in its module."""
    for code in snippets(page, "python"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("airflow_provider_kafka_s3"):
                assert {alias.name for alias in node.names} <= public_names(str(node.module)), node.module


def public_names(module: str) -> set[str]:
    """``__all__`` of a module, without importing it: Airflow may not be configured here."""
    path = ROOT / module.replace(".", "/")
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
    (names,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["__all__"]
    ]
    return set(ast.literal_eval(names))


def test_the_tutorial_has_the_commands_of_the_readme() -> None:
    """Those of the README are run by a test."""

    def commands(page: Path) -> set[str]:
        text = "".join(snippets(page, "sh")).replace("\\\n", " ")
        return {" ".join(line.split()) for line in text.splitlines() if line.startswith(("pip ", "airflow "))}

    tutorial = ROOT / "docs" / "tutorial.md"
    assert commands(README) <= commands(tutorial)


def test_the_registry_lists_the_modules_of_the_provider() -> None:
    """The registry's metadata name the classes of the modules in the provider's info."""
    listed = yaml.safe_load((ROOT / ".airflow-registry.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = get_provider_info()
    assert listed["package-name"] == project["name"] == info["package-name"]
    assert listed["description"] == info["description"]
    for section in ("operators", "sensors", "triggers"):
        modules = {module for integration in info.get(section, []) for module in integration["python-modules"]}
        described = {entry["module"].rpartition(".")[0] for entry in listed.get(section, [])}
        assert described == modules, section
        for entry in listed.get(section, []):
            module, _, name = entry["module"].rpartition(".")
            tree = ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text())
            assert name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}, entry
            assert entry["description"].strip()


def test_the_locks_of_the_readme_hold_what_its_extra_installs() -> None:
    """Both, and each an Airflow of the version that the text names."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    named = dict.fromkeys(re.findall(r"requirements/[\w.-]+\.lock", README.read_text()))
    locks = [(ROOT / name).read_text().splitlines() for name in named]
    assert all(set(extras) <= set(lock) for lock in locks)
    airflows = [next(line for line in lock if line.startswith("apache-airflow==")) for lock in locks]
    assert [airflow.rpartition(".")[0] for airflow in airflows] == ["apache-airflow==3.3", "apache-airflow==2.11"]
