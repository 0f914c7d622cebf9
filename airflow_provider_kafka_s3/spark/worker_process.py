"""Saves the next task of a Python worker what Spark does before and after every task."""

from __future__ import annotations

import functools
import gc
import sys
import zipimport

__all__ = ["exempt_from_collections", "forget_zip_importers"]


@functools.cache
def exempt_from_collections() -> None:
    """Exempt what exists now from garbage collections; only the first call of a worker does.

    Spark collects garbage after every task. That takes 50 ms for the objects of the modules that tasks import, none of
    which is garbage.
    """
    if "pyspark.worker" in sys.modules:
        gc.freeze()


def forget_zip_importers() -> None:
    """Remove the importers of zip files. They are created again from cached directories when needed.

    Before every task Spark invalidates Python's import caches, and every zip importer then reads the directory of its
    zip again: 16 times that of pyspark.zip, which takes a tenth of a CPU second.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter):
            sys.path_importer_cache.pop(path, None)
