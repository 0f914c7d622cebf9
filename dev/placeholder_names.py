"""Lists names that do not say what they hold: `make lint` refuses them in the package.

A name of a comprehension or a lambda may be one: it is read where it is declared. So may a parameter, which is part of
what others call.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["placeholder_names"]

_REFUSED: Final = frozenset(
    ("at", "found", "given", "it", "one", "rest", "some", "what", "_AT_ONCE", "_FEW", "_MANY", "_MOST", "_TRIES")
)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def placeholder_names(source: str) -> Iterator[tuple[int, str]]:
    """The lines and names of assignments to locals and constants that do not say what they hold.

    Args:
        source: of a module.
    """
    tree = ast.parse(source)
    brief = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, _COMPREHENSIONS)
        for generator in node.generators
        for part in ast.walk(generator.target)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and node.id in _REFUSED
            and id(node) not in brief
        ):
            yield node.lineno, node.id


def main() -> int:
    """Print each name with its place; 1 if there is one."""
    refused = [
        f"{path}:{line}: {name} does not say what it holds"
        for path in sorted(Path("airflow_provider_kafka_s3").rglob("*.py"))
        for line, name in sorted(placeholder_names(path.read_text()))
    ]
    print(*refused, sep="\n" if refused else "")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
