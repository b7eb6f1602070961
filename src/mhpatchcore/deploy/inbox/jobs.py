"""Proposals that are made in the background, one after the other, while a service goes on.

    queued → running → ready → accepting → accepted
                  ↘ failed  ↘ discarded

A proposal that is ready holds a whole model, so only the newest few are kept.
"""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any

from mhpatchcore.deploy.inbox import Inbox
from mhpatchcore.deploy.inbox.proposals import Proposal, Request, accept, propose
from mhpatchcore.errors import UserError, in_one_line
from mhpatchcore.fitting.execution import Execution

MOST_JOBS = 100  # that are remembered
MOST_READY = 4  # whose models are kept
OVER = ("accepted", "discarded", "failed")


class _StoppedError(Exception):
    """Somebody has discarded the job."""


class NoSuchJobError(UserError):
    """There is no job of this id, or it was long ago."""


class NotReadyError(UserError):
    """A job is asked for what it cannot give, not yet or no more."""


@dataclass
class Job:
    """One proposal on its way; `phase`, `done` and `total` tell how far it is."""

    id: str
    model: str
    request: Request
    state: str = "queued"
    phase: str = ""
    done: int = 0
    total: int = 0
    error: str = ""
    sha256: str = ""
    proposal: Proposal | None = field(default=None, repr=False)
    preview: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "model": self.model,
            "action": self.request.action,
            "state": self.state,
            "progress": {"phase": self.phase, "done": self.done, "total": self.total},
            "error": self.error or None,
            "sha256": self.sha256 or None,
            "preview": self.preview,
        }


class Jobs:
    """The jobs of a process. `workers` threads make a proposal; scoring goes on beside it."""

    def __init__(self, inbox: Inbox, workers: int = 1) -> None:
        self.inbox, self._workers = inbox, workers
        self._jobs: dict[str, Job] = {}
        self._lock = RLock()
        self._pool = ThreadPoolExecutor(1, "inbox")

    def start(self, path: Path, request: Request) -> Job:
        """Begin a proposal; those of others go on."""
        with self._lock:
            while len(self._jobs) >= MOST_JOBS:
                self._jobs.pop(next(iter(self._jobs)))
            job = self._jobs.setdefault(id := secrets.token_hex(8), Job(id, path.stem, request))
        self._pool.submit(self._run, job, path)
        return job

    def job(self, id: str) -> Job:
        with self._lock:
            if id not in self._jobs:
                raise NoSuchJobError(f"there is no job {in_one_line(id)}")
            return self._jobs[id]

    def accept(self, id: str) -> Job:
        """Put what a job proposes into use."""
        with self._lock:
            job = self.job(id)
            if job.state == "accepted":
                return job
            if job.state != "ready" or job.proposal is None:
                raise NotReadyError(
                    f"job {id} is {job.state}: {job.error or 'only one that is ready can be accepted'}"
                )
            job.state = "accepting"
        try:
            sha256 = accept(self.inbox, job.proposal)
        except BaseException:
            job.state = "ready"  # and can be tried again
            raise
        self._set(job, state="accepted", sha256=sha256, proposal=None)
        return job

    def discard(self, id: str, why: str = "") -> Job:
        """Forget a proposal; one that is being made stops."""
        with self._lock:
            job = self.job(id)
            if job.state not in (*OVER, "accepting"):
                self._set(job, state="discarded", error=why, proposal=None)
            return job

    def close(self) -> None:
        """Stop what is under way; nothing of it is written."""
        with self._lock:
            for id in self._jobs:
                self.discard(id)
        self._pool.shutdown(cancel_futures=True)

    def _run(self, job: Job, path: Path) -> None:
        def advance(phase: str, done: int, total: int) -> None:
            self._set(job, phase=phase, done=done, total=total)

        with suppress(_StoppedError):
            try:
                self._set(job, state="running")
                proposal = propose(self.inbox, path, job.request, Execution(self._workers, progress=advance))
                self._set(job, proposal=proposal, preview=proposal.preview.to_json(), state="ready")
                self._let_go_of_the_oldest()
            except UserError as error:
                self._set(job, state="failed", error=str(error))
            except _StoppedError:
                raise
            except Exception as error:  # a job that ends without a word would be waited for
                self._set(job, state="failed", error=f"it went wrong: {in_one_line(error)}")

    def _set(self, job: Job, **values: Any) -> None:
        with self._lock:
            if job.state in OVER:
                raise _StoppedError
            for name, value in values.items():
                setattr(job, name, value)

    def _let_go_of_the_oldest(self) -> None:
        with self._lock:
            for job in [one for one in self._jobs.values() if one.state == "ready"][:-MOST_READY]:
                self.discard(job.id, "newer previews have taken its room: look at a new one")
