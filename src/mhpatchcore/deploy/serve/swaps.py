"""What a model that has been swapped in makes of the last parts; a swap that is seen goes into the journal."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mhpatchcore.deploy.inbox.change import recover
from mhpatchcore.deploy.serve.images import as_source
from mhpatchcore.deploy.serve.parts import Part
from mhpatchcore.deploy.serve.registry import Registry, Served, Swap
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.errors import UserError

LAST = 12  # parts
log = logging.getLogger("mhpatchcore")


def follow_swaps(service: Service) -> None:
    """Record the models in service, and every one that takes the place of another."""
    for served in service.models.served:
        _record(service.models, served)

    def compared(served: Served) -> Swap | None:
        _record(service.models, served)
        return turned(service.parts.last(served.name, LAST), served)

    service.models.compared = compared


def turned(parts: Sequence[Part], served: Served) -> Swap | None:
    """How many of some parts have another verdict under this model; None where there are no parts."""
    if not parts:
        return None
    return Swap(len(parts), sum(_verdict(part, served) != part.answer["verdict"] for part in parts))


def _verdict(part: Part, served: Served) -> str:
    try:
        with as_source(part.sent.content) as source:
            return served.detector.score_opened(served.detector.opened(source)).verdict
    except UserError:  # images that the other model could read
        return "not scored"


def _record(models: Registry, served: Served) -> None:
    """Settle what a killed process has left, and write down which model is in use; verdicts do not depend on it."""
    journal, detector = models.inbox.journal, served.detector
    try:
        recover(journal, served.path)
        journal.found(served.name, served.sha256, detector.threshold, detector.model.product)
    except UserError as error:
        log.warning("%s: %s", served.name, error)
