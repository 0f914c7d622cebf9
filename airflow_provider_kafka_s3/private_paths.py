"""Files and folders of this machine that no other user may have written."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["require_private"]

_OF_ROOT: Final = 0


def require_private(path: Path, is_kind: Callable[[int], bool], kind: str) -> None:
    """Refuse what another user may have written.

    Args:
        path: not followed, if it is a link.
        is_kind: whether a mode is that of the expected kind, such as ``stat.S_ISDIR``.
        kind: its name.

    Raises:
        PermissionError: the path is another kind of file, or others own it or can write to it.
        OSError: it cannot be examined.
    """
    about, us = path.lstat(), os.geteuid()
    if not is_kind(about.st_mode):
        raise PermissionError(f"{path} is no {kind} (symbolic links are not followed)")
    if about.st_uid not in (us, _OF_ROOT):
        raise PermissionError(f"{path} belongs to user {about.st_uid}; run `chown {us} {path}` if its content is safe")
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"other users can write to {path}; run `chmod go-w {path}` if its content is safe")
