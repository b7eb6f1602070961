"""The ground plan: rooms import only what lies before them on the way of the data, and never in a circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import mhpatchcore

SOURCE = Path(mhpatchcore.__file__).parent
PACKAGE = "mhpatchcore"

# rooms of one line may import each other's modules; every room may import those of the lines above
ORDER: tuple[tuple[str, ...], ...] = (
    ("", "errors", "reference"),  # the package itself, which knows its version; the paper in plain numpy
    ("runtime",),
    ("inputs",),
    ("backbone",),
    ("metric",),
    ("config", "presets"),
    ("bank",),
    ("scoring",),
    ("calibration",),
    ("model", "result", "results"),
    ("fitting",),
    ("inspection",),
    ("detector",),
    ("evaluation",),
    ("report",),
    ("experiments", "demo"),
    ("deploy",),
    ("batch",),
    ("integrations",),
    ("cli",),
    ("__main__",),
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}

# imports within functions, each for the sake of the start: what is heavy and not always needed comes when it is
LATE = {
    ("backbone", "backbone.building"),  # the ONNX tools build a graph, and are not needed to run one
    ("backbone", "backbone.custom"),
    ("fitting.fit", "backbone.quantising"),  # half a second
}
# doors of the public classes to rooms behind them, opened when somebody asks
DOORS = {
    ("detector", "deploy.export"),
    ("detector", "evaluation.evaluate"),
    ("detector", "report.fit"),
    ("inspection.evidence", "report.evidence"),
    ("result", "report.drawing"),
}
# a command imports what it needs and `--help` nothing; an experiment measures memory before anything is imported
LATE_ROOMS = {"cli", "experiments"}


def modules() -> dict[str, ast.Module]:
    """All modules by their name within the package; "" is the package itself."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


MODULES = modules()


def imported(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """The modules of the package that are imported anywhere below a node."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a module lies"
            module = (node.module or "").split(".")
            if module[0] == PACKAGE:
                base = ".".join(module[1:])
                for alias in node.names:
                    inner = f"{base}.{alias.name}".strip(".")
                    yield node, inner if inner in MODULES else base
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    yield node, ".".join(alias.name.split(".")[1:])


def for_types_alone(tree: ast.Module) -> set[ast.stmt]:
    """Statements under `if TYPE_CHECKING`, which never run."""
    found: set[ast.stmt] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            found |= {inner for inner in ast.walk(node) if isinstance(inner, ast.stmt)}
    return found


def late(tree: ast.Module) -> list[str]:
    """What is imported within functions."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return sorted({name for function in functions for _, name in imported(function)})


def room(module: str) -> str:
    return module.split(".")[0]


@pytest.mark.parametrize("module", MODULES, ids=lambda name: name or PACKAGE)
def test_a_module_imports_only_what_lies_before_it(module: str) -> None:
    assert room(module) in LEVEL, f"{module} is in no room of the plan"
    types = for_types_alone(MODULES[module])
    for node, name in imported(MODULES[module]):
        # the package tells a type checker the names that it imports only when they are asked for
        if not (module == "" and node in types) and (module, name) not in DOORS:
            assert LEVEL[room(name)] <= LEVEL[room(module)], f"{module} imports {name}, which lies behind it"


def test_nothing_goes_round_in_circles() -> None:
    graph = {}
    for module, tree in MODULES.items():
        types = for_types_alone(tree)
        graph[module] = {
            name
            for node, name in imported(tree)
            if node not in types and name not in (module, "") and (module, name) not in DOORS
        }
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError, with the circle
    assert set(MODULES) <= set(order)


def test_imports_within_functions_are_the_few_that_save_time_at_the_start() -> None:
    found = {(module, name) for module, tree in MODULES.items() for name in late(tree)}
    assert {pair for pair in found if room(pair[0]) not in LATE_ROOMS} == LATE | DOORS


def test_the_walk_of_an_image_never_goes_back() -> None:
    """CONTRIBUTING.md names modules that exist, in the order of their rooms."""
    page = Path(__file__).parents[1] / "CONTRIBUTING.md"
    if not page.is_file():
        pytest.skip("the docs are not here")
    section = page.read_text(encoding="utf-8").partition("### The walk of an image")[2]
    walk = re.findall(r"`(\w+)/(\w+)\.py`", section.partition("| module |")[2].partition("A new image")[0])
    assert {f"{room}.{module}" for room, module in walk} <= set(MODULES)
    levels = [LEVEL[room] for room, _ in walk]
    assert len(levels) > 15 and levels == sorted(levels)
