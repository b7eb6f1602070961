"""`mhpatchcore look IMAGES --report look.html`"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted, printable, warn
from mhpatchcore.cli.paths import check_file, given_images
from mhpatchcore.config import SEEN, THRESHOLD, Config
from mhpatchcore.inputs.checks import Suggestion, normals_among
from mhpatchcore.inputs.sources import gather
from mhpatchcore.inputs.window import Window
from mhpatchcore.inspection.look import Look, suggestions
from mhpatchcore.inspection.look import look as looked_at

NAMED = 3


@command("workers", panels=(SEEN, THRESHOLD))
def look(
    normals: list[Path] = typer.Argument(
        ..., help="Images that are to be learnt from: whatever `fit` takes."
    ),
    report: Path = typer.Option(
        None, help="Write a page with the views and the suggestions into this HTML file."
    ),
    *,
    config: Config,
    stack: options.Stack = False,
    every: options.Every = 1,
    run: Run,
) -> Answer:
    """Look at images before a fit: what they are, what the network will see, and which settings suit them.

    Example: mhpatchcore look parts/good --report look.html

    Nothing is learnt. Settings are those of `fit` about what the network sees and about the threshold.
    """
    check_file(report, "look.html")
    given = gather(given_images(normals, stack, every), as_given=not config.shuffle)
    given = normals_among(given, warn)
    found = looked_at(given, config, run.execution.workers, run.execution.progress)
    suggested = suggestions(found)
    if report is not None:
        from mhpatchcore.report.look import write_look_report

        write_look_report(found, suggested, report)
    described = [{"what": one.what, "why": one.why, "options": one.options} for one in suggested]
    facts = found.to_json() | {"suggestions": described, "report": report and str(report)}
    return Answer(facts, _lines(found, suggested, report))


def _lines(found: Look, suggested: Sequence[Suggestion], report: Path | None) -> Iterator[str]:
    yield f"{found.source}: {counted(len(found.images), 'image')}"
    yield f"  size        {_most(Counter({f'{w} × {h}': n for (h, w), n in found.sizes.items()}))}"
    yield f"  kind        {_most(found.kinds)}"
    window = found.config.window
    yield f"  values      {window.note if isinstance(window, Window) else window}"
    views = ", ".join(map(str, found.config.sizes))
    yield f"  views       {views}: a pixel of the finest shows {found.shown_by_a_pixel}"
    for group in found.duplicates[:NAMED]:
        yield f"  duplicates  {', '.join(map(printable, group[:NAMED]))}{_more(len(group))}"
    if len(found.duplicates) > NAMED:
        yield f"              and {counted(len(found.duplicates) - NAMED, 'further group')}"
    for why in list(found.broken.values())[:NAMED]:
        yield f"  broken      {why}"
    if len(found.broken) > NAMED:
        yield f"              and {counted(len(found.broken) - NAMED, 'further image')}"
    if suggested:
        yield "suggested"
    for suggestion in suggested:
        options = f" ({suggestion.options})" if suggestion.options else ""
        yield f"  {suggestion.what}{options}: {suggestion.why}"
    yield f"open: {report}" if report is not None else "more: --report look.html shows the views"


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
