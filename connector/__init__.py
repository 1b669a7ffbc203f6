"""The Spark sink: rows in, Parquet files out, committed exactly once."""
