"""Lists names that do not say what they hold: `make lint` refuses them in the package.

A name of a comprehension or a lambda may be one: it is read where it is declared. So may a parameter or a field, which
is part of what others call.
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
    nodes = [*ast.walk(ast.parse(source))]
    comprehensions = (node for node in nodes if isinstance(node, _COMPREHENSIONS))
    classes = (node for node in nodes if isinstance(node, ast.ClassDef))
    brief = [generator.target for comprehension in comprehensions for generator in comprehension.generators]
    fields = [part.target for kind in classes for part in kind.body if isinstance(part, ast.AnnAssign)]
    elsewhere = {id(part) for target in (*brief, *fields) for part in ast.walk(target)}
    names = (node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return ((name.lineno, name.id) for name in names if name.id in _REFUSED and id(name) not in elsewhere)


def main() -> int:
    """Print each name with its place; 1 if there is one."""
    refused = [
        f"{path}:{line}: {name} does not say what it holds"
        for path in sorted(Path("airflow_provider_kafka_s3").rglob("*.py"))
        for line, name in sorted(placeholder_names(path.read_text()))
    ]
    for message in refused:
        print(message)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
