"""Arrow, Spark and Iceberg schemas: one table of types, field ids, normalisation, partition transforms."""
