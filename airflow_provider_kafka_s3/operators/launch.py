"""What ``spark-submit`` needs to find on the machine of the Airflow worker, and the settings every job gets."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error
from airflow_provider_kafka_s3.spark.jars import CONNECTOR, jars_of_spark, missing_jars, pyspark_home, unreadable_jars
from airflow_provider_kafka_s3.spark.outputs import explain_output

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.spark.spec import JobResult

__all__ = [
    "environment_of",
    "kill_job",
    "local_master",
    "python_of_driver",
    "python_of_local_master",
    "require_client_mode",
    "require_command",
    "require_jars",
    "require_java",
    "spark_submit",
    "told_by",
]

_TASK_TRIES: Final = 4
"""How often Spark starts a task at most; its own default, except on local masters."""


_EXPIRED: Final = re.compile(r"\b(ExpiredToken|TokenRefreshRequired)|the session of the role \S+ has ended")
"""How S3, or our own client, says that the session of temporary credentials has ended."""

_EXPIRED_HELP: Final = (
    "the job's temporary credentials ended while it ran and could not be renewed; a retry begins the batch anew. The "
    "session of a role_arn is renewed by driver and executors themselves, if they reach STS and the role is assumed by "
    "keys of the AWS connection or by what their own machines have; session tokens of a connection, SAML and Google's "
    "identities are not. Let sessions last longer than the job (in the extra of the AWS connection: "
    '"assume_role_kwargs": {"DurationSeconds": 14400}, up to what the role allows), or use aws_conn_id=None with roles '
    "of their own for the machines of the driver and the executors; a smaller max_records_per_batch makes the jobs of "
    "batches that are planned from then on shorter"
)


def environment_of(env: Mapping[str, object]) -> dict[str, str]:
    """The environment of a job: the worker's, and the job's own variables."""
    return {**os.environ, **{name: str(value) for name, value in env.items()}}


def require_command(command: str, conn_id: str, env: Mapping[str, object]) -> None:
    """Check that a command that was named can be executed.

    Args:
        command: that submits.
        conn_id: of the Spark connection, which may name it.
        env: the job's own environment variables; the worker's count, too.

    Raises:
        ConfigurationError: it is not on PATH, or may not be executed.
    """
    if shutil.which(command, path=environment_of(env).get("PATH")) is None:
        raise ConfigurationError(
            f"there is no command {command!r} that the Airflow worker can execute: install it, or correct spark_binary "
            f"or the spark-binary of the connection {conn_id!r} (spark_conn_id)"
        )


def local_master(master: str) -> str:
    """A local master whose tasks are tried again, as those of any other master are: ``local[2]`` -> ``local[2,4]``."""
    threads = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    return master if threads is None else f"local[{threads[1] or 1},{_TASK_TRIES}]"


def python_of_local_master(conf: Mapping[str, object], env: Mapping[str, object]) -> dict[str, str]:
    """Environment variables that keep a local master in the Python of the Airflow worker.

    Spark would take the first ``python3`` on PATH, which need not be the environment that this package is installed in.

    Args:
        conf: the job's Spark configuration.
        env: the job's own environment variables. What the user chose, in either or in the worker's environment, stays.
    """
    wanted = {"PYSPARK_PYTHON": "spark.pyspark.python", "PYSPARK_DRIVER_PYTHON": "spark.pyspark.driver.python"}
    return {
        name: sys.executable
        for name, setting in wanted.items()
        if name not in env and name not in os.environ and setting not in conf
    }


def python_of_driver(conf: Mapping[str, object], env: Mapping[str, object]) -> dict[str, str]:
    """Settings that keep the driver in the Python of the Airflow worker when the executors are on other machines.

    Spark would run the driver, too, with the Python that ``spark.pyspark.python`` names for the executors, which need
    not be on this machine; or with the first ``python3`` on PATH.

    Args:
        conf: the job's Spark configuration.
        env: the job's own environment variables. A Python that the user chose for the driver stays: in either, in the
            worker's environment, or by a ``PYSPARK_PYTHON`` that counts for all machines.
    """
    chosen = "spark.pyspark.driver.python" in conf or "PYSPARK_DRIVER_PYTHON" in (variables := environment_of(env))
    if chosen or ("spark.pyspark.python" not in conf and "PYSPARK_PYTHON" in variables):
        return {}
    return {"spark.pyspark.driver.python": sys.executable}


def spark_submit(*, local: bool) -> str | None:
    """The command to submit with, if none was named; None leaves it to the Spark hook (``spark-submit`` on PATH).

    Args:
        local: whether the master is a local one; it runs the worker's own pyspark, wherever PATH points.

    Raises:
        ConfigurationError: Spark is not installed.
    """
    on_path = shutil.which("spark-submit")
    if on_path is not None and not local:
        return None
    # Not imported: pyspark takes half a second, and pyspark-client alone brings the package without the command.
    home = pyspark_home()
    if home is not None and (command := home / "bin" / "spark-submit").is_file():
        return str(command)
    if on_path is not None:
        return None
    raise ConfigurationError(
        "there is no spark-submit, neither in this Python environment nor on PATH; install Spark with "
        "`pip install 'airflow-provider-kafka-s3[spark]'`, or name the command by spark_binary"
    )


def require_client_mode(*said: object) -> None:
    """Refuse a driver that runs elsewhere.

    Args:
        said: deploy modes, the one that counts first; what is empty says nothing.

    Raises:
        ConfigurationError: the mode is not ``client``.
    """
    mode = next((m for m in said if m), "client")
    if mode != "client":
        raise ConfigurationError(
            f"deploy mode {mode!r}: the Spark driver has to run on the Airflow worker, where the private file lies "
            f"that holds the credentials of the job; use deploy mode 'client'"
        )


def require_java(env: Mapping[str, object]) -> None:
    """Check that ``spark-submit`` will find Java.

    Args:
        env: the job's own environment variables; the worker's count, too.

    Raises:
        ConfigurationError: there is none.
    """
    environment = environment_of(env)
    home = environment.get("JAVA_HOME")
    if home:
        if os.access(Path(home, "bin", "java"), os.X_OK):
            return
        problem = f"JAVA_HOME={home} holds no bin/java"
    elif shutil.which("java", path=environment.get("PATH")):
        return
    else:
        problem = "there is no java on PATH and JAVA_HOME is not set"
    raise ConfigurationError(
        f"Spark needs Java 17 or 21 on the Airflow worker: {problem}. Install a JRE (Debian: openjdk-17-jre-headless) "
        f"or set JAVA_HOME"
    )


def require_jars(jars: str, *, more: bool, command: str | None, local: bool, env: Mapping[str, object]) -> None:
    """Check that jars are there, and are all that Spark's Kafka connector needs, as far as that can be known.

    Args:
        jars: as ``spark-submit`` takes them.
        more: whether others may come by another way: packages, the driver's class path, a file of properties.
        command: that submits, if one was named; None: as :func:`spark_submit` finds it.
        local: whether the master is a local one.
        env: the job's own environment variables; the worker's count, too.

    Raises:
        ConfigurationError: a file does not exist or may not be read, or a jar of the connector is not among them.
    """
    if unreadable := unreadable_jars(jars):
        raise ConfigurationError(
            f"jars: {', '.join(unreadable)} cannot be read on this worker. Correct the path, or give Spark the "
            f"connector by packages="
        )
    if more or not missing_jars(jars):
        return
    environment = environment_of(env)
    brought = jars_of_spark(command or spark_submit(local=local) or "spark-submit", environment)
    if brought is not None and (missing := missing_jars(jars, brought)):
        raise ConfigurationError(
            f"jars: {', '.join(missing)} is not among them. Spark's Kafka connector consists of "
            f"{', '.join(CONNECTOR)}: add the path, or use packages= instead of jars="
        )


def kill_job(job_file: str) -> None:
    """Kill the processes of this one's that run a job, and all that they started, at once.

    They are the JVM of ``spark-submit``, the Python driver that it started, and on a local master Spark's workers. All
    are looked for before any is killed: who loses its parent is nobody's child any more.

    Args:
        job_file: its path, which is among the arguments of JVM and driver, and of no other job.
    """
    import psutil

    found: dict[int, psutil.Process] = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # It may end meanwhile.
            if process.pid not in found and job_file in process.cmdline():
                found |= {p.pid: p for p in (process, *process.children(recursive=True))}
    for process in found.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def told_by(result: JobResult | None, said: str, topics: Iterable[str]) -> dict[str, KafkaS3Error]:
    """What went wrong with each topic of a job: what its driver wrote down, or else what its output means.

    Args:
        result: of the driver; None: it wrote none.
        said: how ``spark-submit`` ended, and what it printed; empty: it ended without a complaint.
        topics: of the job.
    """
    outcomes = {} if result is None else {outcome.topic: outcome for outcome in result.topics}
    told: dict[str, KafkaS3Error] = {}
    for topic in topics:
        outcome = outcomes.get(topic)
        if outcome is None:
            told[topic] = explain_output(said)
        elif (error := outcome.error) is not None:
            told[topic] = error
    for error in told.values():
        if _EXPIRED.search(str(error)):
            error.add_note(_EXPIRED_HELP)
    return told
