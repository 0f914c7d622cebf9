"""`make release-check`: a failed check says what to do, and what was not checked is no success."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from dev import release_check
from dev.licenses import ACCEPTED, license_problems, of_component
from dev.release_check import LOCKS, Release, Result, check_version, check_vulnerabilities, main, run

PINNED: Final = ["alpha==1.0", "beta==2.0"]
MIT_ALL: Final = {name: ["MIT"] for name in ACCEPTED}
"""The packages with exceptions, which have to be there."""


class Prepared(Release):
    """A commit in a folder; its tools print what they are given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: list[str] = []
        self.asked: list[list[str]] = []

    source: Any = property(lambda self: self.folder)
    version: Any = "1.2.3"

    def tool(self, requirement: str, *command: str) -> subprocess.CompletedProcess[str]:
        self.asked.append(Path(command[-1]).read_text().split())
        return subprocess.CompletedProcess(command, 0, self.answers.pop(0), "no route to the registry")


@pytest.fixture
def release(tmp_path: Path) -> Prepared:
    """A commit with locks, a changelog and a README."""
    (tmp_path / "requirements").mkdir()
    for lock in LOCKS:
        (tmp_path / "requirements" / f"{lock}.lock").write_text("\n".join(PINNED))
    (tmp_path / "README.md").write_text("pip install dist/airflow_provider_kafka_s3-1.2.3-py3-none-any.whl")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 1.2.3 - 2026-11-29\n\n- Something.\n")
    return Prepared(tmp_path)


def audited(*packages: dict[str, Any]) -> str:
    """Output of pip-audit."""
    return json.dumps({"dependencies": packages, "fixes": []})


def test_a_prepared_version_passes(release: Prepared) -> None:
    """The section has the date, and nothing is left under Unreleased."""
    assert check_version(release).problems == []


@pytest.mark.parametrize(
    ("changelog", "remedy"),
    [
        ("## Unreleased\n\n- New.\n\n## 1.2.3 - 2026-11-29\n\n- Old.\n", "move them to 1.2.3, or raise the version"),
        ("## Unreleased\n\n- New.\n\n## 1.2.2 - 2026-11-01\n", "rename *Unreleased* to `## 1.2.3 - YYYY-MM-DD`"),
        ("## 1.2.3\n\n- New.\n", "rename *Unreleased* to `## 1.2.3 - YYYY-MM-DD`"),
    ],
)
def test_a_changelog_that_does_not_fit_the_version_is_refused(release: Prepared, changelog: str, remedy: str) -> None:
    """Readers look up what is new in the version that they install."""
    (release.folder / "CHANGELOG.md").write_text(changelog)

    (problem,) = check_version(release).problems

    assert remedy in problem


def test_a_page_that_installs_another_version_is_named(release: Prepared) -> None:
    """Its command would fail."""
    (release.folder / "README.md").write_text("pip install dist/airflow_provider_kafka_s3-1.2.2-py3-none-any.whl")

    assert check_version(release).problems == ["README.md installs 1.2.2: change it to 1.2.3"]


def test_a_vulnerability_is_named_with_the_version_that_fixes_it(release: Prepared) -> None:
    """Of each lock that has it."""
    sound = {"name": "beta", "version": "2.0", "vulns": []}
    bad = {"name": "alpha", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
    release.answers = [audited(bad), audited(bad, sound), audited(sound), audited(sound)]

    (problem,) = check_vulnerabilities(release).problems

    assert problem.startswith(f"alpha 1.0 of {LOCKS[0]}.lock has PYSEC-1, fixed in 1.1: run make lock")


def test_a_registry_without_advisories_is_no_success_and_is_asked_once(release: Prepared) -> None:
    """pip-audit itself reports that nothing is vulnerable."""
    release.answers = [audited({"name": "alpha", "skip_reason": "Dependency not found on PyPI"})]

    result = check_vulnerabilities(release)

    assert result == Result("", unchecked=[result.unchecked[0]])
    assert "nothing was looked up: the registry has no advisories (Dependency not found" in result.unchecked[0]
    assert release.asked == [PINNED[:1]]


def test_a_registry_that_does_not_answer_is_no_success(release: Prepared) -> None:
    """The reason is in the output of the tool."""
    release.answers = [""]

    assert check_vulnerabilities(release).unchecked == ["nothing was looked up: no route to the registry"]


def test_every_check_has_a_line_and_one_failure_fails_the_whole(
    release: Prepared, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those after a failed one are carried out, too, and what was not checked is listed."""

    def broken(_: Release) -> Result:
        raise RuntimeError("no compiler\ninstall one")

    checks = {
        "broken": broken,
        "bad": lambda _: Result("two builds", ["a is missing: add it"]),
        "good": lambda _: Result("three files"),
        "half": lambda _: Result("two Pythons", unchecked=["Python 3.13: it is not on this machine"]),
        "none": lambda _: Result("", unchecked=["nothing was looked up"]),
    }
    monkeypatch.setattr(release_check, "CHECKS", checks)

    assert run(release, list(checks)) == 1
    assert capsys.readouterr().out.splitlines() == [
        "FAILED       broken           it could not be carried out",
        "    no compiler",
        "    install one",
        "FAILED       bad              two builds",
        "    a is missing: add it",
        "ok           good             three files",
        "partly       half             two Pythons",
        "    not checked: Python 3.13: it is not on this machine",
        "NOT CHECKED  none",
        "    not checked: nothing was looked up",
        "1 passed, 2 failed (broken, bad), 2 not or only partly carried out (half, none)",
    ]
    assert run(release, ["good", "half"]) == 0


def test_an_unknown_check_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt one would be no check at all."""
    with pytest.raises(SystemExit, match="2"):
        main(["wheels"])
    assert "there is no check wheels; choose from commit, " in capsys.readouterr().err


@pytest.mark.parametrize(
    "expression",
    ["GPL-3.0-only", "Apache-2.0 AND AGPL-3.0-only", "(MIT OR GPL-2.0-only) AND GPL-3.0-only", "BUSL-1.1", "strange"],
)
def test_a_licence_that_is_not_accepted_is_named_with_its_package(expression: str) -> None:
    """Of an unknown one, or one with parentheses, a person decides."""
    (problem,) = license_problems(MIT_ALL | {"alpha": ["MIT", expression]})

    assert problem.startswith(f"alpha has the licence {expression}: add the package to ACCEPTED")


@pytest.mark.parametrize("expression", ["MIT", "GPL-2.0-only OR MIT", "BSD-3-Clause AND Zlib"])
def test_a_licence_without_conditions_for_users_is_accepted(expression: str) -> None:
    """Of alternatives one is enough."""
    assert license_problems(MIT_ALL | {"alpha": [expression]}) == []


def test_a_package_without_a_licence_and_an_exception_without_a_package_are_named() -> None:
    """Nobody may use the first; the second would hide a new one."""
    problems = license_problems({"alpha": []})

    assert problems[0].startswith("alpha has the licence unknown")
    assert [problem.split()[0] for problem in problems[1:]] == sorted(ACCEPTED)


def test_licences_of_an_sbom_are_read_in_each_of_their_forms() -> None:
    """An expression, an id of SPDX, or the name of a classifier."""
    component = {"licenses": [{"expression": "MIT OR ISC"}, {"license": {"id": "MIT"}}, {"license": {"name": "Free"}}]}

    assert of_component(component) == ["MIT OR ISC", "MIT", "Free"]
    assert of_component({}) == []
