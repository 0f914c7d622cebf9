"""Pack the modules that executors need into one zip file, for ``spark-submit --py-files``.

Its name and bytes depend on the code only, so equal code is the same file everywhere: it can be cached, and two
versions never have the same name.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Final

__all__ = ["package_zip"]

_PACKAGE: Final = Path(__file__).resolve().parents[1]
# Modules that run only in Airflow, on the command line or in tests.
_EXCLUDED: Final = frozenset({"operators", "sensors", "triggers", "airflow", "submit", "cli", "testing", "spark_jobs"})
_EXCLUDED_FILES: Final = frozenset({"get_provider_info.py"})
_DATA: Final = "layout/*.json.gz"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def package_zip(directory: str | Path) -> Path:
    """Write the zip into a folder, unless it exists.

    Args:
        directory: an existing folder.

    Returns:
        Path of the zip; its name contains a hash of its content.
    """
    sources = [
        (path.relative_to(_PACKAGE.parent).as_posix(), path.read_bytes())
        for path in sorted([*_PACKAGE.rglob("*.py"), *_PACKAGE.glob(_DATA)])
        if path.relative_to(_PACKAGE).parts[0] not in _EXCLUDED | _EXCLUDED_FILES
    ]
    digest = hashlib.sha256()
    for name, body in sources:
        digest.update(f"{name}\0{len(body)}\0".encode() + body)
    target = Path(directory) / f"{_PACKAGE.name}-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        _write(target, sources)
    return target


def _write(target: Path, sources: list[tuple[str, bytes]]) -> None:
    descriptor, unfinished = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    try:
        # Stored, not deflated: compressed bytes differ between versions of zlib.
        with open(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, body in sources:
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.create_system = 3  # Unix, on any machine
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, body)
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, target)
    except BaseException:
        os.unlink(unfinished)
        raise
