"""``python -m tests.golden`` writes the golden files again, after a change of the locked libraries.

Read ``git diff --stat`` then: files whose bytes depend on no library that changed should be the same as before.

``python -m tests.golden bucket`` makes the golden bucket of this version, once: that of a release never changes.
"""

from __future__ import annotations

import hashlib
import json
import sys

from airflow_provider_kafka_s3.version import __version__
from tests.golden.cases import CASES, FILES, VERSIONS, made, versions
from tests.golden.folders import write_folders
from tests.golden.lake import path_of_bucket
from tests.golden.made_bucket import made as made_bucket


def make_bucket() -> int:
    """Make the golden bucket of this version; one that exists stays."""
    path = path_of_bucket(__version__)
    if path.exists():
        print(f"{path} exists, and is that of version {__version__}: later versions have to read it as it is")
        return 1
    path.parent.mkdir(exist_ok=True)
    made_bucket().save(path)
    print(f"{path}: {path.stat().st_size:,} bytes, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}")
    return 0


def main() -> int:
    """Write all files; one that does not hold the records of its case is an error."""
    FILES.mkdir(exist_ok=True)
    for old in FILES.iterdir():
        old.unlink()
    total = 0
    for name, case in CASES.items():
        extension, body = made(case)
        assert case.read(body) == case.expected, f"{name} does not hold its records"
        (FILES / f"{name}{extension}").write_bytes(body)
        total += len(body)
    write_folders()
    VERSIONS.write_text(json.dumps(versions(), indent=2) + "\n")
    print(f"{len(CASES)} files, {total:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(make_bucket() if sys.argv[1:] == ["bucket"] else main())
