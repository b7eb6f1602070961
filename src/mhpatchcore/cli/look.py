"""`mhpatchcore look IMAGES --report look.html`"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from mhpatchcore.cli.console import (
    EveryOption,
    JsonFlag,
    QuietFlag,
    StackFlag,
    WorkersOption,
    counted,
    print_json,
    printable,
    progress_display,
    warn,
)
from mhpatchcore.cli.paths import check_file, given_images
from mhpatchcore.cli.settings import PresetOption, SettingsOption, settings_from, with_settings
from mhpatchcore.inputs.checks import Suggestion
from mhpatchcore.inputs.normals import normals_among
from mhpatchcore.inputs.sources import gather
from mhpatchcore.inputs.window import Window
from mhpatchcore.inspection.look import Look
from mhpatchcore.inspection.look import look as looked_at
from mhpatchcore.inspection.suggestions import shown_by_a_pixel, suggestions
from mhpatchcore.presets import preset as named
from mhpatchcore.runtime.parallel import available_cores

NAMED = 3


@with_settings
def look(
    normals: list[Path] = typer.Argument(
        ..., help="Images that are to be learnt from: whatever `fit` takes."
    ),
    report: Path = typer.Option(
        None, help="Write a page with the views and the suggestions into this HTML file."
    ),
    *,
    changes: dict[str, Any],
    stack: bool = StackFlag,
    every: int = EveryOption,
    settings: Path = SettingsOption,
    preset: str = PresetOption,
    as_json: bool = JsonFlag,
    quiet: bool = QuietFlag,
    workers: int = WorkersOption,
) -> None:
    """Look at images before a fit: what they are, what the network will see, and which settings suit them.

    Example: mhpatchcore look parts/good --report look.html

    Nothing is learnt. Settings are those of `fit`; those that change what is seen matter here.
    """
    config = settings_from(settings, changes, named(preset).config)
    check_file(report, "look.html")
    with progress_display(quiet) as progress:
        given = gather(given_images(normals, stack, every), as_given=not config.shuffle)
        given = normals_among(given, warn)
        found = looked_at(given, config, workers or available_cores(), progress)
    suggested = suggestions(found)
    if report is not None:
        from mhpatchcore.report.look import write_look_report

        write_look_report(found, suggested, report)
    if as_json:
        told = [{"what": one.what, "why": one.why, "options": one.options} for one in suggested]
        print_json(found.to_json() | {"suggestions": told, "report": report and str(report)})
    else:
        _print(found, suggested, report)


def _print(found: Look, suggested: Sequence[Suggestion], report: Path | None) -> None:
    print(f"{found.source}: {counted(len(found.images), 'image')}")
    print(f"  size        {_most(Counter({f'{w} × {h}': n for (h, w), n in found.sizes.items()}))}")
    print(f"  kind        {_most(found.kinds)}")
    window = found.config.window
    print(f"  values      {window.note if isinstance(window, Window) else window}")
    views = ", ".join(map(str, found.config.sizes))
    print(f"  views       {views}: a pixel of the finest shows {shown_by_a_pixel(found)}")
    for group in found.duplicates[:NAMED]:
        print(f"  duplicates  {', '.join(map(printable, group[:NAMED]))}{_more(len(group))}")
    if len(found.duplicates) > NAMED:
        print(f"              and {counted(len(found.duplicates) - NAMED, 'further group')}")
    for one in found.broken[:NAMED]:
        print(f"  broken      {one.why}")
    if len(found.broken) > NAMED:
        print(f"              and {counted(len(found.broken) - NAMED, 'further image')}")
    if suggested:
        print("suggested")
    for suggestion in suggested:
        options = f" ({suggestion.options})" if suggestion.options else ""
        print(f"  {suggestion.what}{options}: {suggestion.why}")
    print(f"open: {report}" if report is not None else "more: --report look.html shows the views")


def _most(kinds: Counter[str]) -> str:
    """The most frequent of some kinds, with their numbers.

    >>> _most(Counter(a=2, b=1))
    'a (2), b (1)'
    """
    if len(kinds) == 1:
        return next(iter(kinds))
    return ", ".join(f"{kind} ({n})" for kind, n in kinds.most_common(NAMED)) + _more(len(kinds))


def _more(n: int) -> str:
    return f" and {n - NAMED} more" if n > NAMED else ""
