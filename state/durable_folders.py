"""Folders on a local disk whose names survive a power cut: POSIX promises that only after an fsync of each parent."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# Folders whose own names this process has made durable. That a folder is there proves nothing: whoever made it may have
# been killed before it synced the parent.
_durable: set[Path] = set()
_MAX_REMEMBERED = 10_000


def make_folder(folder: Path) -> None:
    """Make a folder and those above it. Durable once ``sync_folder`` has been called on it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with suppress(FileExistsError, FileNotFoundError):
        folder.mkdir()
        _durable.discard(folder)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, and the folder's own name and those above it. Repeatable."""
    _sync(folder)
    if len(_durable) > _MAX_REMEMBERED:
        _durable.clear()
    while folder not in _durable and folder != folder.parent:
        # A parent that may not be opened was there before us.
        with suppress(PermissionError):
            _sync(folder.parent)
        _durable.add(folder)
        folder = folder.parent


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
