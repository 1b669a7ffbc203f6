"""The checked-in protobuf code is what the pinned compiler makes of the .proto files."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "proto").glob("*.proto"))
GENERATED = [f"{source.stem}_pb2{suffix}" for source in SOURCES for suffix in (".py", ".pyi")]


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generated")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-Iicefloe/proto={ROOT / 'proto'}"]
    command += [f"--python_out={out}", f"--pyi_out={out}", *(f"icefloe/proto/{source.name}" for source in SOURCES)]
    subprocess.run(command, check=True, cwd=out)
    return out / "icefloe" / "proto"


@pytest.mark.parametrize("name", GENERATED)
def test_checked_in_code_is_what_make_proto_would_write(name: str, regenerated: Path) -> None:
    stale = (ROOT / "proto" / name).read_text() != (regenerated / name).read_text()
    assert not stale, f"proto/{name} is stale: run `make proto` and commit the result"


def test_no_generated_file_is_left_of_a_proto_file_that_is_gone() -> None:
    assert sorted(path.name for path in (ROOT / "proto").glob("*_pb2*")) == sorted(GENERATED)


def test_the_compiler_is_the_pinned_one() -> None:
    # Code from a newer compiler refuses to load on the oldest protobuf that pyproject.toml allows.
    assert version("grpcio-tools") == "1.75.1"
    assert "# Protobuf Python Version: 6.31.1" in (ROOT / "proto" / "state_pb2.py").read_text()
    assert '"protobuf>=6.31.1"' in (ROOT / "pyproject.toml").read_text()
