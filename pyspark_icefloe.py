"""What Spark looks for by itself: an installed top-level module called ``pyspark_*`` with a ``DefaultSource``."""
