"""Objects have the bytes of the golden files: a retry of a batch that an earlier version planned makes them again.

The bytes depend on the libraries that compress and encode. The files belong to the locked versions, which are in
``files/versions.json``. When the lock changes, ``python -m tests.golden`` writes the files again.
"""

from __future__ import annotations

import json

import pytest

from tests.golden.cases import CASES, FILES, VERSIONS, made, path_of, versions

AGAIN = "write the golden files again with `python -m tests.golden`, and name the change in CHANGELOG.md"


@pytest.mark.parametrize("name", CASES)
def test_the_bytes_are_those_of_the_golden_file(name: str) -> None:
    """And so is the extension. Only zlib, which is the one of Python, may have another version on this machine."""
    recorded = json.loads(VERSIONS.read_text())
    case = CASES[name]
    different = {n: (recorded[n], versions()[n]) for n in case.libraries if recorded[n] != versions()[n]}
    if set(different) == {"zlib"}:
        pytest.skip(f"the golden file is of zlib {recorded['zlib']}, and this Python has {versions()['zlib']}")
    assert not different, f"the lock has other versions than the golden files: {different}; {AGAIN}"
    extension, body = made(case)
    path = path_of(name)
    assert path.name == name + extension
    assert body == path.read_bytes(), f"{name}: the same records have other bytes; if that is meant, {AGAIN}"


@pytest.mark.parametrize("name", CASES)
def test_other_readers_find_the_records_in_the_golden_file(name: str) -> None:
    """Whatever versions are installed; and in the object as it is made now."""
    case = CASES[name]
    assert case.read(path_of(name).read_bytes()) == case.expected
    assert case.read(made(case)[1]) == case.expected


def test_there_are_no_other_files() -> None:
    """Each belongs to a case, and they are small."""
    assert {path.name for path in FILES.iterdir()} == {VERSIONS.name, *(path_of(name).name for name in CASES)}
    assert sum(path.stat().st_size for path in FILES.iterdir()) < 200_000
