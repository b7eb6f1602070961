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
from typing import Any, Literal

from mhpatchcore.deploy.inbox import Inbox
from mhpatchcore.deploy.inbox.proposals import Action, Preview, Proposal, Request, accept, propose
from mhpatchcore.errors import UserError, in_one_line
from mhpatchcore.fitting.execution import Execution

MOST_JOBS = 100  # that are remembered
MOST_READY = 4  # whose models are kept
State = Literal["queued", "running", "ready", "accepting", "accepted", "discarded", "failed"]
OVER = ("accepted", "discarded", "failed")


class _StoppedError(Exception):
    """Somebody has discarded the job."""


class NoSuchJobError(UserError):
    """There is no job of this id, or it was long ago."""


class NotReadyError(UserError):
    """A job is asked for what it cannot give, not yet or no more."""


@dataclass
class Job:
    """A proposal: queued, running, ready, then accepted or discarded; or failed. Once ready it has a `preview`."""

    id: str
    model: str
    action: Action
    state: State = "queued"
    progress: dict[str, int | str] = field(default_factory=lambda: {"phase": "", "done": 0, "total": 0})
    error: str | None = None
    sha256: str | None = None
    preview: Preview | None = None


class Jobs:
    """The jobs of a process. `workers` threads make a proposal; scoring goes on beside it."""

    def __init__(self, inbox: Inbox, workers: int = 1) -> None:
        self.inbox, self._workers = inbox, workers
        self._jobs: dict[str, Job] = {}
        self._proposals: dict[str, Proposal] = {}  # of jobs that are ready
        self._lock = RLock()
        self._pool = ThreadPoolExecutor(1, "inbox")

    def start(self, path: Path, request: Request) -> Job:
        """Begin a proposal; those of others go on."""
        with self._lock:
            while len(self._jobs) >= MOST_JOBS:
                self._jobs.pop(next(iter(self._jobs)))
            job = Job(secrets.token_hex(8), path.stem, request.action)
            self._jobs[job.id] = job
        self._pool.submit(self._run, job, path, request)
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
            if job.state != "ready":
                raise NotReadyError(
                    f"job {id} is {job.state}: {job.error or 'only one that is ready can be accepted'}"
                )
            job.state = "accepting"
        try:
            sha256 = accept(self.inbox, self._proposals[id])
        except BaseException:
            job.state = "ready"  # and can be tried again
            raise
        self._set(job, state="accepted", sha256=sha256)
        return job

    def discard(self, id: str, why: str | None = None) -> Job:
        """Forget a proposal; one that is being made stops."""
        with self._lock:
            job = self.job(id)
            if job.state not in (*OVER, "accepting"):
                self._set(job, state="discarded", error=why)
            return job

    def close(self) -> None:
        """Stop what is under way; nothing of it is written."""
        with self._lock:
            for id in self._jobs:
                self.discard(id)
        self._pool.shutdown(cancel_futures=True)

    def _run(self, job: Job, path: Path, request: Request) -> None:
        def advance(phase: str, done: int, total: int) -> None:
            self._set(job, progress={"phase": phase, "done": done, "total": total})

        try:
            self._set(job, state="running")
            proposal = propose(self.inbox, path, request, Execution(self._workers, progress=advance))
            with self._lock:
                self._set(job, preview=proposal.preview, state="ready")
                self._proposals[job.id] = proposal
                for old in [one for one in self._jobs.values() if one.state == "ready"][:-MOST_READY]:
                    self.discard(old.id, "newer previews have taken its room: look at a new one")
        except _StoppedError:
            pass
        except Exception as error:  # a job that ends without a word would be waited for
            why = str(error) if isinstance(error, UserError) else f"it went wrong: {in_one_line(error)}"
            with suppress(_StoppedError):
                self._set(job, state="failed", error=why)

    def _set(self, job: Job, **values: Any) -> None:
        with self._lock:
            if job.state in OVER:
                raise _StoppedError
            for name, value in values.items():
                setattr(job, name, value)
            if job.state in OVER:
                self._proposals.pop(job.id, None)
