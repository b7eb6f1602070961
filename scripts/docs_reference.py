"""The generated pages of the reference: a hook of mkdocs (`make docs`), and `python scripts/docs_reference.py FOLDER`.

The pages are made from what the program itself says and are not kept in the repository.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mhpatchcore.config import Setting

METHODS = ("get", "put", "post", "delete", "patch")


def commands() -> str:
    """Every command and option, also the rare ones, as typer describes them."""
    import typer
    from typer.cli import get_docs_for_click

    from mhpatchcore.cli.app import app
    from mhpatchcore.cli.console import SHOW_ALL

    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="mhpatchcore")
    context.meta[SHOW_ALL] = True
    _, _, text = get_docs_for_click(obj=command, ctx=context, name="mhpatchcore").partition("\n")
    return f"# Commands\n{text}"


def settings() -> str:
    """Every setting with its default, its range and what it does."""
    from mhpatchcore.config import SETTINGS, Config

    defaults = Config()
    rows = []
    for name, setting in SETTINGS.items():
        flags = setting.flags or ("--" + name.replace("_", "-"),)
        default = getattr(defaults, name)
        text = ",".join(map(str, default)) if isinstance(default, tuple) else default
        shown = "" if text in (None, "") else f"`{text}`"
        named = ", ".join(f"`{flag}`" for flag in flags)
        rows.append((f"`{name}`", named, shown, _range(setting), setting.help))
    return (
        "# Settings\n\nWhat decides a model: `Config` in Python, an option of `fit`, or a line in a TOML file "
        "(`--settings`). `mhpatchcore presets --json` lists the values of every preset.\n\n"
        + _table(("setting", "option", "default", "range", "what it does"), rows)
    )


def _range(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.limits:
        return "{:g} to {:g}".format(*setting.limits)
    return "0 to 1, or a percentage" if setting.share else ""


def python() -> str:
    """The public names, whose docstrings mkdocstrings puts in."""
    import mhpatchcore

    names = sorted(
        (name for name in mhpatchcore.__all__ if not name.startswith("_")),
        key=lambda name: name != "Detector",
    )
    blocks = "\n\n".join(f"::: mhpatchcore.{name}" for name in names)
    return f"# Python\n\nEverything that `mhpatchcore` exports. All else is internal and may change.\n\n{blocks}\n"


def http() -> str:
    """Every request of the service, from its OpenAPI document."""
    document = _openapi()
    lines = [
        "# HTTP",
        "",
        "Requests of `mhpatchcore serve`; a running service shows them at `/reference.html`.",
        "",
    ]
    for path, operations in document["paths"].items():
        for method in METHODS:
            if method in operations:
                lines += _request(f"{method.upper()} {path}", operations[method])
    return "\n".join(lines)


def _request(title: str, operation: dict[str, Any]) -> Iterator[str]:
    yield from (f"## `{title}`", "", operation.get("description") or operation.get("summary", ""), "")
    parameters = [
        (f"`{one['name']}`", one["in"], "yes" if one.get("required") else "", one.get("description", ""))
        for one in operation.get("parameters", ())
    ]
    if parameters:
        yield _table(("parameter", "in", "required", "meaning"), parameters)
    bodies = operation.get("requestBody", {}).get("content", {})
    if bodies:
        yield from ("Body: " + ", ".join(f"`{kind}`" for kind in bodies), "")
    yield f"Statuses: {', '.join(sorted(operation['responses']))}\n"


def _openapi() -> dict[str, Any]:
    """The document of a service, which needs a model: a small one of made-up images."""
    import numpy as np

    from mhpatchcore import Detector
    from mhpatchcore.deploy.serve.app import create_app

    images = list(np.random.default_rng(0).integers(0, 255, (6, 64, 64, 3), np.uint8))
    with TemporaryDirectory() as folder:
        model = Path(folder) / "part.mhpc"
        Detector.fit(images, preset="fast", sizes=64, K=16).save(model)
        return create_app([model]).openapi()


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    cells = [[" ".join(cell.replace("|", "\\|").split()) for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands,
    "settings.md": settings,
    "python.md": python,
    "http.md": http,
}


def on_files(files: Any, config: Any) -> Any:
    """mkdocs asks for this when it has found the pages in docs/."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        files.append(File.generated(config, f"reference/{name}", content=page()))
    return files


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        if name != "python.md":  # which mkdocstrings fills
            (folder / name).write_text(page(), encoding="utf-8")
