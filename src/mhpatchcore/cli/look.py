"""`mhpatchcore look IMAGES --report look.html`"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from mhpatchcore.cli import options
from mhpatchcore.cli.command import Answer, Run, command
from mhpatchcore.cli.console import counted, labelled, warn
from mhpatchcore.cli.paths import given_images
from mhpatchcore.config import SEEN, THRESHOLD, Config
from mhpatchcore.inputs.checks import Suggestion, normals_among
from mhpatchcore.inputs.sources import gather
from mhpatchcore.inputs.window import Window
from mhpatchcore.inspection.look import Look, suggestions
from mhpatchcore.inspection.look import look as looked_at

NAMED = 3


@command("workers", panels=(SEEN, THRESHOLD))
def look(
    normals: list[Path] = options.argument("Images that are to be learnt from: whatever `fit` takes."),
    report: Path = options.output("Write an HTML page with the views and the suggestions.", "look.html"),
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
    window = found.config.window
    views = ", ".join(map(str, found.config.sizes))
    groups = [", ".join(group[:NAMED]) + _more(len(group)) for group in found.duplicates]
    broken = list(found.broken.values())
    yield f"{found.source}: {counted(len(found.images), 'image')}"
    yield from labelled(
        ("size", _most(Counter({f"{w} × {h}": n for (h, w), n in found.sizes.items()}))),
        ("kind", _most(found.kinds)),
        ("values", window.note if isinstance(window, Window) else str(window)),
        ("views", f"{views}: a pixel of the finest shows {found.shown_by_a_pixel}"),
        ("duplicates", _first(groups, "further group")),
        ("broken", _first(broken, "further image")),
    )
    if suggested:
        yield "suggested"
    for suggestion in suggested:
        options = f" ({suggestion.options})" if suggestion.options else ""
        yield f"  {suggestion.what}{options}: {suggestion.why}"
    yield f"open: {report}" if report is not None else "more: --report look.html shows the views"


def _first(lines: Sequence[str], thing: str) -> list[str]:
    """A few lines, and how many more things there are."""
    left = len(lines) - NAMED
    return [*lines[:NAMED], f"and {counted(left, thing)}" if left > 0 else ""]


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
