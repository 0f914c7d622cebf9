"""A Spark job that Airflow's ``SparkSubmitHook`` submits, with its driver on the Airflow worker."""

from __future__ import annotations

import collections
import re
import signal
from collections.abc import Iterator, Mapping
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook  # noqa: TID253 - it is the base class
from airflow.providers.common.compat.sdk import conf as airflow_conf  # noqa: TID253 - the base class imports Airflow

from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error
from airflow_provider_kafka_s3.spark.conf import APPLICATION_FILE, with_job_conf
from airflow_provider_kafka_s3.spark.package_zip import package_zip
from airflow_provider_kafka_s3.spark.spec import JobResult
from airflow_provider_kafka_s3.submit import spark_command
from airflow_provider_kafka_s3.submit.connector import connector_packages
from airflow_provider_kafka_s3.submit.driver_jvm import ClassArchive, class_archive, jvm_variables, leaves_collector
from airflow_provider_kafka_s3.submit.job import JobOutcome
from airflow_provider_kafka_s3.submit.job_script import job_script
from airflow_provider_kafka_s3.submit.masters import require_listening
from airflow_provider_kafka_s3.submit.processes import kill_job
from airflow_provider_kafka_s3.submit.settings import SparkSettings

if TYPE_CHECKING:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    from airflow_provider_kafka_s3.spark.spec import JobSpec
    from airflow_provider_kafka_s3.submit.target import SparkTarget

__all__ = ["SparkSubmitJob", "spark_settings"]

_OUTPUT: Final = 500
"""Number of the last lines of the output of ``spark-submit`` that are kept."""

_IVY: Final = re.compile(
    r"::\s(?:loading settings|resolving dependencies|resolution report|retrieving)\s::|Ivy Default Cache set to:"
    r"|The jars for the packages stored in:|\S+#\S+ added as a dependency|downloading http"
    r"|\t(?:confs: \[|found \S+#|\[SUCCESSFUL \]|:: modules in use:|:: evicted modules:|-{20}|\|\s|\d+ artifacts copied"
    r"|\S+#\S+;\S+ (?:from|by) )"
)
"""Lines of Ivy, which resolves packages: some forty in the first job of a worker, nine in each later one."""

_TIME: Final = re.compile(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?=[A-Z]+ )")
"""The time in a line of Spark; the line gets that of the task's log."""

_OF_SIGNALS: Final = 128
"""Greatest exit status of a shell whose command no signal has ended."""

_KILLED: Final = {
    status
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
    for status in (-number, _OF_SIGNALS + number)
}
"""Exit statuses of a job that a person, another process or the kernel has ended. Damaged classes cause none of them."""

_OF_THE_JOB: Final = ("application_args", "java_class")
"""Parameters of the hook that this package sets itself."""

_NAMED: Final = (
    *("conn_id", "spark_binary", "deploy_mode"),
    *("packages", "jars", "py_files", "driver_class_path", "properties_file"),
)
"""Parameters of the hook that :class:`SparkSettings` has by the same name."""


def spark_settings(operator: SparkSubmitOperator) -> SparkSettings:
    """The Spark settings of an operator whose templates are rendered.

    Every parameter that ``SparkSubmitOperator`` passes to its hook is an attribute of the operator, by the same name or
    with an underscore before it. A value of ``conf`` or ``env_vars`` that is None is not set.
    """
    arguments = {}
    for name in signature(SparkSubmitHook).parameters:
        attribute = name if hasattr(operator, name) else f"_{name}"
        if name not in _OF_THE_JOB and hasattr(operator, attribute):
            arguments[name] = getattr(operator, attribute)
    conf, env = arguments.pop("conf") or {}, arguments.pop("env_vars") or {}
    named = {name: arguments.pop(name) for name in _NAMED}
    return SparkSettings(
        conf={name: str(value) for name, value in conf.items() if value is not None},
        env={name: str(value) for name, value in env.items() if value is not None},
        more=arguments,
        **named,
    )


class SparkSubmitJob:
    """One job that ``spark-submit`` runs.

    Args:
        settings: Spark settings of the task.
        target: the master; not a Spark Connect server.
        log: logger of the task.
    """

    def __init__(self, settings: SparkSettings, target: SparkTarget, log: Any) -> None:
        self._settings = settings
        self._target = target
        self._log = log
        self._hook: _Hook | None = None
        self._job_file = ""
        self._archive: ClassArchive | None = None
        self._killed = False

    def run(self, spec: JobSpec) -> JobOutcome:
        """See :class:`~airflow_provider_kafka_s3.submit.job.SparkJob`.

        Raises:
            ConfigurationError: there is no Java, no ``spark-submit``, or the hook refuses the settings.
            SparkJobError: the master cannot be reached.
        """
        try:
            outcome = self._run(spec)
            status = None if self._hook is None else self._hook.exit_status
            was_killed = self._killed or status in _KILLED
            if self._archive is not None and status is not None and not was_killed:
                # A signal ends a JVM that reads damaged classes, or fails to write them. If there is no result, an
                # archive that the JVM has read may be why.
                has_crashed = not 0 <= status <= _OF_SIGNALS
                if has_crashed or (outcome.result is None and self._archive.is_mapped):
                    self._archive.distrust()
                elif outcome.result is not None and outcome.result.succeeded:
                    self._archive.keep()
        finally:
            if self._archive is not None:
                self._archive.discard()
        return outcome

    def _run(self, spec: JobSpec) -> JobOutcome:
        self._job_file = str(Path(spec.result_path).with_name("job.json"))
        application = Path(spec.result_path).with_name("application")
        try:
            output = self._submit(spec, application)
        except KafkaS3Error:
            raise
        except Exception as e:  # noqa: BLE001 - the job has failed, whatever the hook raises
            # The hook's error has the output from the first exception on; the reason may be in the lines before.
            printed = self._hook.output if self._hook is not None else ()
            output = "\n".join([str(e).partition("\n")[0], *printed]) if printed else str(e)
        except BaseException:
            # A timeout, or a task killed by Airflow 2.11, before or after on_kill, which needs the job file's path. The
            # file is deleted as soon as this returns.
            kill_job(self._job_file)
            raise
        application_id = application.read_text() if application.is_file() else None
        return JobOutcome(JobResult.read(spec.result_path), output, application_id)

    def _submit(self, spec: JobSpec, application: Path) -> str:
        """Run ``spark-submit``; returns why it was not called, or an empty text."""
        self._hook = self._make_hook(application, spec.offsets)
        if self._killed:
            return "the job was killed before it was submitted"
        try:
            with spec.offered(self._job_file):
                self._hook.submit(str(job_script()))
        except (FileNotFoundError, PermissionError) as e:
            if self._killed:
                raise
            raise ConfigurationError(
                f"spark-submit cannot be executed: {e}; correct spark_binary, or the spark-binary of the connection "
                f"{self._settings.conn_id!r} (spark_conn_id)"
            ) from e
        return ""

    def _make_hook(self, application: Path, offsets: int) -> _Hook:
        settings, target = self._settings, self._target
        conf, env, py_files = dict(settings.conf), dict(settings.env), settings.py_files
        spark_command.require_java(env)
        require_listening(target.master, settings.conn_id)
        command = settings.spark_binary
        if not command and not target.spark_binary:
            command = spark_command.find_spark_submit(local=target.is_local)
        if target.is_local:
            env |= spark_command.python_of_local_master(conf, env)
        else:
            conf |= spark_command.python_of_driver(conf, env)
            py_files = ",".join(filter(None, [py_files, str(package_zip(application.parent))]))
        packages = settings.packages or connector_packages(
            command or target.spark_binary or "spark-submit", spark_command.environment_of(env), settings
        )
        if packages != settings.packages:
            self._log.info("neither jars nor packages name Spark's Kafka connector: packages=%r is used", packages)
        binary = command or target.spark_binary or "spark-submit"
        if folder := airflow_conf.get("kafka_s3", "class_archives", fallback=""):
            class_path = settings.driver_class_path
            given_conf = conf | ({"spark.driver.extraClassPath": class_path} if class_path else {})
            self._archive = class_archive(folder, binary, env, given_conf)
            if self._archive is not None and self._archive.finished is not None:
                self._log.info("Java makes an archive of Spark's classes at the end of this job, once: %s", folder)
        serial = leaves_collector(binary, env, conf, settings.properties_file)
        env |= jvm_variables(env, offsets=offsets, archive=self._archive, serial=serial)
        arguments = {name: getattr(settings, name) for name in _NAMED} | {
            "conf": with_job_conf(conf) | {APPLICATION_FILE: str(application)},
            "packages": packages,
            "spark_binary": command,
            "py_files": py_files,
            "application_args": ["--job-file", self._job_file],
        }
        try:
            hook = _Hook(env, {**settings.more, **arguments})
        except ValueError as e:
            raise ConfigurationError(
                f"Airflow's Spark hook refuses its settings: {e} Correct the connection {settings.conn_id!r} "
                f"(spark_conn_id) or the parameters of the operator"
            ) from e
        if hook.master != target.master:
            self._log.info("master %s is replaced by %s, so that Spark tasks are retried", target.master, hook.master)
        return hook

    def kill(self) -> None:
        """End the driver at once. Committed batches stay; the next try completes decided ones."""
        self._killed = True
        if self._hook is not None:
            # First, since Airflow 3 ends the task itself after five seconds. The hook ends only the JVM: its Python
            # driver could read no more records, but would still decide batches.
            kill_job(self._job_file)
            self._hook.on_kill()


class _Hook(SparkSubmitHook):
    """Airflow's hook, for a driver on this machine.

    Args:
        env: environment variables of the driver.
        given: other keyword arguments of Airflow's hook.

    Attributes:
        output: last lines of the output of ``spark-submit``, masked as the hook masks its log.
    """

    def __init__(self, env: Mapping[str, str], given: Mapping[str, Any]) -> None:
        super().__init__(**given)
        self.output: collections.deque[str] = collections.deque(maxlen=_OUTPUT)
        # The hook has no public parameter for the master. A local master without a number of failures retries no Spark
        # task.
        master = self._connection["master"]
        if spark_command.local_master(master) != master:
            self._connection["master"] = spark_command.local_master(master)
        elif not master.startswith("local"):
            # This overrides a deploy mode in a properties file, spark-defaults.conf or DEPLOY_MODE.
            self._connection["deploy_mode"] = "client"
        # For drivers on YARN or Kubernetes the hook would put its own env_vars, with their secrets, into the command
        # line (for Kubernetes nowhere else). This driver is a process of this machine and gets them as its environment.
        self._env = dict(env) or None

    @property
    def master(self) -> str:
        """The master in the command line of ``spark-submit``."""
        return str(self._connection["master"])

    @property
    def exit_status(self) -> int | None:
        """Of ``spark-submit``, negative if a signal has ended it; None: it was not started, or runs."""
        return None if self._submit_sp is None else self._submit_sp.returncode

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        # The hook has no public attribute for its output either.
        super()._process_spark_submit_log(self._kept(itr))

    def _kept(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            self.output.append(self._mask_cmd([line.rstrip()]))
            if _IVY.match(line):
                self.log.debug(self.output[-1])
            else:
                yield _TIME.sub("", line)
