"""What the documentation points at exists, and what it shows can be copied."""

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


def links(page: Path) -> list[str]:
    """The targets of a page's links, without those in code."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(page: Path) -> set[str]:
    """What a link may name after its ``#``: the headings, as they are turned into anchors."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_links_lead_to_what_is_there(page: Path) -> None:
    """Files of this tree and headings in them; nothing leads out of the tree by a relative path."""
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_found_from_the_contents() -> None:
    """Somebody who begins at docs/index.md comes to every page of the documentation and to every example."""
    index = ROOT / "docs" / "index.md"
    found = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)} | {index}
    assert {p for p in PAGES if p.is_relative_to(ROOT / "docs")} <= found
    assert set((ROOT / "dags").glob("*.py")) <= found


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


def test_the_registry_lists_what_the_provider_has() -> None:
    """The metadata for the registry of providers name the classes of the modules that Airflow is told of."""
    listed = yaml.safe_load((ROOT / ".airflow-registry.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = get_provider_info()
    assert listed["package-name"] == project["name"] == info["package-name"]
    assert listed["description"] == info["description"]
    for section in ("operators", "sensors", "triggers"):
        told = {module for integration in info.get(section, []) for module in integration["python-modules"]}
        described = {entry["module"].rpartition(".")[0] for entry in listed.get(section, [])}
        assert described == told, section
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
