"""Write the names of months, days and time zones that path patterns have: those of Joda-Time on this machine's Java.

Kafka Connect formats paths with Joda-Time, which takes names from the Java that it runs on. The names are a file of the
package, since every process has to write the same paths. The file was made with Java 17 and Joda-Time 2.13. Plans
depend on it: names of another Java are for another file, never for this one.

    python -m dev.locale_names JODA_TIME.jar
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow_provider_kafka_s3.layout import locales

__all__ = ["file_of", "main"]

_PROGRAM = Path(__file__).parent / "JodaNames.java"
_PARTS = ("months", "short_months", "days", "short_days", "halves", "eras")
_ABOUT = (
    "Names of Joda-Time 2.13 on Java 17, whose locale data is that of the Unicode Common Locale Data Repository 39, "
    "copyright 1991-2021 Unicode, Inc., https://www.unicode.org/license.txt"
)


def file_of(lines: Sequence[str]) -> bytes:
    """The file for the output of the Java program."""
    zones, root, *languages = map(json.loads, lines)
    # Zones that have the same names in all languages are one class.
    classes: dict[str, int] = {}
    of_zone = [
        classes.setdefault(json.dumps([language[7][i] for language in (root, *languages)]), len(classes))
        for i in range(len(zones))
    ]
    examples = [of_zone.index(number) for number in range(len(classes))]
    content = {
        "about": _ABOUT,
        "zones": {name: [joda_name, number] for (name, joda_name), number in zip(zones, of_zone, strict=True)},
        "root": _names(root, examples, None),
        "languages": {language[0]: _names(language, examples, root) for language in languages},
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return gzip.compress(text.encode(), mtime=0)


def _names(language: Any, examples: Sequence[int], root: Any) -> dict[str, Any]:
    """The names of a language that are not those of the root."""
    names = {
        part: [name for name in language[at] if name]
        for at, part in enumerate(_PARTS, 1)
        if root is None or language[at] != root[at]
    }
    zones = {
        str(number): language[7][zone]
        for number, zone in enumerate(examples)
        if root is None or language[7][zone] != root[7][zone]
    }
    return names | {"zones": zones}


def main(jar: str) -> None:
    """Run the Java program, and write the file."""
    java = ["java", "-cp", jar, "-Duser.language=en", "-Duser.country=US", str(_PROGRAM)]
    output = subprocess.run(java, check=True, capture_output=True, text=True).stdout
    target = Path(locales.__file__).with_name(locales.FILE)
    target.write_bytes(file_of(output.splitlines()))
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
