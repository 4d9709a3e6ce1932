"""Errors of long-running work: jobs, pipelines, plans, and the leases and handles they hold."""

from __future__ import annotations

from anabranch.errors.base import AnabranchError, NotFound


class PipelineNotFound(NotFound):
    """No pipeline has this name."""


class PipelineRunning(AnabranchError):
    """Another process runs the pipeline, and only one can. The caller can wait for it or stop it."""

    def __init__(self, name: str, pid: int, host: str) -> None:
        super().__init__(
            f"pipeline '{name}' is already running, in process {pid} on {host}; stop it with: anabranch pipeline stop {name}"
        )
        self.name = name
        self.pid = pid
        self.host = host


class PipelineFailed(AnabranchError):
    """A query of the pipeline failed while it ran. What it had published remains; running it again continues from
    there."""

    def __init__(self, name: str, target: str, reason: str) -> None:
        super().__init__(f"pipeline '{name}' failed at {target}: {reason}")
        self.name = name
        self.target = target
        self.reason = reason


class StreamHasPipeline(AnabranchError):
    """Another pipeline writes to the stream, or did until it was deleted, so its results would be duplicated. Pass
    `also=True` if that is intended, unless the earlier results are to be replaced. `of_query` is the message for a deployed
    query, which can't pass it."""

    def __init__(self, stream: str, pipeline: str, other: str, *, replace: bool = False, deleted: bool = False) -> None:
        if replace:
            problem = f"'{stream}' holds results of pipeline '{pipeline}' too, which would be dropped"
            message = of_query = "start over without --replace, or name another target"
        elif deleted:
            problem = (
                f"'{stream}' still holds the results of pipeline '{pipeline}', which was deleted, and '{other}' would append "
                "its own to them, perhaps the same ones a second time"
            )
            start = f"delete or truncate '{stream}', name another target"
            message = f"{start}, start over with --from PLACE --replace, or pass --also to append"
            of_query = f"{start}, or start over with --from PLACE --replace"
        else:
            problem = f"pipeline '{pipeline}' already writes to '{stream}', and '{other}' would append its results a second time"
            message = f"run it with --name {pipeline}, name another target, or pass --also if both are to write to it"
            of_query = f"deploy it as a new version of '{pipeline}', or name another target"
        super().__init__(f"{problem}: {message}")
        self.of_query = f"{problem}: {of_query}"
        self.stream = stream
        self.pipeline = pipeline
        self.other = other


class QueryNotFound(NotFound):
    """No deployed query has this name, or it has no such version."""

    def __init__(self, query: str, version: int | None = None) -> None:
        of = "" if version is None else f" has no version {version}"
        verb = "list" if version is None else f"versions {query}"
        super().__init__(f"query '{query}'{of or ' not found'}; list them with: anabranch queries {verb}")
        self.query = query
        self.version = version


class TemplateNotFound(NotFound):
    """No template of queries has this name."""

    def __init__(self, template: str) -> None:
        super().__init__(f"template '{template}' not found; list them with: anabranch queries templates")
        self.template = template


class NoResultsYet(AnabranchError):
    """The deployed query has not made its result stream, and does not run to make it; or the caller does not wait.
    `error` says why a query in the state `failed` has failed."""

    def __init__(self, query: str, state: str, error: str | None = None) -> None:
        why = {
            "failed": f"it has failed: {error}",
            "stopped": f"it is stopped; start it with: anabranch queries start {query}",
            "stopping": "it is stopping",
            "deleted": "it is being deleted",
        }.get(state, f"it is {state}; follow its results to wait for them")
        super().__init__(f"query '{query}' has no results yet: {why}")
        self.query = query
        self.state = state
        self.error = error


class JobNotFound(NotFound):
    """No job has this id."""

    def __init__(self, job: str) -> None:
        super().__init__(f"job '{job}' not found; list the jobs with: anabranch job list")
        self.job = job


class JobUnconfirmed(AnabranchError):
    """A job came with a backup or manifest. The places that it names are not contacted until it is confirmed."""

    def __init__(self, job: str) -> None:
        super().__init__(
            f"job {job} came with a restored or rebuilt store, and contacts the places that it names only if you confirm it: "
            f"anabranch job show {job} lists them, anabranch job resume {job} --confirm confirms them (jobs.confirm() in Python)"
        )
        self.job = job


class JobRunning(AnabranchError):
    """Another process runs the job, and only one can. The caller can wait for it or pause it."""

    def __init__(self, job: str) -> None:
        super().__init__(f"another process runs job {job}; wait for it, or pause it with: anabranch job pause {job}")
        self.job = job


class JobStopped(AnabranchError):
    """The job stopped before it was done: `state` is paused, cancelled or failed. What it had moved remains, unless it
    was cancelled; resuming it continues from there."""

    def __init__(self, job: str, state: str, reason: str | None = None) -> None:
        super().__init__(
            f"job {job} {'has ' if state == 'failed' else 'was '}{state}" + (f": {reason}" if reason else "")
        )
        self.job = job
        self.state = state
        self.reason = reason


class ModuleNotFound(NotFound):
    """No module has this name, or it has no such version."""

    def __init__(self, module: str, version: int | None = None) -> None:
        of = "not found" if version is None else f"has no version {version}"
        super().__init__(f"module '{module}' {of}; list them with: anabranch modules list")
        self.module = module
        self.version = version


class ModuleFailed(AnabranchError):
    """A function of a WebAssembly module was stopped, or refused its input. What called it ended with this; nothing else
    was touched."""

    def __init__(self, function: str, reason: str) -> None:
        super().__init__(f"the module's function {function} failed: {reason}")
        self.function = function
        self.reason = reason


class FunctionFailed(AnabranchError):
    """A Python function that was deployed with a query raised an error, or returned a value that does not match its
    declaration. The query's run ends with this; its results so far stay."""

    def __init__(self, function: str, reason: str) -> None:
        super().__init__(f"function '{function}' failed: {' '.join(reason.split())}")
        self.function = function
        self.reason = reason


class QueryLimitExceeded(AnabranchError):
    """A query needs more memory or time than it may use; `limit` is `memory` or `time`. It may succeed over fewer events
    or with a higher limit."""

    def __init__(self, message: str, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class Conflict(AnabranchError):
    """Another client changed the state this plan was made from. Planning again is safe."""


class LeaseExpired(AnabranchError):
    """The lease expired before its holder renewed it, so what it protected may be gone."""


class Forked(AnabranchError):
    """The store was opened before this process was forked, so its threads and connections don't exist here. Open a
    store in each process."""


class Closed(AnabranchError):
    """The store, writer or reader was closed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"this {what} is closed")
        self.what = what
