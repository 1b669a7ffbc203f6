"""How the text of one option becomes a value: sizes, durations, flags and choices, refused with what would be right."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from icefloe.errors import OptionError

T = TypeVar("T")
Parser = Callable[[str, str], T]

_SIZE = re.compile(r"(\d+)\s*(b|kb|mb|gb)?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d)", re.IGNORECASE)
_DURATION_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_FLAGS = {"true": True, "false": False}


def _refuse(key: str, text: str, expected: str) -> OptionError:
    return OptionError("ICEFLOE_OPTION_VALUE", f"option {key!r} is {text!r}, but must be {expected}")


def parse_text(key: str, text: str) -> str:
    """Return the text itself; an empty one is refused."""
    if not text.strip():
        raise _refuse(key, text, "a text that is not empty")
    return text.strip()


def parse_size(key: str, text: str) -> int:
    """Return bytes from ``512MB``, ``1 GB`` or a bare number of bytes; units are powers of 1024, as in Spark."""
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) * _SIZE_UNITS[(match[2] or "").lower()] if match else 0
    if size <= 0:
        raise _refuse(key, text, "a size above 0 such as 128MB (KB, MB, GB, or a bare number of bytes)")
    return size


def parse_duration(key: str, text: str) -> timedelta:
    """Return the duration of ``250ms``, ``30s``, ``15m``, ``2h`` or ``1d``."""
    match = _DURATION.fullmatch(text.strip())
    duration = int(match[1]) * _DURATION_UNITS[match[2].lower()] if match else timedelta(0)
    if duration <= timedelta(0):
        raise _refuse(key, text, "a time above 0 such as 15m (ms, s, m, h, d)")
    return duration


def parse_flag(key: str, text: str) -> bool:
    """Return true or false; nothing else counts."""
    flag = _FLAGS.get(text.strip().lower())
    if flag is None:
        raise _refuse(key, text, "true or false")
    return flag


def parse_count(key: str, text: str) -> int:
    """Return a whole number of 1 or more."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise _refuse(key, text, "a whole number of 1 or more")
    return int(text)


def parse_level(key: str, text: str) -> int:
    """Return a compression level, which may be negative for some codecs."""
    if not re.fullmatch(r"-?\d+", text.strip()):
        raise _refuse(key, text, "a whole number")
    return int(text)


def one_of(*choices: str) -> Parser[str]:
    """Return a parser that takes exactly these words, in any case."""

    def parse(key: str, text: str) -> str:
        word = text.strip().lower()
        if word not in choices:
            raise _refuse(key, text, "one of " + ", ".join(choices))
        return word

    return parse
