"""Reads the ``partitionBy`` option into partition fields, on the driver, before any data moves."""

from __future__ import annotations

import re

from icefloe.errors import OptionError
from icefloe.schemas.transforms import WITH_PARAMETER, PartitionField, Transform, TransformKind

_MAX_PARAMETER = 2**31 - 1
# The spellings that Spark's own DDL has beside the spec's.
_ALIASES = {f"{kind.value}s": kind for kind in (TransformKind.YEAR, TransformKind.MONTH, TransformKind.DAY)} | {
    "hours": TransformKind.HOUR,
    "date": TransformKind.DAY,
    "date_hour": TransformKind.HOUR,
}


def parse_partition_by(text: str) -> tuple[PartitionField, ...]:
    """Read the ``partitionBy`` option: ``day(ts), bucket(16, user_id), truncate(4, name), region``.

    A column whose name holds blanks, commas, parentheses or backquotes stands in backquotes, doubled inside. The two
    arguments of bucket and truncate may come in either order. Empty text is no partitioning.

    Raises:
        OptionError: ICEFLOE_PARTITION_BY with the position of what was not understood, or the name given twice.
    """
    fields = _PartitionByParser(text).parse() if text.strip() else ()
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            raise OptionError(
                "ICEFLOE_PARTITION_BY", f"partitionBy={text!r} names partition field {field.name!r} twice: drop one."
            )
        seen.add(field.name)
    return fields


_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>[^\s`(),]+)|(?P<mark>[(),]))")


class _PartitionByParser:
    """A reader of one option text, token by token, that knows where each of them stands."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._start = 0

    def parse(self) -> tuple[PartitionField, ...]:
        fields = [self._field()]
        while self._text[self._at :].strip():
            self._expect(",")
            fields.append(self._field())
        return tuple(fields)

    def _field(self) -> PartitionField:
        name, quoted = self._word("a column or a transform")
        if quoted or not self._follows("("):
            transform = Transform(TransformKind.IDENTITY)
            return PartitionField(name, transform, transform.default_name(name))
        kind = self._kind(name)
        self._expect("(")
        arguments = [self._argument()]
        while self._follows(","):
            self._expect(",")
            arguments.append(self._argument())
        transform, source = self._arguments(kind, arguments)
        self._expect(")")
        return PartitionField(source, transform, transform.default_name(source))

    def _kind(self, name: str) -> TransformKind:
        lowered = name.lower()
        if lowered in _ALIASES:
            return _ALIASES[lowered]
        if lowered not in set(TransformKind) or lowered == TransformKind.VOID:
            known = ", ".join(kind for kind in TransformKind if kind is not TransformKind.VOID)
            raise self._error(f"{name!r} is not a transform (known: {known})")
        return TransformKind(lowered)

    def _argument(self) -> tuple[str, bool]:
        return self._word("a column or a number")

    def _arguments(self, kind: TransformKind, arguments: list[tuple[str, bool]]) -> tuple[Transform, str]:
        numbers = [word for word, quoted in arguments if not quoted and word.isascii() and word.isdigit()]
        columns = [word for word, quoted in arguments if quoted or not (word.isascii() and word.isdigit())]
        wanted = 1 if kind in WITH_PARAMETER else 0
        if len(columns) != 1 or len(numbers) != wanted:
            usage = f"{kind}(n, column)" if wanted else f"{kind}(column)"
            raise self._error(f"{kind} is written {usage}")
        if not wanted:
            return Transform(kind), columns[0]
        if not 1 <= int(numbers[0]) <= _MAX_PARAMETER:
            raise self._error(f"{kind} takes a number from 1 to {_MAX_PARAMETER}, not {numbers[0]}")
        return Transform(kind, int(numbers[0])), columns[0]

    def _word(self, what: str) -> tuple[str, bool]:
        token = self._next()
        if token is None or token["mark"] is not None:
            raise self._error(f"{what} is expected")
        if token["quoted"] is not None:
            return token["quoted"][1:-1].replace("``", "`"), True
        return token["word"], False

    def _expect(self, mark: str) -> None:
        token = self._next()
        if token is None or token["mark"] != mark:
            raise self._error(f"{mark!r} is expected")

    def _follows(self, mark: str) -> bool:
        return self._text[self._at :].lstrip().startswith(mark)

    def _next(self) -> re.Match[str] | None:
        rest = self._text[self._at :]
        self._start = self._at + len(rest) - len(rest.lstrip())
        token = _TOKEN.match(self._text, self._at)
        if token is not None:
            self._at = token.end()
        return token

    def _error(self, what: str) -> OptionError:
        return OptionError("ICEFLOE_PARTITION_BY", f"partitionBy={self._text!r}, position {self._start + 1}: {what}.")
