"""Every error that Icefloe raises, grouped by what the person or program that catches it should do.

Spark hands an error of a Python worker on as text, so ``str(error)`` always starts with a stable code.
"""

from __future__ import annotations


class IcefloeError(Exception):
    """The root of the tree. ``code`` is stable across releases; the text after it is for people.

    All errors survive pickling: Spark and ``multiprocessing`` move them between processes.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class OptionError(IcefloeError, ValueError):
    """The configuration is wrong: change an option and start again."""


class SchemaError(IcefloeError, ValueError):
    """The stream and the table do not fit each other: change one of them."""


class ConflictError(IcefloeError):
    """Another writer won, or two histories disagree. Nothing was written; both sides are named."""


class FencedError(ConflictError):
    """A newer driver owns this job. Stop: going on would only leave garbage."""


class CommitUnknownError(IcefloeError):
    """A commit may have landed. Look before doing anything, and never delete what it names."""


class StorageError(IcefloeError):
    """The environment failed (disk, network, permissions) after bounded retries."""


class NotFoundError(StorageError):
    """An object that was asked for by name is not there."""


class StateError(IcefloeError):
    """The root of what the state layer raises about its own stored bytes or its use."""


class CorruptStateError(StateError):
    """Stored bytes do not parse, or do not match their checksum, or name something that is gone."""


class StateVersionError(StateError):
    """Stored state is of a version that this release does not read."""

    def __init__(self, code: str, message: str, *, found: int, supported: int, object_name: str) -> None:
        super().__init__(code, message)
        self.found = found
        self.supported = supported
        self.object_name = object_name

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_version_error, (self.code, self.message, self.found, self.supported, self.object_name))


def _rebuild_version_error(code: str, message: str, found: int, supported: int, object_name: str) -> StateVersionError:
    return StateVersionError(code, message, found=found, supported=supported, object_name=object_name)
