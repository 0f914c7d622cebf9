"""What a job has to have in common with a warm process, so that a fork of it is the driver the job would start."""

from __future__ import annotations

import hashlib
import os
import resource
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from airflow_provider_kafka_s3.spark.started_process import StartedProcess
from airflow_provider_kafka_s3.spark.warm_messages import PROTOCOL
from airflow_provider_kafka_s3.submit.spark_command import pyspark_home
from airflow_provider_kafka_s3.version import __version__

__all__ = ["identity", "variables_of_imports"]

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_NAMES: Final = frozenset(
    {
        *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        # Others of Spark may hold a token, and are read when a job begins.
        *("SPARK_HOME", "SPARK_TESTING", "SPARK_CONNECT_LOG_LEVEL", "SPARK_CONNECT_MODE", "SPARK_CONNECT_MODE_ENABLED"),
        *("SPARK_SKIP_CONNECT_COMPAT_TESTS", "PYSPARK_PIN_THREAD", "PYSPARK_NO_NAMESPACE_SHARE"),
    }
)
_PREFIXES: Final = (
    *("LC_", "LD_", "DYLD_", "PYTHON", "GLIBC_", "MALLOC_", "MIMALLOC_", "JE_ARROW_", "ARROW_", "OPENSSL_", "GRPC_"),
    *("OMP_", "KMP_", "MKL_", "OPENBLAS_", "NPY_", "NUMPY_"),
)
_NAMESPACES: Final = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


def variables_of_imports(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that count when Python starts and modules are imported. None of them is a secret."""
    return {name: value for name, value in environment.items() if name in _NAMES or name.startswith(_PREFIXES)}


def identity(environment: Mapping[str, str], worker: StartedProcess, *, seconds: float, driver: str) -> str:
    """A digest of all that a warm process cannot change any more: it is that of one worker, code and environment.

    Args:
        environment: of the driver.
        worker: with which the process ends.
        seconds: that it waits for a job.
        driver: its module.

    Raises:
        OSError: this system does not tell.
    """
    parts = (
        (PROTOCOL, driver, seconds, worker),
        (sys.executable, sys.version, sys.flags, os.getcwd()),
        sorted(variables_of_imports(environment).items()),
        # What a process inherits from the one that starts it.
        (os.getresuid(), os.getresgid(), sorted(os.getgroups())),
        [os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES],
        Path("/proc/self/cgroup").read_text(),
        [resource.getrlimit(getattr(resource, name)) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")],
        (__version__, sorted(_code())),
    )
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()[:16]


def _code() -> Iterator[tuple[str, int, int]]:
    """Paths, sizes and times of the modules: those of this package, and folders of others, which installing changes."""
    paths = [*_PACKAGE.rglob("*.py"), *map(Path, {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})]
    if site.ENABLE_USER_SITE:
        paths.append(Path(site.getusersitepackages()))
    if (home := pyspark_home()) is not None:
        paths += [home, home / "version.py", home / "sql" / "connect"]
    for path in paths:
        if path.exists():
            about = path.stat()
            yield str(path), about.st_size, about.st_mtime_ns
