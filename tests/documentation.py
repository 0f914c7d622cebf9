"""The code in the pages of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

__all__ = ["README", "ROOT", "snippets"]

ROOT: Final = Path(__file__).resolve().parents[1]
README: Final = ROOT / "README.md"


def snippets(page: Path, language: str) -> list[str]:
    """The code of a page in one language; code in a list loses its indent."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", code, flags=re.MULTILINE) for indent, code in found]
