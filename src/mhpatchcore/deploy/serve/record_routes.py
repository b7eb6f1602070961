"""The record of all verdicts, as a file to be downloaded."""

from __future__ import annotations

import asyncio
from datetime import datetime
from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response, StreamingResponse

from mhpatchcore.deploy.record import Query as Wanted
from mhpatchcore.deploy.record import verdicts
from mhpatchcore.deploy.record_export import EXPORTS, MEDIA, Format
from mhpatchcore.deploy.serve import schema
from mhpatchcore.deploy.serve.refusals import of_user_error, unknown
from mhpatchcore.deploy.serve.service import Service
from mhpatchcore.deploy.serve.v1 import check_token, service_of
from mhpatchcore.errors import UserError

MOST = 2**62
Known = Annotated[Service, Depends(service_of)]
router = APIRouter(prefix="/v1", tags=["record"], dependencies=[Depends(check_token)])


@router.get("/verdicts", response_class=Response, responses=schema.problems(404, 422, 507))
async def all_verdicts(
    service: Known,
    format: Format = "jsonl",
    since: Annotated[
        datetime | None, Query(description="From this time on; UTC, if it has no offset.")
    ] = None,
    until: Annotated[datetime | None, Query(description="Before this time.")] = None,
    model: str | None = None,
    verdict: schema.Verdict | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST, description="The first so many.")] = MOST,
) -> Response:
    """Every verdict that was given, the oldest first: JSON lines, CSV or Parquet."""
    if service.record is None:
        raise unknown("record: the service was started without one")
    answers = verdicts(service.record.path, Wanted(since, until, model, verdict, limit))
    headers = {
        "Content-Disposition": f'attachment; filename="verdicts.{format}"',
        "Cache-Control": "no-store",
    }
    pieces = EXPORTS[format](answers)
    try:
        first = await asyncio.to_thread(
            next, pieces, b""
        )  # what can be wrong is so before anything is answered
    except UserError as error:
        raise of_user_error(error) from error
    return StreamingResponse(chain([first], pieces), media_type=MEDIA[format], headers=headers)
