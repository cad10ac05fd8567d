"""The service against its own OpenAPI description, with questions that nobody would think of."""

import pytest
from browser import service
from hypothesis import HealthCheck, given, settings
from web_models import LIMITS, served

from icgi.web.app import create_app, model_id

pytestmark = pytest.mark.slow
EXAMPLES = 30  # for each route


@pytest.mark.parametrize("about", ["anything", "the served model"])
def test_nothing_is_found(tmp_path, about) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    pytest.importorskip("schemathesis.specs.openapi.checks")
    # what a model text or a name means is beyond a schema: such questions are refused with 422
    beyond = schemathesis.specs.openapi.checks.positive_data_acceptance
    app = create_app(served(), tmp_path / "s.sqlite", LIMITS)
    ident = model_id(served()[0].suffix, served()[0].content)
    tried = 0

    def aimed(case) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = ident
        if case.path.startswith("/models/") and case.path_parameters:
            case.path_parameters["ident"] = ident

    with service(app) as address:
        schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
        for found in schema.get_all_operations():

            @given(case=found.ok().as_strategy())
            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
            )
            def check(case) -> None:
                nonlocal tried
                if about == "the served model":
                    aimed(case)
                case.call_and_validate(timeout=60, excluded_checks=[beyond])
                tried += 1

            check()
    assert tried > 10 * EXAMPLES
