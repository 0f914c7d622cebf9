"""How the modules of the package import one another."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

PACKAGE = "airflow_provider_kafka_s3"


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports for types alone, and those inside functions, count as well."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 100
    assert len(list(TopologicalSorter(imports).static_order())) == len(imports)


def test_a_circle_would_be_found() -> None:
    """Also one that only a type closes: the operator's own module imports the settings of a run."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    graph.add_import(importer=f"{PACKAGE}.airflow.run_settings", imported=f"{PACKAGE}.operators.kafka_to_s3")
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    with pytest.raises(CycleError, match="nodes are in a cycle"):
        TopologicalSorter(imports).prepare()
