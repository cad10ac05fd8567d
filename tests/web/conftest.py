"""One service for the tests of this folder."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient
from web_models import LIMITS, served

from icgi.web.app import create_app


@pytest.fixture(scope="session")
def client(tmp_path_factory) -> Iterator[TestClient]:
    store: Path = tmp_path_factory.mktemp("serve") / "store.sqlite"
    app = create_app(served(), store, LIMITS)
    with TestClient(app, base_url="http://localhost") as made:
        made.jobs = app._app.state.service.jobs
        yield made


@pytest.fixture(scope="session")
def model(client) -> str:
    """Id of the served model, once it has been read."""
    for _ in range(600):
        found = client.get("/models").json()
        if found:
            return str(found[0]["id"])
        time.sleep(0.1)
    raise AssertionError("the model was not read")
