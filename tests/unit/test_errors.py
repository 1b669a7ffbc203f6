"""The error tree: its shape, its codes, and that it survives the way between processes."""

from __future__ import annotations

import inspect
import pickle

import pytest

from icefloe import errors
from icefloe.errors import IcefloeError, StateVersionError

TREE = {
    "OptionError": ("IcefloeError", "ValueError"),
    "SchemaError": ("IcefloeError", "ValueError"),
    "ConflictError": ("IcefloeError",),
    "FencedError": ("ConflictError",),
    "CommitUnknownError": ("IcefloeError",),
    "StorageError": ("IcefloeError",),
    "NotFoundError": ("StorageError",),
    "StateError": ("IcefloeError",),
    "CorruptStateError": ("StateError",),
    "StateVersionError": ("StateError",),
}


def error_classes() -> list[type[IcefloeError]]:
    members = inspect.getmembers(errors, inspect.isclass)
    return [kind for _, kind in members if issubclass(kind, IcefloeError)]


def make(kind: type[IcefloeError]) -> IcefloeError:
    if issubclass(kind, StateVersionError):
        return kind("ICEFLOE_CODE", "what happened", found=9, supported=1, object_name="job.metadata")
    return kind("ICEFLOE_CODE", "what happened")


def test_the_tree_is_the_documented_one() -> None:
    found = {kind.__name__: tuple(parent.__name__ for parent in kind.__bases__) for kind in error_classes()}
    assert found.pop("IcefloeError") == ("Exception",)
    assert found == TREE


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_text_starts_with_the_code(kind: type[IcefloeError]) -> None:
    assert str(make(kind)) == "ICEFLOE_CODE: what happened"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_pickling_keeps_type_text_and_every_attribute(kind: type[IcefloeError], protocol: int) -> None:
    before = make(kind)
    after = pickle.loads(pickle.dumps(before, protocol))
    assert type(after) is kind
    assert str(after) == str(before)
    assert vars(after) == vars(before)


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_every_error_says_what_its_handler_should_know(kind: type[IcefloeError]) -> None:
    assert kind.__dict__.get("__doc__")
