"""Networks that are refused before anything runs them; hostile files as a whole are in tests/attacks."""

from __future__ import annotations

import pytest
from onnx import ModelProto, helper

from mhpatchcore.backbone.custom import check_functions_end

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def with_functions(**calls: str) -> ModelProto:
    """A network with functions of which each consists of one call."""
    functions = [
        helper.make_function(
            "own", name, ["x"], ["y"], [helper.make_node(called, ["x"], ["y"], domain="own")], OPSETS
        )
        for name, called in calls.items()
    ]
    return helper.make_model(helper.make_graph([], "none", [], []), functions=functions)


def test_functions_that_call_each_other_in_a_circle_are_refused() -> None:
    with pytest.raises(ValueError, match="calls itself"):
        check_functions_end(with_functions(One="One"))
    with pytest.raises(ValueError, match="calls itself"):
        check_functions_end(with_functions(One="Two", Two="Three", Three="One"))


def test_functions_may_call_others() -> None:
    check_functions_end(with_functions(One="Three", Two="Three", Three="Elsewhere"))
    check_functions_end(with_functions())
