"""What the routes of the inbox share: its jobs, bodies that are JSON objects, and a status for what can be wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from mhpatchcore.deploy.inbox.change import ModelChangedError, NotWrittenError
from mhpatchcore.deploy.inbox.file import InboxError
from mhpatchcore.deploy.inbox.jobs import Jobs, NoSuchJobError, NotReadyError
from mhpatchcore.deploy.inbox.parts import NoSuchPartError
from mhpatchcore.deploy.serve.bodies import json_of
from mhpatchcore.deploy.serve.refusals import Refused, of_user_error, unknown, unreadable
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.deploy.serve.v1 import service_of
from mhpatchcore.errors import UserError
from mhpatchcore.model.history import OtherProductError
from mhpatchcore.runtime.texts import without_paths

Out = TypeVar("Out")
log = logging.getLogger("mhpatchcore")


def jobs_of(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs


Known = Annotated[Service, Depends(service_of)]
Working = Annotated[Jobs, Depends(jobs_of)]


async def done(work: Callable[[], Out]) -> Out:
    """Do what takes a file, beside the event loop; what can be wrong has a status."""
    try:
        return await asyncio.to_thread(work)
    except NoSuchPartError as error:
        raise unknown("such part in the inbox") from error
    except NoSuchJobError as error:
        raise unknown("such job") from error
    except (ModelChangedError, NotReadyError, OtherProductError) as error:
        raise Refused(409, "changed", str(without_paths(str(error)))) from error
    except (InboxError, NotWrittenError) as error:
        refused = of_user_error(error)
        if refused.status == 507:
            raise refused from error
        log.error("nothing was changed: %s", error)
        raise Refused(503, "not written", refused.message, {"Retry-After": "5"}) from error
    except UserError as error:
        raise of_user_error(error) from error


async def object_of(request: Request, service: Service) -> dict[str, Any]:
    """The JSON object in a body."""
    asked = await json_of(request, service.limits)
    if not isinstance(asked, dict):
        raise unreadable('the body is a JSON object, for example {"label": "good"}')
    return asked


def text_of(asked: dict[str, Any], name: str) -> str:
    value = asked.get(name, "")
    if not isinstance(value, str):
        raise unreadable(f"{name} is a text")
    return value
