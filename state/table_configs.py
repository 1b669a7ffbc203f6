"""The configurations of state tables, as their owner declares them and as metadata stores them."""

from __future__ import annotations

import pyarrow as pa

from icefloe.errors import OptionError
from icefloe.proto import state_pb2 as pb


def global_keyed_config(
    name: str, description: str, *, state_version: int = 0, uses_two_phase_commit: bool = False
) -> pb.TableConfig:
    """Declare a global keyed table. ``state_version`` is the version of its codecs (0: has never changed)."""
    config = pb.GlobalKeyedTableConfig(
        table_name=name, description=description, uses_two_phase_commit=uses_two_phase_commit
    )
    return pb.TableConfig(
        table_type=pb.TableEnum.GLOBAL_KEY_VALUE, config=config.SerializeToString(), state_version=state_version
    )


def expiring_time_key_config(
    name: str,
    description: str,
    *,
    retention: int | None,
    time_column: str,
    key_column: str,
    generational: bool = True,
    state_version: int = 0,
    schema: pa.Schema | None = None,
) -> pb.TableConfig:
    """Declare a time table. Rows expire when their time is below the checkpoint's watermark minus ``retention``.

    The unit is that of the int64 ``time_column``: event time, or any number that only grows, such as a row sequence.
    With ``retention=None`` the watermark expires nothing: rows leave only by their key's cutoff.
    ``generational`` files are merged by generation, others all together. Raises ``OptionError`` for a negative
    retention.
    """
    if retention is not None and retention < 0:
        raise OptionError("ICEFLOE_OPTION_INVALID", f"table {name!r}: retention {retention} is negative")
    config = pb.ExpiringKeyedTimeTableConfig(
        table_name=name,
        description=description,
        retention=retention,
        generational=generational,
        time_column=time_column,
        key_column=key_column,
        arrow_schema=b"" if schema is None else schema.serialize().to_pybytes(),
    )
    return pb.TableConfig(
        table_type=pb.TableEnum.EXPIRING_KEYED_TIME_TABLE,
        config=config.SerializeToString(),
        state_version=state_version,
    )
