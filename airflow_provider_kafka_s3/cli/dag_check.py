"""Parses the file of a DAG as Airflow does, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["require_parsed"]

_PARSE: Final = """
import json, sys
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # Airflow 2.11
    from airflow.models.dagbag import DagBag
bag = DagBag(dag_folder=sys.argv[1], collect_dags=False)
bag.process_file(sys.argv[1])
print(json.dumps([[*bag.dags], [str(error) for error in bag.import_errors.values()]]))
"""
_TIMEOUT: Final = 300.0
"""Seconds."""


def require_parsed(text: str, name: str, dag_id: str) -> None:
    """Raise an error unless Airflow reads exactly one DAG from a file; the file is written beside no other.

    Args:
        text: of the file.
        name: of the file.
        dag_id: of its DAG.

    Raises:
        ConfigurationError: Airflow refuses the file, or cannot be started; the last lines of its output say why.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-s3-init-") as folder:
        path = Path(folder, name)
        path.write_text(text)
        try:
            done = subprocess.run(
                [sys.executable, "-c", _PARSE, str(path)], capture_output=True, text=True, check=False, timeout=_TIMEOUT
            )
        except subprocess.TimeoutExpired:
            raise ConfigurationError(
                f"Airflow has not parsed the DAG after {_TIMEOUT:.0f} s; nothing was written"
            ) from None
    lines = done.stdout.splitlines() or [""]
    if done.returncode:
        raise ConfigurationError(f"Airflow cannot parse a DAG here; nothing was written: {_end(done.stderr)}")
    dags, errors = json.loads(lines[-1])
    if errors or dags != [dag_id]:
        raise ConfigurationError(f"Airflow refuses the DAG; nothing was written: {_end(''.join(errors)) or dags}")


def _end(output: str) -> str:
    return " ".join(output.strip().splitlines()[-1:])
