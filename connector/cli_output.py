"""How the command line shows things: JSON for machines, colours on a terminal, plain columns in a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

_UNITS = ("B", "KB", "MB", "GB", "TB")


def print_json(value: Any) -> None:
    """Print one JSON document; keys in the order in which they were given."""
    print(json.dumps(value, indent=2))


def print_line(text: str, *, style: str = "") -> None:
    """Print one line, in a style where a person looks at it."""
    if style and sys.stdout.isatty():
        from rich.console import Console

        Console(soft_wrap=True, highlight=False).print(text, style=style, markup=False)
        return
    print(text)


def print_fields(fields: Mapping[str, str]) -> None:
    """Print names and values below each other."""
    width = max(map(len, fields))
    for name, value in fields.items():
        print(f"  {name:<{width}}  {value}")


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> None:
    """Print rows under their headers; the columns named in ``numbers`` are set to the right."""
    if sys.stdout.isatty():
        _print_rich(headers, rows, numbers)
        return
    widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
    for row in [headers, *rows]:
        cells = [
            cell.rjust(width) if header in numbers else cell.ljust(width)
            for header, cell, width in zip(headers, row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _print_rich(headers: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, justify="right" if header in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)


def show_bytes(size: int) -> str:
    """Return ``12.3 MB``; units are powers of 1024, as in the options."""
    value = float(size)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def show_seconds(seconds: float) -> str:
    """Return the two largest units that matter: ``3h 20m``, ``45s``, ``120ms``."""
    if seconds < 1:
        return f"{max(0, seconds) * 1000:.0f}ms"
    whole = int(seconds)
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "m"), (whole % 60, "s")]
    first = next(i for i, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count}{unit}" for count, unit in parts[first : first + 2] if count)


def show_time(time_us: int | None) -> str:
    """Return a time in UTC to the second, or a dash."""
    if time_us is None:
        return "-"
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def iso_time(time_us: int | None) -> str | None:
    """Return a time as ISO 8601 in UTC, for JSON."""
    return None if time_us is None else datetime.fromtimestamp(time_us / 1_000_000, UTC).isoformat()


def show_us(duration_us: int | None) -> str:
    """Return a duration in microseconds for people, or a dash."""
    return "-" if duration_us is None else show_seconds(duration_us / 1_000_000)
