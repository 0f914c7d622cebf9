"""``python -m tests.golden`` writes the golden files again, after a change of the locked libraries.

Read ``git diff --stat`` then: files whose bytes depend on no library that changed should be the same as before.
"""

from __future__ import annotations

import json
import sys

from tests.golden.cases import CASES, FILES, VERSIONS, made, versions
from tests.golden.folders import write_folders


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
    sys.exit(main())
