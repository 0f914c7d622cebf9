"""Executing plans by Spark: what SparkSubmitOperator is told, what its driver answers, and how it is stopped."""

from __future__ import annotations

import collections
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator  # noqa: TID253 - it is the base class
from airflow.providers.common.compat.sdk import AirflowException  # noqa: TID253 - light, and loaded

from airflow_provider_kafka_s3.airflow import connections, links
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error
from airflow_provider_kafka_s3.submit import spark_command
from airflow_provider_kafka_s3.submit.jars import require_jars
from airflow_provider_kafka_s3.submit.processes import kill_job
from airflow_provider_kafka_s3.submit.topic_errors import topic_errors

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_kafka_s3.airflow.run_context import RunContext
    from airflow_provider_kafka_s3.documents.plan import Plan
    from airflow_provider_kafka_s3.submit.connect_process import RemoteJob
    from airflow_provider_kafka_s3.submit.target import SparkTarget

__all__ = ["PlanSubmitter"]

_OURS: Final = ("application", "application_args", "java_class", "conn_id")
"""Parameters of SparkSubmitOperator that this operator decides itself."""

_CHANGED_TO_SUBMIT: Final = ("application", "application_args", "conf", "env_vars", "py_files", "_spark_binary")
"""Attributes of SparkSubmitOperator that tell it what to submit; afterwards they are the user's again."""

_OUTPUT: Final = 500
"""Lines of the output of ``spark-submit`` that are kept."""

_JOB: Final = "job.json"
_RESULT: Final = "result.json"
_APPLICATION: Final = "application"


class PlanSubmitter(SparkSubmitOperator):
    """A ``SparkSubmitOperator`` that executes plans, job by job, and takes its drivers along when it is killed."""

    def __init__(self, *, spark_conn_id: str, aws_conn_id: str | None, **kwargs: Any) -> None:
        for parameter in _OURS:
            if parameter in kwargs:
                hint = "use spark_conn_id" if parameter == "conn_id" else "remove it"
                raise ConfigurationError(f"{parameter} is decided by {type(self).__name__}; {hint}")
        super().__init__(application="", application_args=None, conn_id=spark_conn_id, **kwargs)
        # After a crash the bucket tells what to go on with. Airflow's own memory of a Spark job would skip the commit.
        self.durable = False
        self.spark_conn_id = spark_conn_id
        self.aws_conn_id = aws_conn_id
        # Where the buttons of this try lead to, see links.push.
        self.link_urls: dict[str, str] = {}
        self._killed = False
        self._remote: RemoteJob | None = None
        self._output: collections.deque[str] = collections.deque(maxlen=_OUTPUT)

    def require_jars(self, target: SparkTarget) -> None:
        """Check the jars that the operator names, before anything is planned.

        Raises:
            ConfigurationError: one is not there, or one of the Kafka connector is missing.
        """
        conf = self.conf or {}
        jars = self.jars or conf.get("spark.jars")
        # The jars of a Spark Connect server are its own.
        if jars and target.connect_url is None:
            elsewhere = (conf.get("spark.jars.packages"), conf.get("spark.driver.extraClassPath"))
            require_jars(
                str(jars),
                more=any((self.packages, self.driver_class_path, self.properties_file, *elsewhere)),
                command=self._spark_binary or target.spark_binary,
                local=target.is_local,
                env=self.env_vars or {},
            )

    def submit_plans(
        self, context: Context, target: SparkTarget, work: RunContext, plans: Mapping[str, Plan]
    ) -> Mapping[str, Exception]:
        """Execute plans in one Spark job.

        Args:
            context: of the task.
            target: where Spark runs.
            work: of the task; its credentials are new ones afterwards.
            plans: per topic.

        Returns:
            What went wrong, per topic.

        Raises:
            AirflowException: the task was killed.
        """
        if self._killed:
            raise AirflowException("the task was killed; no Spark job was submitted")
        from airflow_provider_kafka_s3.spark.spec import JobResult

        self.log.info("submitting %s", ", ".join(f"batch {p.batch} of topic {t}" for t, p in sorted(plans.items())))
        last_words = ""
        mine = {name: getattr(self, name) for name in _CHANGED_TO_SUBMIT}
        with tempfile.TemporaryDirectory(prefix="kafka-s3-") as folder:
            try:
                if target.connect_url is not None:
                    last_words = self._execute_remotely(target.connect_url, work, plans, str(Path(folder, _RESULT)))
                else:
                    self._get_ready(Path(folder), target, work, plans)
                    self._submit(context)
            except KafkaS3Error as e:
                return dict.fromkeys(plans, e)
            except Exception as e:
                if self._killed:
                    raise
                # Airflow keeps the lines from the first exception on, and the reason may stand above it.
                last_words = "\n".join([str(e).partition("\n")[0], *self._output]) if self._output else str(e)
            except BaseException:
                # A timeout, or the end of a killed task on Airflow 2.11, which comes by here before or after on_kill:
                # what that would look for is forgotten in a moment.
                kill_job(str(Path(folder, _JOB)))
                raise
            finally:
                for name, value in mine.items():
                    setattr(self, name, value)
            told = topic_errors(JobResult.read(Path(folder, _RESULT)), last_words, plans)
            links.push(self, context, spark_url=links.spark_url(target.history_url, Path(folder, _APPLICATION)))
        try:
            work.renew(connections.s3_access(self.aws_conn_id))
        except KafkaS3Error as e:
            # What they are needed for will say so, topic by topic, if the old ones do not do any more.
            self.log.warning("going on with the credentials from before the job: %s", e)
        return told

    def _execute_remotely(self, url: str, work: RunContext, plans: Mapping[str, Plan], result_path: str) -> str:
        """Execute plans on a Spark Connect server; the last words of the driver."""
        from airflow_provider_kafka_s3.spark.spec import ConnectServer
        from airflow_provider_kafka_s3.submit.connect_process import RemoteJob, settings_of_server

        if ignored := settings_of_server(self):
            self.log.warning("the Spark Connect server was started without: %s", ", ".join(ignored))
        conf = {name: str(value) for name, value in (self.conf or {}).items()}
        spec = work.job(plans, result_path=result_path, connect=ConnectServer(url=url, conf=conf))
        self._remote = RemoteJob(self.log)
        _, last_words = self._remote.run(spec, self.env_vars or {})
        if self._killed:
            raise AirflowException("the task was killed")
        return last_words

    def _get_ready(self, folder: Path, target: SparkTarget, work: RunContext, plans: Mapping[str, Plan]) -> None:
        """Write the job file into a private folder, and set what SparkSubmitOperator will read."""
        from airflow_provider_kafka_s3.spark.conf import APPLICATION_FILE, with_job_conf
        from airflow_provider_kafka_s3.spark.package_zip import package_zip
        from airflow_provider_kafka_s3.submit.job_script import job_script
        from airflow_provider_kafka_s3.submit.masters import require_listening

        env = dict(self.env_vars or {})
        spark_command.require_java(env)
        require_listening(target.master, self.spark_conn_id)
        if not self._spark_binary and not target.spark_binary:
            self._spark_binary = spark_command.find_spark_submit(local=target.is_local)
        conf = {name: str(value) for name, value in (self.conf or {}).items()}
        if target.is_local:
            env |= spark_command.python_of_local_master(conf, env)
        else:
            conf |= spark_command.python_of_driver(conf, env)
            self.py_files = ",".join(filter(None, [self.py_files, str(package_zip(folder))]))
        self.env_vars = env or None
        self.conf = with_job_conf(conf)
        self.conf[APPLICATION_FILE] = str(folder / _APPLICATION)
        job_file = folder / _JOB
        work.job(plans, result_path=str(folder / _RESULT)).write(job_file)
        self.application = str(job_script())
        self.application_args = ["--job-file", str(job_file)]
        # A new hook for every job; the base class makes it when its conf is complete.
        self._hook = None

    def _submit(self, context: Context) -> None:
        try:
            super().execute(context)
        except (FileNotFoundError, PermissionError) as e:
            if self._killed:
                raise
            raise ConfigurationError(
                f"spark-submit cannot be executed: {e}; correct spark_binary, or the spark-binary of the connection "
                f"{self.spark_conn_id!r} (spark_conn_id)"
            ) from e

    def _get_hook(self) -> SparkSubmitHook:
        try:
            hook = super()._get_hook()
        except ValueError as e:
            raise ConfigurationError(
                f"Airflow's Spark hook refuses its settings: {e} Correct the connection {self.spark_conn_id!r} "
                f"(spark_conn_id) or the parameters of the operator"
            ) from e
        # There is no public way to give the hook a master. Without it all works, but no task is tried again.
        master = hook._connection["master"]
        if spark_command.local_master(master) != master:
            hook._connection["master"] = spark_command.local_master(master)
            self.log.info("master %s becomes %s, so that tasks are tried again", master, hook._connection["master"])
        elif not master.startswith("local"):
            # It wins over what a file of properties, spark-defaults.conf or DEPLOY_MODE may say.
            hook._connection["deploy_mode"] = "client"
        # For YARN and Kubernetes the hook would put the variables, and what is secret in them, into the command line
        # as well, for drivers on the cluster; for Kubernetes there alone. This driver is a process of this machine.
        hook._env, hook._env_vars = hook._env_vars, None
        self._output.clear()
        process = hook._process_spark_submit_log
        # There is no public way to the whole output either.
        setattr(hook, "_process_spark_submit_log", lambda lines: process(self._remembered(hook, lines)))  # noqa: B010
        return hook

    def _remembered(self, hook: SparkSubmitHook, lines: Iterator[str]) -> Iterator[str]:
        """Lines of the output, as they come; what the hook masks in its log is masked in what is kept, too."""
        for line in lines:
            self._output.append(hook._mask_cmd([line.rstrip()]))
            yield line

    def on_kill(self) -> None:
        """Stop the driver. What is committed stays; what is decided, the next try completes."""
        self._killed = True
        if self._remote is not None:
            self._remote.kill()
        if self._hook is not None:
            # At once, before anything that may take its time: Airflow 3 ends the task itself after five seconds. The
            # base class would end the JVM alone; its Python driver could read nothing more, but would go on deciding.
            if self.application_args:
                kill_job(self.application_args[-1])
            super().on_kill()
