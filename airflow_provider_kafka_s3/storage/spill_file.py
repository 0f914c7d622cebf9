"""What open objects have beyond their budget of memory, in one temporary file."""

from __future__ import annotations

import os
import tempfile

from airflow_provider_kafka_s3.exceptions import TransientError

__all__ = ["SpillFile"]


class SpillFile:
    """One unlinked temporary file with slots of one size.

    One file, because thousands of objects may be open, and a process has far fewer file descriptors. It is sparse: a
    slot uses the disk space of the bytes that were written to it. Only one thread may use it.

    Args:
        slot_size: bytes of a slot.
        folder: of the file; None: the system's for temporary files.
    """

    def __init__(self, slot_size: int, folder: str | None) -> None:
        self.slot_size = slot_size
        self._folder = folder
        self._fd: int | None = None
        self._slots = 0
        self._free: list[int] = []

    def take_slot(self) -> int:
        """The number of a slot that is not in use."""
        if self._free:
            return self._free.pop()
        self._slots += 1
        return self._slots - 1

    def give_back(self, slot: int) -> None:
        """The bytes of a slot are not needed any more."""
        self._free.append(slot)

    def write(self, slot: int, at: int, data: bytearray | memoryview) -> None:
        """Write bytes into a slot.

        Raises:
            TransientError: there is no room for them.
        """
        try:
            if self._fd is None:
                self._fd, path = tempfile.mkstemp(prefix="kafka-s3-spill-", dir=self._folder)
                os.unlink(path)  # The space is freed however the process ends.
            offset = slot * self.slot_size + at
            with memoryview(data) as view:
                done = 0
                while done < len(view):
                    done += os.pwrite(self._fd, view[done:], offset + done)
        except OSError as e:
            raise TransientError(
                f"cannot write {len(data)} bytes of open objects to {self._folder or tempfile.gettempdir()}: {e}; "
                "free disk space there, or set upload={'spill_dir': ...} of the operator to another folder on the "
                "executors, or upload={'memory': ...} to more bytes in memory"
            ) from e

    def read(self, slot: int, size: int) -> bytearray:
        """The first bytes of a slot."""
        data = bytearray(size)
        with memoryview(data) as view:
            self.read_into(slot, view)
        return data

    def read_into(self, slot: int, target: memoryview) -> None:
        """Fill a buffer with the first bytes of a slot."""
        done, size = 0, len(target)
        while done < size:
            assert self._fd is not None
            read = os.preadv(self._fd, [target[done:]], slot * self.slot_size + done)
            if read == 0:
                raise TransientError(f"the temporary file of open objects ends {size - done} bytes too early")
            done += read

    def close(self) -> None:
        """Remove the file."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
