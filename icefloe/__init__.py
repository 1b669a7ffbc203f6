"""Icefloe: an exactly-once Parquet and Iceberg sink for Spark Structured Streaming."""

__version__ = "0.1.0"

__all__ = ["__version__"]
