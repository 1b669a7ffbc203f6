"""Where Spark and the sink meet: ``format("icefloe")``. Nothing below this file knows Spark."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from icefloe.connector.batch_write import commit_batch_write, plan_batch_write, run_batch_task
from icefloe.connector.driver import Driver, EpochSettings
from icefloe.connector.logs import configure_from_environment
from icefloe.connector.messages import OPERATOR_ID, TaskReport
from icefloe.connector.options import SinkOptions, parse_options
from icefloe.connector.task import run_task
from icefloe.errors import OptionError
from icefloe.state.task_info import TaskInfo

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("icefloe")
# Spark's Python processes import this module first, and nothing of the user's.
configure_from_environment()

ARROW_BYTES_KEY = "spark.sql.execution.arrow.maxBytesPerBatch"
FAST_ARROW_BYTES = "2147483647"


@dataclass(frozen=True)
class BatchCommitMessage(WriterCommitMessage):
    """The finished files of one task of a batch write."""

    files: list[bytes]


@dataclass(frozen=True)
class CommitMessage(WriterCommitMessage):
    """The report of a task, as Spark carries it to the driver."""

    report: TaskReport


class IcefloeDataSource(DataSource):
    """The data source that Spark finds under the name ``icefloe``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = dict(options)
        self._planned_ahead = False

    @classmethod
    def name(cls) -> str:
        """Return the name in ``format("icefloe")``."""
        return "icefloe"

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles the source for commit and abort only: those need no plan, which would cost a catalog request.
        return {"options": self.options, "_given": self._given, "_planned_ahead": True}

    def streamWriter(self, schema: StructType, overwrite: bool) -> IcefloeStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer of the coming epoch; called by Spark before the tasks, and again for commit and abort.

        Raises whatever is wrong with options, schema, target or state, before any data moves.
        """
        if overwrite:
            raise OptionError(
                "ICEFLOE_MODE_UNSUPPORTED",
                "complete mode rewrites the whole result in every batch, and icefloe only appends: use "
                'outputMode("append")',
            )
        writer = IcefloeStreamWriter(parse_options(self._given), schema.json())
        if not self._planned_ahead:
            writer.prepare()
        return writer

    def writer(self, schema: StructType, overwrite: bool) -> IcefloeBatchWriter:
        """Return the writer of ``df.write``: no state, all or nothing for a table."""
        if overwrite:
            raise OptionError(
                "ICEFLOE_MODE_UNSUPPORTED", 'icefloe only appends: use .mode("append"), and delete old rows yourself'
            )
        return IcefloeBatchWriter(parse_options(self._given, streaming=False), schema.json())


class IcefloeBatchWriter(DataSourceArrowWriter):
    """One batch write: planned when it is made, pickled to the tasks and to the process that commits."""

    def __init__(self, options: SinkOptions, schema_json: str) -> None:
        self._options = options
        self._plan = plan_batch_write(options, schema_json)
        self._job_id = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchCommitMessage:
        """Write the rows of one task; nothing of it is visible before the commit."""
        context = TaskContext.get()
        assert context is not None
        _advise_arrow_setting(context)
        return BatchCommitMessage(run_batch_task(self._plan, self._job_id, context.partitionId(), iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all rows visible: one snapshot of a table; a directory shows its files one after the other."""
        files = [file for message in messages if isinstance(message, BatchCommitMessage) for file in message.files]
        commit_batch_write(self._options, self._job_id, files)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log only: a commit that failed may have landed. ``icefloe clean`` removes what nothing names."""
        logger.warning(
            "a batch write was aborted by Spark; unfinished files are left under names of job %s", self._job_id
        )


class IcefloeStreamWriter(DataSourceStreamArrowWriter):
    """One epoch's writer: pickled to the tasks with its settings, made anew on the driver for the commit."""

    def __init__(self, options: SinkOptions, schema_json: str) -> None:
        self._options = options
        self._schema_json = schema_json
        self._settings: EpochSettings | None = None

    def prepare(self) -> None:
        """Find the base and plan the epoch; on the driver, before the writer travels to the tasks."""
        driver = Driver(self._options, self._schema_json)
        driver.check_trigger()
        self._settings = driver.prepare()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> CommitMessage:
        """Write the rows of one task. Delivery: exactly-once if the returned message is committed."""
        assert self._settings is not None
        context = TaskContext.get()
        assert context is not None
        _advise_arrow_setting(context)
        info, batch_id = _task_of(context)
        return CommitMessage(run_task(self._settings, info, batch_id, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the epoch; may be called again for the same batch after a crash."""
        reports = [message.report if isinstance(message, CommitMessage) else None for message in messages]
        Driver(self._options, self._schema_json).commit(reports, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log only: after a commit that failed, the outcome may be unknown, and only clean-up may remove anything."""
        logger.warning("batch %d was aborted by Spark; what its tasks wrote is left to the clean-up", batchId)


def _task_of(context: TaskContext) -> tuple[TaskInfo, int]:
    """Read from Spark who this task is: the one place that does."""
    job_id = context.getLocalProperty("sql.streaming.queryId")
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    if job_id is None or batch_id is None:
        raise OptionError(
            "ICEFLOE_NOT_STREAMING", "Spark gives this task no query id or batch id: it does not run in a micro-batch"
        )
    return TaskInfo(job_id, OPERATOR_ID, context.partitionId()), int(batch_id)


_advised = False


def _advise_arrow_setting(context: TaskContext) -> None:
    """Say once in a process how to get rid of Spark's per-row measuring of Arrow batches."""
    global _advised
    if not _advised and context.getLocalProperty(ARROW_BYTES_KEY) != FAST_ARROW_BYTES:
        _advised = True
        logger.warning(
            "rows reach this sink up to three times faster with %s=%s: call icefloe.register(spark), or set it "
            "yourself",
            ARROW_BYTES_KEY,
            FAST_ARROW_BYTES,
        )
