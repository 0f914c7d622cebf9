"""The zip file of ``shelf_layouts``, the package of somebody else: what ``py_files`` ships."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Final

__all__ = ["packed"]

_PACKAGE: Final = Path(__file__).with_name("shelf_layouts")


def packed(folder: Path) -> Path:
    """Write the zip file into a folder."""
    target = folder / "shelf_layouts.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for source in sorted(_PACKAGE.glob("*.py")):
            archive.write(source, f"{_PACKAGE.name}/{source.name}")
    return target
