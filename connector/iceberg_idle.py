"""Driver only: catalogs that stay open from one epoch to the next. A cache: nothing depends on finding one."""

from __future__ import annotations

import atexit
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable

from pyiceberg.catalog import Catalog

from icefloe.connector.table_plan import TableSettings

# Catalogs that nobody uses at the moment, by all that went into opening them, credentials included. Each is taken by
# one user at a time, who gives it back unless it failed.
_MAX_IDLE = 4
# A query that is slower or has stopped holds nothing open: files and servers are then free to be copied or replaced.
_IDLE_SECONDS = 10.0
_idle: OrderedDict[Hashable, tuple[Catalog, threading.Timer]] = OrderedDict()
_idle_lock = threading.Lock()


def take_idle_catalog(settings: TableSettings) -> Catalog | None:
    """Return an open catalog that an epoch of this process left a moment ago, or None. It may still fail."""
    with _idle_lock:
        found = _idle.pop(_opened_with(settings), None)
    if found is None:
        return None
    catalog, timer = found
    timer.cancel()
    if _is_usable(catalog):
        return catalog
    catalog.close()
    return None


def give_back_catalog(settings: TableSettings, catalog: Catalog) -> None:
    """Leave a catalog that works to the next user in this process; it is closed when nobody comes for it."""
    if not _is_usable(catalog):
        catalog.close()
        return
    key = _opened_with(settings)
    timer = threading.Timer(_IDLE_SECONDS, _close_idle, (key, catalog))
    timer.daemon = True
    with _idle_lock:
        displaced = [_idle.pop(key)] if key in _idle else []
        _idle[key] = (catalog, timer)
        if len(_idle) > _MAX_IDLE:
            displaced.append(_idle.popitem(last=False)[1])
    timer.start()
    for other, others_timer in displaced:
        others_timer.cancel()
        other.close()


def _close_idle(key: Hashable, catalog: Catalog) -> None:
    with _idle_lock:
        if key not in _idle or _idle[key][0] is not catalog:
            return
        del _idle[key]
    catalog.close()


@atexit.register
def _close_all_idle() -> None:
    with _idle_lock:
        left = list(_idle.values())
        _idle.clear()
    for catalog, timer in left:
        timer.cancel()
        catalog.close()


def _is_usable(catalog: Catalog) -> bool:
    """Whether a catalog may be kept, or still be used: those that hold nothing of what the catalog holds."""
    if type(catalog).__module__.startswith(("pyiceberg.catalog.rest", "pyiceberg.catalog.glue")):
        return True
    is_usable = getattr(catalog, "is_usable", None)
    # A stranger's catalog may remember anything.
    return is_usable is not None and bool(is_usable())


def _opened_with(settings: TableSettings) -> Hashable:
    # A forked process must not share its parent's connections.
    given = (os.getpid(), settings.catalog_name, settings.warehouse)
    return (*given, frozenset(settings.catalog_properties.items()), frozenset(settings.s3.items()))
