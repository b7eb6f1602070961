"""Requests made from the OpenAPI document, sensible and not: none may break the service or its promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from services import Running, bad, png, running, write_model

schemathesis = pytest.importorskip("schemathesis")  # which only `dev` has
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.generation import GenerationMode  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
STREAM = "/v1/events"  # it does not end
EXAMPLES = 10


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(write_model(tmp_path_factory.mktemp("models") / "vial.mhpc")) as service:
        yield service


@pytest.fixture(scope="module")
def operations(service: Running) -> list[Any]:
    document = schemathesis.openapi.from_url(f"{service.url}/openapi.json").exclude(path=STREAM)
    return [found.ok() for found in document.get_all_operations()]


@pytest.mark.parametrize(
    "mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value
)
@pytest.mark.parametrize("name", ["vial", None], ids=["a model", "any name"])
def test_no_request_breaks_the_service(operations: list[Any], mode: GenerationMode, name: str | None) -> None:
    tried: set[str] = set()
    for operation in operations:
        if name is not None and "{name}" not in operation.path:
            continue

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def asked(case: Any) -> None:
            if name is not None:
                case.path_parameters["name"] = name
            tried.add(case.operation.label)
            case.call_and_validate(checks=CHECKS)

        with suppress(
            Unsatisfiable
        ):  # nothing can be wrong in a request that has neither body nor parameters
            asked()
    assert {"POST /v1/models/{name}/score", "PUT /v1/models/{name}/threshold"} <= tried


def test_bodies_around_an_image(service: Running) -> None:
    """What made-up bodies never are: nearly an image."""
    whole = png(bad())
    with httpx.Client(base_url=service.url) as client:
        for at in range(0, len(whole), max(1, len(whole) // 40)):
            damaged = whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
            for content in (damaged, whole[:at]):
                answer = client.post("/v1/models/vial/score", content=content)
                assert answer.status_code in (200, 422) and "/proc" not in answer.text
