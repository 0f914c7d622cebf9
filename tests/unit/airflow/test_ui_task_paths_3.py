"""The paths of task instances in the user interface of Airflow 3."""

from __future__ import annotations

from importlib.metadata import files


def test_the_user_interface_has_pages_at_the_paths_of_the_links() -> None:
    """Also of a mapped task."""
    scripts = [file for file in files("apache-airflow-core") or () if file.match("airflow/ui/dist/assets/index-*.js")]
    paths = "".join(script.read_text() for script in scripts)
    assert "dags/:dagId/runs/:runId/tasks/:taskId`" in paths
    assert "dags/:dagId/runs/:runId/tasks/:taskId/mapped/:mapIndex`" in paths
