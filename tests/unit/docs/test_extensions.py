"""The page about partitioners and formats of your own: its classes keep the rules that it has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.documentation import ROOT, snippets


def test_the_classes_of_the_page_pass_its_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a package, which the tests on the page find by the import paths of its DAG."""
    dag, tenant, lengths, tests = snippets(ROOT / "docs" / "extensions.md", "python")
    package = tmp_path / "mycompany_layouts"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tenant.py").write_text(tenant)
    (package / "lengths.py").write_text(lengths)
    monkeypatch.syspath_prepend(tmp_path)
    namespace: dict[str, Any] = {}
    exec(tests, namespace)
    ran = [name for name, value in namespace.items() if name.startswith("test_") and value() is None]
    assert ran == ["test_tenants", "test_lengths"]
    for path in ("mycompany_layouts.tenant:TenantPartitioner", "mycompany_layouts.lengths:LengthPrefixed"):
        assert path in dag
    for name in [name for name in sys.modules if name.partition(".")[0] == "mycompany_layouts"]:
        del sys.modules[name]
