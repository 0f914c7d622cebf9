"""Partitioners of other packages, whose results are checked before they name an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

import numpy as np

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.extensions.loading import calling, load_partitioner, place_of, shown
from airflow_provider_kafka_s3.extensions.partitioners import REFUSED, Codes, Encoded
from airflow_provider_kafka_s3.extensions.records import Batch
from airflow_provider_kafka_s3.layout.keys import BAD_CHARACTER, CONTROL_DIR, DEAD_LETTERS_DIR

__all__ = ["CheckedPartitioner"]

_CACHED: Final = 100_000


class CheckedPartitioner:
    """A partitioner of another package.

    Args:
        settings: import path and options of its class.
        naming: with the delimiter of folders.

    Raises:
        ConfigurationError: see :func:`~airflow_provider_kafka_s3.extensions.loading.load_partitioner`.
    """

    def __init__(self, settings: config.CustomPartitioner, naming: config.KeyNaming) -> None:
        self._class = settings.import_path
        self._partitioner = load_partitioner(settings)
        self._delim = naming.directory_delim
        self._lower = naming.lowercase_paths
        self._most = self._partitioner.max_path_bytes
        self._named: dict[str, str] = {}

    @property
    def longest(self) -> str:
        """A path of ``max_path_bytes``."""
        return "v" * self._most

    def encode(self, batch: Batch) -> Encoded:
        """The encoded partitions of a batch.

        Raises:
            RecordError: the class raised an exception.
            ConfigurationError: its result is none, or has paths that are not safe.
        """
        with calling(self._class, batch):
            encoded: object = self._partitioner.encode(shown(batch, self._partitioner))
        if not isinstance(encoded, Encoded):
            self._refuse(batch, f"returned {type(encoded).__name__}; return an Encoded")
        with calling(self._class, batch):
            codes = np.asarray(encoded.codes)
            refused = {int(row): reason for row, reason in encoded.refused.items()}
        paths: object = encoded.paths
        count = batch.records.num_rows
        wrong = codes.ndim != 1 or codes.dtype.kind not in "iu" or len(codes) != count
        if wrong:
            self._refuse(
                batch, f"returned {codes.size} codes of {codes.dtype} for {count} records; return an index each"
            )
        if not isinstance(paths, Sequence) or isinstance(paths, str):
            self._refuse(batch, f"returned paths of {type(paths).__name__}; return a list of texts")
        codes = codes.astype(np.intp)
        if int(codes.min()) < REFUSED or int(codes.max()) >= len(paths):
            self._refuse(
                batch,
                f"returned codes from {int(codes.min())} to {int(codes.max())} for {len(paths)} paths; return indices "
                f"of paths, or REFUSED",
            )
        self._check_refused(batch, codes, refused)
        return self._merged(batch, codes, paths, refused)

    def _check_refused(self, batch: Batch, codes: Codes, refused: Mapping[int, str]) -> None:
        rows = np.flatnonzero(codes == REFUSED).tolist()
        if not all(isinstance(reason, str) for reason in refused.values()):
            self._refuse(batch, "returned a reason that is no text; return a text for each refused row")
        if sorted(refused) != rows:
            self._refuse(
                batch,
                f"returned {len(rows)} codes REFUSED, and reasons for {len(refused)} rows; return a reason for each "
                f"refused row, and none for others",
            )

    def _merged(self, batch: Batch, codes: Codes, paths: Sequence[object], refused: Mapping[int, str]) -> Encoded:
        """Paths that are safe, each once: several may be equal in lower case."""
        used, of_record = np.unique(codes, return_inverse=True)
        indices: dict[str, int] = {}
        of_used = np.full(len(used), REFUSED, np.intp)
        for i, code in enumerate(used.tolist()):
            if code != REFUSED:
                of_used[i] = indices.setdefault(self._name(batch, paths[code]), len(indices))
        return Encoded(of_used[of_record.reshape(-1)], list(indices), refused)

    def _name(self, batch: Batch, path: object) -> str:
        """A path as it is in keys."""
        if not isinstance(path, str):
            self._refuse(batch, f"returned a path that is {type(path).__name__}; return a text")
        name = self._named.get(path)
        if name is None:
            name = self._checked(batch, path)
            if len(self._named) >= _CACHED:
                self._named.clear()
            self._named[path] = name
        return name

    def _checked(self, batch: Batch, path: str) -> str:
        # The path itself may hold a value, so no error has it.
        use = "use safe_name of airflow_provider_kafka_s3.extensions for parts from records"
        if BAD_CHARACTER.search(path):
            self._refuse(batch, f"returned a path with characters that cannot be listed; {use}")
        size = len(path.encode())
        if size > self._most:
            self._refuse(
                batch, f"returned a path of {size} bytes, and max_path_bytes is {self._most}; raise it, or {use}"
            )
        name = (path.lower() if self._lower else path).replace("/", self._delim)
        folders = [*path.split("/"), *name.replace(self._delim, "/").split("/")]
        if any(folder in ("", ".", "..") for folder in folders):
            self._refuse(batch, f"returned a path with an empty folder, '.' or '..', which tools resolve; {use}")
        if any(folder.startswith((CONTROL_DIR, DEAD_LETTERS_DIR)) for folder in folders):
            self._refuse(
                batch,
                f"returned a path with a folder that begins with {CONTROL_DIR!r} or {DEAD_LETTERS_DIR!r}, which are "
                f"for other objects; {use}",
            )
        return name

    def _refuse(self, batch: Batch, what: str) -> NoReturn:
        raise ConfigurationError(f"{place_of(batch)}: {self._class} {what}")
