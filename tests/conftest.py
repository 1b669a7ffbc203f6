"""Fixtures that every folder of tests may use: real services on loopback, and Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.s3_service import Bucket, S3Service
    from support.seaweed import Seaweed

# A developer's own AWS settings must neither reach a test nor be needed by one; loopback never goes through a proxy.
for _name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[_name]
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
# Spark's Python workers import `support` too when a test hands them a function of it.
os.environ["PYTHONPATH"] = os.pathsep.join(
    part for part in (str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")) if part
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `pytest -n`, share the tests out by the services that they start."""
    from support.parallel import ByService

    return ByService(config, log)


@pytest.fixture(scope="session")
def moto_service() -> Iterator[S3Service]:
    """moto's S3 and Glue, one server per test process."""
    from support.moto_server import running_moto

    with running_moto() as service:
        yield service


@pytest.fixture(scope="session")
def moto_url(moto_service: S3Service) -> str:
    """The address of moto's S3 and Glue."""
    return moto_service.endpoint


@pytest.fixture
def moto_bucket(moto_service: S3Service) -> Bucket:
    """An empty bucket of this test's own on moto: ``.name``, ``.url`` and plain ``.options``."""
    return moto_service.new_bucket()


@pytest.fixture(scope="session")
def seaweed() -> Iterator[Seaweed]:
    """SeaweedFS: ``.s3`` and ``.iceberg_uri``, one server per test process."""
    from support.seaweed import running_seaweed

    with running_seaweed() as service:
        yield service


@pytest.fixture
def seaweed_bucket(seaweed: Seaweed) -> Bucket:
    """An empty bucket of this test's own on SeaweedFS: ``.name``, ``.url`` and plain ``.options``."""
    return seaweed.s3.new_bucket()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of this test process: ``local[2]``, no UI, UTC."""
    from support.spark_session import running_spark

    with running_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session
