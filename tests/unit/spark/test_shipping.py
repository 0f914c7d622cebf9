"""The code that goes to executors, the script that spark-submit runs, and the settings it runs with."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.spark.conf import JOB_CONF, with_job_conf
from airflow_provider_kafka_s3.spark.connector import connector_package
from airflow_provider_kafka_s3.spark.package_zip import package_zip
from airflow_provider_kafka_s3.submit.job_script import job_script

ROOT = Path(__file__).resolve().parents[3]

# Runs as on an executor: the zip and the libraries are there, this checkout and Airflow are not.
SCRIPT = """
import pickle, sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]

class NotOnExecutors:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("airflow", "confluent_kafka", "pandas"):
            raise ImportError(f"{name} is not on executors")

sys.meta_path.insert(0, NotOnExecutors())
import airflow_provider_kafka_s3
assert airflow_provider_kafka_s3.__file__.startswith(sys.argv[1]), airflow_provider_kafka_s3.__file__
import pyarrow as pa
from airflow_provider_kafka_s3.batch.encode import write_slice
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.s3 import make_client
from airflow_provider_kafka_s3.storage.uploads import UploadPool

job = pickle.loads(sys.stdin.buffer.read())
(travelling,) = job._plans
plan = travelling.plan
assert plan.layout.partitioner.timezone == "Europe/Berlin"
make_client(job._s3, job._credentials)
columns = [pa.array([0, 1], pa.int64()), pa.array([0, 1], pa.int64()), pa.array([b"1", b"2"], pa.binary())]
batch = pa.RecordBatch.from_arrays(columns, names=["offset", "timestamp", "value"])
with UploadPool(DurableStore(MemoryStore(), Retrier()), part_size=5 << 20) as pool:
    for entry in write_slice(plan, plan.slices[0], [batch], pool.open).objects:
        print(entry.key, entry.records)
"""

PLAN = """
import pickle, sys
from airflow_provider_kafka_s3.config import Layout, JsonLines, Hourly
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS
from airflow_provider_kafka_s3.documents.plan import Plan, Slice, layout_digest
from airflow_provider_kafka_s3.retry import RetryPolicy
from airflow_provider_kafka_s3.config import Upload
from airflow_provider_kafka_s3.spark.task import SliceTask
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings
layout = Layout(format=JsonLines(), partitioner=Hourly(timezone="Europe/Berlin"))
plan = Plan(batch=1, type="data", topic="a", topic_id="id", generation=0, run="r", tail=True,
            isolation="read_committed", skipped=NO_OFFSETS, layout=layout,
            slices=(Slice(id=0, partition=0, start=0, end=2),),
            layout_sha256=layout_digest(layout))
credentials = S3Credentials(access_key_id="a", secret_access_key="b")
sys.stdout.buffer.write(pickle.dumps(SliceTask([plan], bucket="b", s3=S3Settings(region="us-east-1"),
    credentials=credentials, retry=RetryPolicy(), upload=Upload())))
"""


def test_the_zip_alone_writes_a_slice(tmp_path: Path) -> None:
    """A pickled task is understood where only the zip and the required libraries are."""
    packed = package_zip(tmp_path)
    pickled = subprocess.run([sys.executable, "-c", PLAN], cwd=ROOT, capture_output=True, check=True).stdout
    libraries = sysconfig.get_paths()["purelib"]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", SCRIPT, str(packed), libraries],
        input=pickled,
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.stderr.decode() == ""
    key = "topics/a/year=1970/month=01/day=01/hour=01/a+0+0000000000.json"
    assert done.stdout.decode() == f"{key} 2\n"


def test_the_zip_is_the_same_wherever_it_is_packed(tmp_path: Path) -> None:
    """Equal code is one name and the same bytes; an existing zip is left alone."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = package_zip(tmp_path / "a"), package_zip(tmp_path / "b")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    before = first.stat().st_mtime_ns
    assert package_zip(tmp_path / "a") == first
    assert first.stat().st_mtime_ns == before
    assert [p.name for p in (tmp_path / "a").iterdir()] == [first.name]
    assert re.fullmatch(r"airflow_provider_kafka_s3-[0-9a-f]{16}\.zip", first.name)


def test_the_zip_holds_nothing_of_airflow(tmp_path: Path) -> None:
    """Modules that need Airflow or start jobs are not in the zip."""
    names = zipfile.ZipFile(package_zip(tmp_path)).namelist()
    assert {"airflow_provider_kafka_s3/spark/task.py", "airflow_provider_kafka_s3/layout/joda_names.json.gz"} <= {
        *names
    }
    left_out = r"/(airflow|cli|operators|sensors|submit|testing|triggers)/|get_provider_info"
    assert not [n for n in names if re.search(left_out, n)]


def test_the_script_is_found_in_a_checkout_and_in_an_installed_package(tmp_path: Path) -> None:
    """In the package first; in neither place it is an error that names both."""
    assert job_script() == ROOT / "spark_jobs" / "kafka_to_s3.py"
    package = tmp_path / "airflow_provider_kafka_s3"
    with pytest.raises(ConfigurationError, match=r"kafka_to_s3\.py.*Install"):
        job_script(package)
    (package / "spark_jobs").mkdir(parents=True)
    installed = package / "spark_jobs" / "kafka_to_s3.py"
    installed.touch()
    assert job_script(package) == installed


def test_users_settings_have_precedence_and_redaction_is_only_extended() -> None:
    """A user's pattern is added to ours."""
    assert with_job_conf({}) == dict(JOB_CONF)
    conf = with_job_conf({"spark.sql.adaptive.enabled": "true", "spark.redaction.regex": "mine"})
    assert conf["spark.sql.adaptive.enabled"] == "true"
    assert with_job_conf(conf)["spark.redaction.regex"] == conf["spark.redaction.regex"]
    for shown in ("mine", "kafka.sasl.jaas.config", "spark.hadoop.fs.s3a.secret.key", "password", "kafka.ssl.key.pem"):
        assert re.search(conf["spark.redaction.regex"], shown), shown
    assert not re.search(conf["spark.redaction.regex"], "spark.master")


def test_the_connector_fits_the_installed_spark() -> None:
    """Its version is that of pyspark."""
    assert re.fullmatch(r"org\.apache\.spark:spark-sql-kafka-0-10_2\.13:4\.\d+\.\d+", connector_package())
