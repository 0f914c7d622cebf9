"""The warm process of a worker, with a driver that writes what it has and ends as its job says."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from airflow_provider_kafka_s3.spark import warm_messages
from airflow_provider_kafka_s3.spark.spec import JobSpec, PlanRef
from airflow_provider_kafka_s3.spark.started_process import StartedProcess
from airflow_provider_kafka_s3.spark.warm_place import WarmPlace
from airflow_provider_kafka_s3.submit import connect_job, forked_driver, warm_drivers, warm_identity
from airflow_provider_kafka_s3.submit.airflow_worker import runs_airflow
from airflow_provider_kafka_s3.submit.connect_job import ConnectJob
from airflow_provider_kafka_s3.submit.job import JobOutcome
from airflow_provider_kafka_s3.submit.spark_command import environment_of
from airflow_provider_kafka_s3.submit.warm_drivers import WarmDrivers
from airflow_provider_kafka_s3.submit.warm_identity import identity, variables_of_imports
from dev.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[3]
DRIVER: Final = "stub_of_a_driver"
KILLED: Final = 3
SECRET: Final = "canary-of-the-environment"
STUB: Final = """
import json, os, signal, sys, threading
from pathlib import Path

def import_modules():
    if "PYTHON_STUB_THREAD" in os.environ:
        threading.Thread(target=signal.pause, daemon=True).start()

def main(argv):
    job_file = Path(argv[1])
    with open(os.open(job_file, os.O_RDONLY | os.O_NONBLOCK)) as file:
        # Who offers it may be about to write.
        os.set_blocking(file.fileno(), True)
        job = json.load(file)
    job_file.unlink()
    umask = os.umask(0)
    fds = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    report = {
        "process": [os.getpid(), os.getppid(), os.getsid(0) == os.getpid()],
        "arguments": [argv, sys.argv[1:]],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "umask": umask,
        "descriptors": {Path(fd).name: os.readlink(fd) for fd in fds if os.path.exists(fd)},
        "signals": [str(signal.getsignal(n)) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)],
    }
    unfinished = job_file.with_name("unfinished")
    unfinished.write_text(json.dumps(report))
    unfinished.rename(job_file.with_name("report.json"))
    print("the driver", job["run"])
    if job["run"] == "hang":
        signal.pause()
    if job["run"] == "wait" and not sys.stdin.read():
        return 3
    if job["run"] == "until told":
        os.open(job_file.with_name("told"), os.O_RDONLY)
    if job["run"] in ("land", "until told"):
        decided = {"topic": "orders", "status": "decided", "kind": None, "message": None}
        Path(job["result_path"]).write_text(json.dumps({"topics": [decided]}))
        return 0
    raise SystemExit(f"no driver can {job['run']}")

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""
TASK: Final = """
import logging, sys
from pathlib import Path
from airflow_provider_kafka_s3.spark.spec import JobSpec
from airflow_provider_kafka_s3.submit.connect_job import ConnectJob
from dev.waiting import wait_until
driver, folder, *job_files = sys.argv[1:]
for job_file in job_files:
    ConnectJob({}, logging.getLogger(), warm_seconds=60, driver=driver).run(JobSpec.read(job_file))
    wait_until(lambda: [*Path(folder).glob("*.sock")], "the warm process to listen")
"""
"""A task that runs jobs. It is its own worker, since its script is named like Airflow's."""


class Bench:
    """Runs jobs of one worker, this process."""

    def __init__(self, folder: Path, log: pytest.LogCaptureFixture) -> None:
        self.folder = folder
        self.warm_folder = folder / f"kafka-s3-drivers-{os.geteuid()}"
        self.seconds: float = 60
        self._log = log
        self._jobs = 0

    def spec(self, run: str = "land") -> JobSpec:
        """The next job, in a folder of its own."""
        self._jobs += 1
        folder = self.folder / str(self._jobs)
        folder.mkdir()
        ref = PlanRef(topics_dir="topics", pipeline="lake", topic="orders", batch=1)
        return JobSpec(run=run, plans=(ref,), kafka={}, bucket="lake", result_path=str(folder / "result.json"))

    def job(self, **environment: str) -> ConnectJob:
        """A job with more variables."""
        return ConnectJob(environment, logging.getLogger("tests"), warm_seconds=self.seconds, driver=DRIVER)

    def land(self, **environment: str) -> dict[str, Any]:
        """Run a job that succeeds; returns what its driver had."""
        spec = self.spec()
        outcome = self.job(**environment).run(spec)
        assert outcome.result is not None, outcome.output
        return self.report(spec)

    def report(self, spec: JobSpec) -> dict[str, Any]:
        """What the driver of a job has, once it begins."""
        path = Path(spec.result_path).with_name("report.json")
        wait_until(path.exists, "the driver to begin")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def warm(self, **environment: str) -> psutil.Process:
        """The warm process that an earlier job has started, or else that of a job that lands now."""
        if not self.processes():
            self.land(**environment)
        self.wait_for(1)
        return wait_until(self._only, "one process to be left")[0]

    def _only(self) -> list[psutil.Process]:
        found = self.processes()
        return found if len(found) == 1 else []

    def wait_for(self, count: int) -> None:
        """Wait until a number of warm processes listen."""
        wait_until(lambda: len([*filter(listens, self.warm_folder.glob("*.sock"))]) == count, "them to listen")

    def processes(self) -> list[psutil.Process]:
        """The warm processes of this bench, without their children, which have the same command line."""
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                arguments = process.cmdline()
                if str(self.warm_folder) in arguments and arguments[0] == sys.executable:
                    found[process.pid] = (process, process.ppid())
        return [process for process, parent in found.values() if parent not in found]

    def forks(self) -> int:
        """Number of drivers so far that the warm process has forked."""
        return self._log.text.count("fork of this worker's warm process")

    def drivers(self) -> WarmDrivers:
        """As a job has them."""
        found = warm_drivers.warm_drivers(environment_of({}), self.seconds, logging.getLogger(), driver=DRIVER)
        assert found is not None
        return found


def listens(path: Path) -> bool:
    """Whether a process listens on a socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Bench]:
    """A bench whose processes end with the test."""
    caplog.set_level(logging.INFO)
    # The folders of pytest are too deep for a socket.
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    (folder / f"{DRIVER}.py").write_text(STUB)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{ROOT}")
    monkeypatch.setattr(warm_drivers, "airflow_worker", lambda: StartedProcess.of(os.getpid()))
    bench = Bench(folder, caplog)
    yield bench

    def none_is_left() -> bool:
        for process in (left := bench.processes()):  # one may just have been started
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        return not left

    wait_until(none_is_left, "the warm processes to end", timeout=60)
    shutil.rmtree(folder)


@contextlib.contextmanager
def running(job: ConnectJob, spec: JobSpec) -> Iterator[Future[JobOutcome]]:
    """A job that runs in the block."""
    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit(job.run, spec)
        finally:
            job.kill()


@pytest.mark.parametrize(
    "of_interrupts", [signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background"]
)
def test_a_forked_driver_has_exactly_what_its_task_gives_it(
    of_interrupts: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environment, folder, mask, arguments, signals and descriptors are those of a driver that the task starts."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    mask = os.umask(0o027)
    handler = signal.signal(signal.SIGINT, of_interrupts)
    try:
        started = bench.land(JOB="1")
        warm = bench.warm()
        assert bench.forks() == 0
        forked = bench.land(JOB="2", NOT_UTF_8="\udcff")
    finally:
        signal.signal(signal.SIGINT, handler)
        os.umask(mask)
    assert bench.forks() == 1
    assert forked["process"][1:] == [warm.pid, True]
    assert forked["environment"] == environment_of({"JOB": "2", "NOT_UTF_8": "\udcff"})
    assert forked["umask"] == 0o027
    assert forked["arguments"][0] == forked["arguments"][1]
    for same in ("folder", "signals"):
        assert forked[same] == started[same]
    assert {fd for fd, path in forked["descriptors"].items() if path.startswith("pipe:")} == {"0", "1", "2"}
    others = [path for fd, path in forked["descriptors"].items() if int(fd) > 2 and not path.startswith("/proc")]
    assert others == [path for fd, path in started["descriptors"].items() if int(fd) > 2 and path in others]


def test_nothing_of_a_job_is_left_in_the_warm_process(bench: Bench) -> None:
    """Neither in its environment nor in that of the next driver, and no process or thread."""
    warm = bench.warm()
    bench.land(AIRFLOW_CONN_AWS_DEFAULT=SECRET)
    report = bench.land()
    assert SECRET not in str(report["environment"])
    assert bench.forks() == 2
    assert set(warm.environ()) - {"OPENBLAS_NUM_THREADS", "JE_ARROW_MALLOC_CONF", "PWD", "LC_CTYPE", "_"} <= set(
        variables_of_imports(os.environ)
    )
    assert warm.num_threads() == 1
    wait_until(lambda: warm.children() == [], "the ended drivers to be waited for")


def test_no_secret_of_a_job_is_in_the_memory_of_the_warm_process(bench: Bench) -> None:
    """The child alone reads it."""
    warm = bench.warm()
    bench.land(AIRFLOW_CONN_AWS_DEFAULT=SECRET)
    assert bench.forks() == 1
    try:
        written = memory(warm.pid)
    except PermissionError:
        pytest.skip("this system lets no process read another one's memory")
    assert DRIVER.encode() in written
    assert SECRET.encode() not in written


def memory(pid: int) -> bytes:
    """What a process has written in its memory."""
    found = []
    with Path("/proc", str(pid), "mem").open("rb", buffering=0) as file:
        for line in Path("/proc", str(pid), "maps").read_text().splitlines():
            bounds, rights, *_ = line.split()
            if rights.startswith("rw") and "[v" not in line:
                start, end = (int(bound, 16) for bound in bounds.split("-"))
                with contextlib.suppress(OSError):
                    file.seek(start)
                    found.append(file.read(end - start))
    return b"".join(found)


def test_drivers_at_the_same_time_have_no_descriptor_of_one_another(bench: Bench) -> None:
    """The end of one task ends its own driver only, although another began later."""
    bench.warm()
    first, second = bench.spec("wait"), bench.spec("wait")
    job, other = bench.job(), bench.job()
    with running(job, first) as one:
        bench.report(first)
        with running(other, second) as two:
            descriptors = bench.report(second)["descriptors"]
            assert len([path for path in descriptors.values() if path.startswith(("pipe:", "socket:"))]) == 3
            job.kill()
            assert f"exit code is {KILLED}" in one.result(60).output
            assert not two.done()
            other.kill()
            assert "the driver wait" in two.result(60).output
    assert bench.forks() == 2


@pytest.mark.parametrize(("run", "code"), [("wait", KILLED), ("hang", -signal.SIGKILL), ("fail", 1)])
def test_a_forked_driver_ends_as_one_of_its_own(
    run: str, code: int, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself when the task is killed, by force if it does not, or with its exit code; its output is kept."""
    if run == "hang":
        monkeypatch.setattr(connect_job, "_END", 0.5)
    bench.warm()
    spec, job = bench.spec(run), bench.job()
    with running(job, spec) as outcome:
        bench.report(spec)
        if run != "fail":
            job.kill()
        found = outcome.result(60)
    assert found.result is None
    assert found.output.startswith(f"Its exit code is {code}.\nthe driver {run}")
    assert bench.forks() == 1


def test_a_job_that_is_killed_before_it_begins_ends_at_once(bench: Bench) -> None:
    """A signal may come at any moment."""
    bench.warm()
    job = bench.job()
    job.kill()
    assert f"exit code is {KILLED}" in job.run(bench.spec("wait")).output
    assert bench.forks() == 1


@pytest.mark.parametrize("run", ["until told", "wait"])
def test_a_job_goes_on_when_the_warm_process_is_killed(run: str, bench: Bench) -> None:
    """Its result counts; without one, the exit code is said to be unknown."""
    warm = bench.warm()
    spec, job = bench.spec(run), bench.job()
    told = Path(spec.result_path).with_name("told")
    os.mkfifo(told)
    with running(job, spec) as outcome:
        bench.report(spec)
        warm.kill()
        warm.wait(60)
        if run == "wait":
            job.kill()
        else:
            told.write_bytes(b"")
        found = outcome.result(60)
    assert bench.forks() == 1
    if run == "wait":
        assert found.output.startswith("Its exit code is unknown.\nthe driver wait")
    else:
        assert found.result is not None
        assert found.output == ""
    # The files that it left are not in the way of the next one.
    bench.land()
    assert bench.warm().pid != warm.pid
    bench.land()
    assert bench.forks() == 2


def test_the_warm_process_ends_with_its_worker(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and it leaves no file; a driver that runs is left to its task."""
    with subprocess.Popen(["sleep", "600"]) as worker:
        started = StartedProcess.of(worker.pid)
        monkeypatch.setattr(warm_drivers, "airflow_worker", lambda: started)
        warm = bench.warm()
        spec, job = bench.spec("wait"), bench.job()
        with running(job, spec) as outcome:
            bench.report(spec)
            worker.kill()
            wait_until(lambda: not warm.is_running(), "the warm process to end", timeout=60)
            assert not outcome.done()
            job.kill()
            assert "exit code is unknown" in outcome.result(60).output
    assert list(bench.warm_folder.iterdir()) == []
    # A worker that is gone gets none.
    bench.land()
    wait_until(lambda: bench.processes() == [], "a warm process without a worker to end")
    assert list(bench.warm_folder.iterdir()) == []


def test_a_driver_ends_when_task_and_worker_are_killed(bench: Bench) -> None:
    """Kill -9 of the task, which is its own worker: neither the driver nor the warm process is left."""
    script = bench.folder / "airflow"
    script.write_text(TASK)
    specs = [bench.spec("land"), bench.spec("wait")]
    files = [Path(spec.result_path).with_name("spec.json") for spec in specs]
    command = [sys.executable, str(script), DRIVER, str(bench.warm_folder), *map(str, files)]
    with contextlib.ExitStack() as running:
        for spec, file in zip(specs, files, strict=True):
            running.enter_context(spec.offered(file))
        task = running.enter_context(subprocess.Popen(command, env={**os.environ, "TMPDIR": str(bench.folder)}))
        pid, parent, _ = bench.report(specs[1])["process"]
        driver = psutil.Process(pid)
        task.kill()
    wait_until(lambda: not driver.is_running(), "the driver to end", timeout=60)
    wait_until(lambda: bench.processes() == [], "the warm process to end", timeout=60)
    assert parent != task.pid
    assert list(bench.warm_folder.iterdir()) == []


def test_an_idle_warm_process_ends(bench: Bench) -> None:
    """When no job came for the configured time; it leaves no file, and the next job starts a driver of its own."""
    bench.seconds = 1.0
    bench.land()
    wait_until(bench.processes, "the warm process to start")
    wait_until(lambda: not bench.processes(), "the warm process to end")
    assert list(bench.warm_folder.iterdir()) == []
    bench.land()
    assert bench.forks() == 0


def test_several_starts_at_once_leave_one_process(bench: Bench) -> None:
    """Also beside one that listens already."""
    drivers = bench.drivers()
    for _ in range(3):
        drivers.start(logging.getLogger())
    bench.wait_for(1)
    drivers.start(logging.getLogger())
    bench.land()
    assert bench.forks() == 1
    wait_until(lambda: len(bench.processes()) == 1, "one process to be left", timeout=60)
    bench.land()
    assert bench.forks() == 2


def test_a_job_with_another_environment_gets_another_process(bench: Bench) -> None:
    """If the variables count when modules are imported."""
    bench.warm()
    bench.land(AWS_REGION="eu-central-1")
    assert bench.forks() == 1
    bench.land(PYTHONUTF8="1")
    assert bench.forks() == 1
    bench.wait_for(2)
    bench.land(PYTHONUTF8="1")
    assert bench.forks() == 2


def test_the_identity_of_a_warm_process_is_all_that_it_cannot_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one for another worker, time, driver, folder or Python, after an upgrade in place, and for variables."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "module.py").write_text("1")
    monkeypatch.setattr(warm_identity, "_PACKAGE", package)
    worker, environment = StartedProcess(1, 2), {"LANG": "C", "AWS_PROFILE": "a", "SPARK_REMOTE": "sc://h/;token=t"}

    def digest(worker: StartedProcess = worker, seconds: float = 9, driver: str = DRIVER, **variables: str) -> str:
        return identity({**environment, **variables}, worker, seconds=seconds, driver=driver)

    first = digest()
    assert digest(AWS_PROFILE="b", AIRFLOW_HOME="x", SPARK_REMOTE="y") == first
    found = [
        first,
        digest(StartedProcess(1, 3)),
        digest(StartedProcess(2, 2)),
        digest(seconds=8),
        digest(driver="another"),
        *(digest(**{name: "x"}) for name in ("LANG", "PYTHONPATH", "LD_PRELOAD", "GRPC_TRACE", "TZ", "SPARK_HOME")),
    ]
    (package / "module.py").write_text("22")
    found.append(digest())
    os.utime(package / "module.py", ns=(1, 1))
    found.append(digest())
    monkeypatch.chdir(tmp_path)
    found.append(digest())
    monkeypatch.setattr(sys, "executable", "/another/python")
    found.append(digest())
    assert len(set(found)) == len(found)


def silent(_connection: socket.socket, _pidfd: int) -> None:
    """Answer nothing."""


def closes(connection: socket.socket, _pidfd: int) -> None:
    """Answer nothing, and end."""
    connection.close()


def other_protocol(connection: socket.socket, pidfd: int) -> None:
    """Answer as another version would."""
    warm_messages.send(connection, {warm_messages.PROTOCOL_KEY: 99}, [pidfd])


def no_message(connection: socket.socket, _pidfd: int) -> None:
    """Answer as another program would."""
    connection.sendall(b"SSH-2.0-OpenSSH")


def without_descriptor(connection: socket.socket, _pidfd: int) -> None:
    """Answer, but name no process."""
    warm_messages.send(connection, {warm_messages.PROTOCOL_KEY: warm_messages.PROTOCOL})


def never_begins(connection: socket.socket, pidfd: int) -> None:
    """Answer, but begin no job."""
    warm_messages.send(connection, {warm_messages.PROTOCOL_KEY: warm_messages.PROTOCOL}, [pidfd])


@pytest.mark.parametrize(
    "answer", [silent, closes, other_protocol, no_message, without_descriptor, never_begins], ids=lambda f: f.__name__
)
def test_a_job_starts_its_own_driver_where_a_process_answers_oddly(
    answer: Callable[[socket.socket, int], None], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It succeeds, and the process that it was given for a driver is ended."""
    if answer in (silent, without_descriptor):
        monkeypatch.setattr(forked_driver, "_MOMENT", 0.3)
    place = bench.drivers().place
    with socket.socket(socket.AF_UNIX) as listener, subprocess.Popen(["sleep", "600"]) as given:
        try:
            listener.bind(str(place.socket))
            listener.listen()
            with ThreadPoolExecutor(1) as pool, os.fdopen(os.pidfd_open(given.pid)) as pidfd:
                landed = pool.submit(bench.land)
                connection, _ = listener.accept()
                with connection, contextlib.suppress(ConnectionError):
                    answer(connection, pidfd.fileno())
                    landed.result(60)
            assert bench.forks() == 0
            if answer in (other_protocol, never_begins):
                assert given.wait(60) == -signal.SIGKILL
        finally:
            given.kill()


def test_a_job_starts_its_own_driver_where_a_socket_is_another_users(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither side talks to a process of another user."""
    bench.warm()
    monkeypatch.setattr(forked_driver, "is_of_this_user", lambda _: False)
    bench.land()
    assert bench.forks() == 0


def test_the_user_at_the_other_end_of_a_socket_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel, at both ends."""
    ends = socket.socketpair(socket.AF_UNIX)
    with ends[0], ends[1]:
        assert [*map(warm_messages.is_of_this_user, ends)] == [True, True]
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
        assert [*map(warm_messages.is_of_this_user, ends)] == [False, False]


@pytest.mark.parametrize("flaw", ["writable", "a file", "another user", "too deep", "no worker"])
def test_there_is_no_warm_process_where_it_would_not_be_safe(
    flaw: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job starts a driver of its own, and no other process."""
    if flaw == "a file":
        bench.warm_folder.touch()
    elif flaw == "writable":
        bench.warm_folder.mkdir()
        bench.warm_folder.chmod(0o777)
    elif flaw == "another user":
        bench.warm_folder.mkdir()
        os.chown(bench.warm_folder, 4242, -1) if os.geteuid() == 0 else pytest.skip("only root can give a folder away")
    elif flaw == "too deep":
        monkeypatch.setattr(tempfile, "tempdir", str(bench.folder / ("x" * 100)))
    else:
        monkeypatch.setattr(warm_drivers, "airflow_worker", lambda: None)
    bench.land()
    bench.land()
    assert bench.forks() == 0
    assert bench.processes() == []


def test_modules_that_start_threads_make_no_warm_process(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """The reason is logged, and no job of the next hour starts another one."""
    bench.land(PYTHON_STUB_THREAD="1")
    wait_until(lambda: list(bench.warm_folder.glob("*.refused")), "the warm process to refuse")
    wait_until(lambda: not bench.processes(), "the warm process to end")
    bench.land(PYTHON_STUB_THREAD="1")
    assert bench.processes() == []
    assert (
        "no warm process for later jobs: RuntimeError: the modules of the driver have started 1 thread" in caplog.text
    )


def test_what_killed_processes_have_left_is_removed(tmp_path: Path) -> None:
    """Locks that nobody holds, their sockets, and old reasons; nothing of those that run."""
    mine, killed, runs = (WarmPlace(tmp_path, name) for name in ("mine", "killed", "runs"))
    for place in (killed, runs):
        place.socket.touch()
    (tmp_path / "killed.lock").touch()
    mine.refuse("recent")
    killed.refuse("old")
    os.utime(tmp_path / "killed.refused", (1, 1))
    with runs.held() as alone:
        assert alone
        mine.clean()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.refused", "runs.lock", "runs.sock"]
        with runs.held() as twice:
            assert not twice
    assert [path.name for path in tmp_path.iterdir()] == ["mine.refused"]
    assert mine.refusal() == "recent"


@pytest.mark.parametrize(
    ("arguments", "runs"),
    [
        (["/usr/bin/python3", "/home/airflow/.local/bin/airflow", "celery", "worker"], True),
        (["/usr/bin/python3.11", "-X", "dev", "-u", "/usr/bin/airflow", "standalone"], True),
        (["python", "-m", "airflow", "scheduler"], True),
        (["python", "-m", "airflow.sdk.execution_time.execute_workload", "--json-path", "x"], True),
        (["airflow worker -- LocalExecutor: <idle>", "", ""], True),
        (["airflow", "scheduler"], True),
        (["[celeryd: celery@host:MainProcess] -active- (celery worker)"], True),
        (["/opt/airflow tools/bin/airflow", "dags", "test"], True),
        (["/usr/bin/python", "/usr/bin/celery", "-A", "airflow", "worker"], True),
        (["/usr/bin/python", "-m", "pytest", "tests/airflow"], False),
        (["/usr/bin/python", "tests/airflow/airflow_worker.py"], False),
        (["vim", "airflow"], False),
        (["bash", "-c", "airflow dags test"], False),
        ([], False),
    ],
)
def test_processes_of_airflow_are_known_by_their_command_lines(arguments: list[str], runs: bool) -> None:
    """Of the package's own command, as a module, or by the title that a process has given itself."""
    assert runs_airflow(arguments) is runs
