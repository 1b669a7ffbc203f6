"""What Spark looks for by itself: an installed top-level module called ``pyspark_*`` with a ``DefaultSource``."""

from icefloe.connector.data_source import IcefloeDataSource as DefaultSource

__all__ = ["DefaultSource"]
