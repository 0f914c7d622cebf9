"""No message has a number before a plural that may be 1: ``messages.count`` has the form of the number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import airflow_provider_kafka_s3

PACKAGE = Path(airflow_provider_kafka_s3.__file__).parent
NOUNS = "objects|batches|records|dead letters|slices|tasks|offsets|topics|resets"
BEHIND_A_VALUE = re.compile(rf" (?:other )?(?:{NOUNS})\b(?!/)")
IN_A_LOG = re.compile(rf"%d (?:other )?(?:{NOUNS})\b")

# Never 1, or no count.
ALLOWED = {
    "{len(batches)} batches from",  # of several
    "{DEEPEST} objects and",
    "{partition} offsets [",
    "{read_tasks.count} tasks, ",  # an error of the code
    "{self.chunk.num_records} records of the last chunk",
    "{self.records} records with",
    "{self.dead_letters} dead letters",
    "{len(self.objects):,} objects; the limit",
}


def test_counts_are_singular_where_they_are_one() -> None:
    """In every message of the package, but those to a writer of a format or a partitioner about a whole batch."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        if file.parts[-2] == "testing" or file.name in ("custom.py", "foreign.py"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                text = ast.unparse(node)
                pairs = zip(node.values, node.values[1:], strict=False)
                wrong = any(
                    isinstance(value, ast.FormattedValue)
                    and isinstance(then, ast.Constant)
                    and BEHIND_A_VALUE.match(str(then.value))
                    for value, then in pairs
                )
                if wrong and not any(allowed in text for allowed in ALLOWED):
                    found.append(f"{file.name}:{node.lineno}: {text}")
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and IN_A_LOG.search(node.value):
                found.append(f"{file.name}:{node.lineno}: {node.value}")
    assert found == []
