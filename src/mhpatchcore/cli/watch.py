"""`mhpatchcore watch MODEL INBOX --out OUTBOX`"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mhpatchcore.cli import options
from mhpatchcore.cli.console import counted, printable, warn
from mhpatchcore.cli.serve import read_token
from mhpatchcore.errors import UserError


def watch(
    model: str = options.argument("A model file, or one of a service: http://127.0.0.1:8080/v1/models/NAME"),
    inbox: Path = options.argument("The folder into which images are written."),
    out: Path = options.out("The folder for results, and for the journal.", "results/"),
    sort: bool = options.flag("--sort", "Move images into passed/, rejected/ and broken/ of that folder."),
    csv: Path = options.file("Add a line for every image to this CSV file."),
    mqtt: str = options.option(
        "Publish to mqtt://user:password@broker:1883/topic, or mqtts://.",
        metavar="URL",
        envvar="MHPATCHCORE_MQTT",
    ),
    webhook: str = options.option("Post every result there.", metavar="URL", envvar="MHPATCHCORE_WEBHOOK"),
    once: bool = options.flag("--once", "Judge what is there, and end."),
    settle: float = options.option(
        "A file is complete once it has not changed for so long.", default=1.0, min=0, metavar="SECONDS"
    ),
    done: str = options.option(
        "A file is complete once one with this ending is beside it: .done",
        default="",
        metavar="SUFFIX",
    ),
    token_file: options.TokenFile = None,
    device: options.Device = None,
    other_product: options.OtherProduct = False,
    status_port: int = options.option("Answer GET /health and /metrics at this port.", min=1, max=65535),
    status_host: str = options.option("The address to answer them at.", default="127.0.0.1"),
    workers: int = options.number("Threads (default: one per core)."),
    as_json: bool = options.flag("--json", "Print a line of JSON for every image."),
    quiet: bool = options.flag("--quiet", "Print nothing for images.", "-q"),
) -> None:
    """Judge images as they arrive in a folder: once each, also after a crash; results wait for a network that is gone.

    Example: mhpatchcore watch part.mhpc /line/camera --out /line/results --sort --mqtt mqtt://broker/line1
    """
    from mhpatchcore.deploy.serve.registry import Registry
    from mhpatchcore.deploy.watch import Line, Watch, outbox_for_one, services
    from mhpatchcore.deploy.watch.status import Status, answering
    from mhpatchcore.runtime.system import available_cores

    name = model.rstrip("/").rpartition("/")[2].removesuffix(".mhpc")
    senders = {"mqtt": services.mqtt(mqtt, f"mhpatchcore/{name}")} if mqtt else {}
    senders |= {"webhook": services.webhook(webhook)} if webhook else {}
    line = Line(inbox, out, sort, csv, settle, done, tuple(senders))
    line.check()
    models = None if model.startswith(("http://", "https://")) else Registry([Path(model)], other_product)
    if models is not None and len(models.served) != 1:
        raise UserError(f"{model} holds several models: give one of them")
    token = None if token_file is None else read_token(token_file)
    judge = services.by_service(model, token) if models is None else services.by_model(models)
    status = Status(warn)
    with ExitStack() as ending:
        journal = ending.enter_context(outbox_for_one(out))
        stop = ending.enter_context(_stopping())
        if status_port is not None:
            ending.enter_context(answering(status, journal, line.targets, status_host, status_port))
        watch = Watch(line, journal, judge, status, workers or available_cores(), once, stop)
        again = watch.finish_earlier()
        if again:
            warn(f"{counted(again, 'file')} of a run that was stopped: finished now")
        forwarding = [services.Forwarding(journal, target, send, status) for target, send in senders.items()]
        for told in watch.answers((lambda: None) if models is None else models.refresh):
            for one in forwarding:
                one.wake()
            _print(told, as_json, quiet)
        for one in forwarding:
            one.end()
        refused = sum(one.refused for one in forwarding)
        left, undone = journal.waiting(line.targets), ""
        if why := status.problems.get("judge") or status.problems.get("inbox"):
            undone = f"not all images were judged: {why}; run the command again"
        elif left:
            undone = f"{counted(left, 'message')} could not be sent: they wait for the next run"
        elif refused:
            undone = f"{counted(refused, 'message')} refused by the receiver: put aside in the journal"
        if undone and once:
            raise UserError(undone)
        if undone:
            warn(undone)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that a signal sets: what has begun is finished."""
    stop = threading.Event()
    before = {sig: signal.signal(sig, lambda *_: stop.set()) for sig in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)


def _print(told: dict[str, object], as_json: bool, quiet: bool) -> None:
    if as_json:
        print(json.dumps(told), flush=True)
    elif not quiet:
        score = told.get("score")
        shown = f"{score:9.4g}" if isinstance(score, float) else f"{'–':>9}"
        why = f"  ({told['reason']})" if "reason" in told else ""
        print(f"{shown}  {told['verdict']!s:<12}  {printable(str(told['image']))}{why}", flush=True)
