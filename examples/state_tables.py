"""State tables without Spark: write, checkpoint, crash, restore, and look into the files with PyArrow."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from icefloe import state
from icefloe.proto.state_pb2 import OperatorCheckpointMetadata

VISITS = state.expiring_time_key_config("visits", "visits", retention=60, time_column="time", key_column="user")
CONFIGS = {"counts": state.global_keyed_config("counts", "visits by user"), "visits": VISITS}
CODECS = {"counts": (state.MsgpackCodec(str), state.MsgpackCodec(int))}


def open_tables(storage: state.StorageProvider, *saved: OperatorCheckpointMetadata) -> state.TableManager:
    return state.TableManager.open(
        state.TaskInfo("job", "example", 0), CONFIGS, storage, codecs=CODECS, restore_from=saved
    )


def main(folder: Path) -> None:
    storage = state.open_storage(str(folder))
    manager = open_tables(storage)
    counts, visits = manager.get_global_keyed_state("counts"), manager.get_expiring_time_key_table("visits")
    counts.insert("ann", 1)
    counts.insert("bob", 1)
    visits.insert(pa.record_batch({"time": pa.array([100, 130]), "user": pa.array([1, 2], pa.uint64())}))
    manager.checkpoint(1, watermark=130)
    counts.remove("bob")
    saved = manager.checkpoint(2, watermark=170)  # ann's visit at 100 is older than 170 - 60

    counts.insert("eve", 99)  # never checkpointed: the crash takes it
    del manager, counts, visits

    restored = open_tables(storage, saved)
    print("counts:", dict(restored.get_global_keyed_state("counts").items()))
    print("visits:", [batch.to_pylist() for batch in restored.get_expiring_time_key_table("visits").scan()])
    for file in sorted(folder.rglob("*.parquet")):
        print(file.parent.name, file.name.split("-")[1], pq.read_table(file).to_pylist())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as location:
        main(Path(location))
