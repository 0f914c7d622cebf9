"""Remove one safety step of the product at a time and check that the simulation, or its unit test, fails.

Each mutation replaces an exact snippet of the source. It is applied to a copy of the package, in a separate process. A
test that passes with it would prove nothing. ``python -m tests.protocol.mutants`` prints the table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.protocol.mutations import MUTATIONS, PACKAGE, Mutation
from tests.protocol.unit_mutations import UNIT_MUTATIONS

__all__ = ["Verdict", "main", "require_fits", "run_mutant", "run_unit_test"]

ROOT: Final = Path(__file__).parents[2]
_WIDTH: Final = max(len(m.name) for m in (*MUTATIONS, *UNIT_MUTATIONS))


@dataclass(frozen=True)
class Verdict:
    """Result of a mutant: failed seeds, tried seeds, and counts of the findings."""

    failed: int
    tried: int
    findings: Counter[str]
    first_seed: int | None


def require_fits(mutation: Mutation) -> None:
    """Raise ValueError unless each snippet occurs exactly once in the source."""
    for edit in mutation.edits:
        if (times := (ROOT / edit.file).read_text().count(edit.snippet)) != 1:
            raise ValueError(
                f"mutation {mutation.name}: the snippet occurs {times} times in {edit.file}, not once:\n{edit.snippet}"
            )


def _copy_with(mutation: Mutation | None, folder: Path, *parts: str) -> None:
    for part in parts:
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    if mutation is not None:
        require_fits(mutation)
        for edit in mutation.edits:
            path = folder / edit.file
            path.write_text(path.read_text().replace(edit.snippet, edit.replacement))


def run_mutant(
    mutation: Mutation | None, *, first: int, seeds: int, stop_after: int, steps: int = 700, trim: bool = False
) -> Verdict:
    """Run the simulation with a mutated copy of the package; None: an unchanged copy.

    Raises:
        ValueError: a snippet does not occur exactly once in the source.
        RuntimeError: the simulation itself failed.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name).resolve()
        _copy_with(mutation, folder, PACKAGE, "tests/protocol")
        command = [sys.executable, "-m", "tests.protocol.simulate", "--json", f"--first={first}", f"--seeds={seeds}"]
        command += [f"--stop-after={stop_after}", f"--steps={steps}", "--jobs=1", *(["--trim"] if trim else [])]
        done = _run(command, folder)
        if not done.stdout:
            raise RuntimeError(f"the simulation of mutation {mutation and mutation.name} failed:\n{done.stderr}")
        result: dict[str, Any] = json.loads(done.stdout)
        if Path(result["package"]) != folder / PACKAGE:
            raise RuntimeError(f"the simulation ran {result['package']} instead of the mutant in {folder}")
    failures = result["failures"]
    return Verdict(
        failed=len(failures),
        tried=result["seeds"],
        findings=Counter(_kind(f["finding"]) for f in failures),
        first_seed=failures[0]["seed"] if failures else None,
    )


def run_unit_test(mutation: Mutation) -> Verdict:
    """Run the unit test of a mutation with a mutated copy of the package.

    Raises:
        ValueError: a snippet does not occur exactly once in the source.
        RuntimeError: the test could not be run.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name).resolve()
        _copy_with(mutation, folder, PACKAGE, "tests", "dev")
        shutil.copy(ROOT / "pyproject.toml", folder)
        done = _run([sys.executable, "-m", "pytest", "-n0", "-qx", "-p", "no:cacheprovider", mutation.test], folder)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"the test of mutation {mutation.name} could not be run:\n{done.stdout}{done.stderr}")
    return Verdict(done.returncode, 1, Counter([mutation.test.rpartition("/")[2]]), first_seed=None)


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _kind(finding: str) -> str:
    """A finding without names and numbers."""
    words = finding.replace(":", " ").split()
    return " ".join(w for w in words if not any(c.isdigit() or c in "/'{[(" for c in w) or w[:1] == "I")[:60]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a mutant survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=600, help="seeds per mutant at most (default %(default)s)")
    parser.add_argument(
        "--failures", type=int, default=20, help="stop after this many failed seeds (default %(default)s)"
    )
    parser.add_argument("--first", type=int, default=0, help="first seed (default %(default)s)")
    parser.add_argument("--steps", type=int, default=700, help="steps with faults (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at once (default %(default)s)")
    parser.add_argument("--only", nargs="*", default=[], help="names of mutations")
    options = parser.parse_args(argv)
    chosen = [m for m in (*MUTATIONS, *UNIT_MUTATIONS) if not options.only or m.name in options.only]
    survivors = 0
    print(f"{'mutation':{_WIDTH}} {'failed/tried':>12} {'first':>6}  main finding", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = pool.map(
            lambda m: (
                run_unit_test(m)
                if m.test
                else run_mutant(
                    m,
                    first=options.first,
                    seeds=options.seeds,
                    stop_after=options.failures,
                    steps=options.steps,
                    trim=m.trim,
                )
            ),
            chosen,
        )
        for mutation, verdict in zip(chosen, verdicts, strict=True):
            survivors += not verdict.failed
            main_finding = verdict.findings.most_common(1)[0][0] if verdict.failed else "SURVIVED"
            first = "-" if verdict.first_seed is None else str(verdict.first_seed)
            tried = f"{verdict.failed}/{verdict.tried}"
            print(f"{mutation.name:{_WIDTH}} {tried:>12} {first:>6}  {main_finding}", flush=True)
            print(f"{'':{_WIDTH}} {'':12} {'':6}  ({mutation.description})", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants were caught")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
