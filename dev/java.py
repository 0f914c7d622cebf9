"""The Java of this machine."""

from __future__ import annotations

import os
import shutil

__all__ = ["find_java"]


def find_java() -> str:
    """The path of ``java``: that of ``JAVA_HOME`` if it is set, else the one on ``PATH``.

    Raises:
        RuntimeError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if java is None:
        where = f"JAVA_HOME={home} holds none" if home else "it is not on PATH and JAVA_HOME is not set"
        raise RuntimeError(f"there is no Java: {where}; install openjdk-17-jre-headless")
    return os.path.realpath(java)
