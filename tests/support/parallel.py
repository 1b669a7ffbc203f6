"""Which tests of a parallel run stay in one process: two Sparks, or two SeaweedFS, starve each other on two cores."""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

SEAWEED = {"test_iceberg_attacks.py", "test_cli_s3.py", "test_services.py"}
# With Spark in the test process, or in processes that the tests start.
SPARK = {
    "test_batch_write.py",
    "test_cluster.py",
    "test_docs.py",
    "test_examples.py",
    "test_files_between_processes.py",
    "test_hive_folders.py",
    "test_spark_kills.py",
}


class ByService(LoadScopeScheduling):  # type: ignore[misc]
    """The tests of a service go to one process; these shares come first, as the largest, and the rest fills up."""

    def _split_scope(self, nodeid: str) -> str:
        path = PurePosixPath(nodeid.split("::")[0])
        if path.parent.name == "contract" or path.name in SEAWEED:
            return "seaweed"
        if path.name in SPARK or path.name.startswith("test_stream_"):
            return "spark"
        return nodeid
