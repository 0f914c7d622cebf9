"""No module of the package imports itself through others."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

import airflow_provider_kafka_s3

PACKAGE = airflow_provider_kafka_s3.__name__
FOLDER = Path(airflow_provider_kafka_s3.__file__).parent


@pytest.fixture
def graph() -> grimp.ImportGraph:
    """The graph of imports, including those for types only and those inside functions."""
    return grimp.build_graph(PACKAGE, cache_dir=None)


def imports_of(graph: grimp.ImportGraph) -> dict[str, set[str]]:
    """Per module, those that it imports itself."""
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_no_module_imports_itself_through_others(graph: grimp.ImportGraph) -> None:
    """Every file of the package is included."""
    imports = imports_of(graph)
    assert len(imports) == len(list(FOLDER.rglob("*.py")))
    assert set(TopologicalSorter(imports).static_order()) == set(imports)


def test_a_cycle_made_by_a_single_import_is_found(graph: grimp.ImportGraph) -> None:
    """A module that the operator uses must not import the operator, not even as a type."""
    graph.add_import(importer=f"{PACKAGE}.airflow.run_settings", imported=f"{PACKAGE}.operators.kafka_to_s3")
    with pytest.raises(CycleError):
        TopologicalSorter(imports_of(graph)).prepare()
