"""Work that is done over a while: jobs, pipelines, plans and what holds them."""

from __future__ import annotations

from anabranch.errors.base import AnabranchError, NotFound


class PipelineNotFound(NotFound):
    """No pipeline has this name."""


class PipelineRunning(AnabranchError):
    """Another process runs the pipeline, and only one can. It may be waited for, or stopped."""

    def __init__(self, name: str, pid: int, host: str) -> None:
        super().__init__(
            f"pipeline '{name}' runs already, in process {pid} on {host}; stop it with: anabranch pipeline stop {name}"
        )
        self.name = name
        self.pid = pid
        self.host = host


class PipelineFailed(AnabranchError):
    """A query of the pipeline failed while it ran. What it had published stays; running it again goes on from there."""

    def __init__(self, name: str, target: str, why: str) -> None:
        super().__init__(f"pipeline '{name}' failed at {target}: {why}")
        self.name = name
        self.target = target
        self.why = why


class JobNotFound(NotFound):
    """No job has this id."""

    def __init__(self, job: str) -> None:
        super().__init__(f"there is no job '{job}'; anabranch job list shows those there are")
        self.job = job


class JobRunning(AnabranchError):
    """Another process runs the job, and only one can. It may be waited for, or paused."""

    def __init__(self, job: str) -> None:
        super().__init__(f"another process runs job {job}; wait for it, or pause it with: anabranch job pause {job}")
        self.job = job


class JobStopped(AnabranchError):
    """The job stopped before it was done: `state` is paused, cancelled or failed. What it had moved stays, unless it
    was cancelled; resuming it goes on from there."""

    def __init__(self, job: str, state: str, why: str | None = None) -> None:
        super().__init__(f"job {job} {'has ' if state == 'failed' else 'was '}{state}" + (f": {why}" if why else ""))
        self.job = job
        self.state = state
        self.why = why


class Conflict(AnabranchError):
    """Another client changed what this plan was made from. Planning again is safe."""


class LeaseExpired(AnabranchError):
    """The lease ran out before its holder renewed it, so what it protected may be gone."""


class Forked(AnabranchError):
    """The store was opened before this process was forked: neither its threads nor its connections are here. Open one in
    each process."""


class Closed(AnabranchError):
    """The store, writer or reader was closed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"this {what} is closed")
        self.what = what
