"""Icefloe: an exactly-once Parquet and Iceberg sink for Spark Structured Streaming.

``import icefloe`` loads neither Spark nor PyIceberg; each public name loads what it needs when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icefloe import errors
    from icefloe.connector.finish import FinishResult, finish
    from icefloe.connector.spark_session import check, distribute, register

__version__ = "0.1.0"

__all__ = ["FinishResult", "__version__", "check", "distribute", "errors", "finish", "register"]

_HOMES = {
    "FinishResult": "icefloe.connector.finish",
    "check": "icefloe.connector.spark_session",
    "distribute": "icefloe.connector.spark_session",
    "finish": "icefloe.connector.finish",
    "register": "icefloe.connector.spark_session",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("icefloe.errors")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'icefloe' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
