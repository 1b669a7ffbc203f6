"""PyIceberg stays on the driver: it costs a task its first second, and state must outlive it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import icefloe

ROOT = Path(icefloe.__file__).parent
FOLDERS = ("connector", "state", "schemas", "proto")
# The only module besides the iceberg_* ones that may load them when it is imported; tasks never import it.
DRIVER_ONLY = {"icefloe.connector.table_target"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).resolve().glob("*.py")):
            yield f"icefloe.{folder}.{path.stem}", ast.parse(path.read_text())


def imported(nodes: Iterator[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def is_iceberg(module: str) -> bool:
    return module.startswith("icefloe.connector.iceberg_")


def test_only_the_iceberg_modules_import_pyiceberg_even_inside_functions() -> None:
    users = {name for name, tree in modules() if any(n.split(".")[0] == "pyiceberg" for n in imported(ast.walk(tree)))}
    assert users
    assert all(is_iceberg(name) for name in users), sorted(users)


def test_nothing_but_the_drivers_table_target_loads_them_on_import() -> None:
    loaders = {name for name, tree in modules() if any(is_iceberg(n) for n in imported(iter(tree.body)))}
    assert {name for name in loaders if not is_iceberg(name)} <= DRIVER_ONLY


def test_nothing_loads_the_table_target_on_import() -> None:
    loaders = {name for name, tree in modules() if DRIVER_ONLY & imported(iter(tree.body))}
    assert not loaders
