"""Which series, labels and metrics there are."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.query.promql.parser import parse_selector
from anabranch.query.promql.samples import Samples
from anabranch.query.promql.syntax import LabelMatcher
from anabranch.query.promql.vectors import NAME, Labels
from anabranch.server.http.front import HttpCall
from anabranch.server.http.measurements import ScopeStreams
from anabranch.server.http.prometheus.encode import success
from anabranch.server.http.prometheus.parameters import FIRST_MS, LAST_MS, GivenParameters, given_parameters

VERSION = "2.42.0"
"""The release of Prometheus whose language and API this front end implements."""
_Selectors = list[tuple[LabelMatcher, ...]]


async def prometheus_series(call: HttpCall) -> Response:
    """The series, each with its labels. They are selected by `match[]`, and have a sample from `start` to `end`."""
    given = await given_parameters(call)
    selectors = _selectors(given)
    if not selectors:
        raise InvalidArgument("no match[] parameter provided")
    return await _answer(call, lambda: _series(call, given, selectors))


async def prometheus_labels(call: HttpCall) -> Response:
    """The names of labels. They are those of the series that `match[]` selects, or of all streams."""
    given = await given_parameters(call)
    selectors = _selectors(given)

    def names() -> list[str]:
        if not selectors:
            return Samples(ScopeStreams(call)).label_names()
        return sorted({name for labels in _series(call, given, selectors) for name in labels})

    return await _answer(call, names)


async def prometheus_label_values(call: HttpCall) -> Response:
    """The values of a label. They are those of the series that `match[]` selects, or of all that have it."""
    given = await given_parameters(call)
    selectors, label = _selectors(given), call.request.path_params["label"]

    def values() -> list[str]:
        if label == NAME and not selectors:
            return _names(call, given)
        having = (LabelMatcher("!=", label, ""),)
        asked = [(*each, *having) for each in selectors] or [having]
        return sorted({labels[label] for labels in _series(call, given, asked)})

    return await _answer(call, values)


async def prometheus_metadata(call: HttpCall) -> Response:
    """The metrics. Streams don't say of which type they are."""
    given = await given_parameters(call)
    wanted = given.text("metric")

    def metadata() -> dict[str, list[dict[str, str]]]:
        names = [name for name in _names(call, given) if wanted in ("", name)]
        limit = given.text("limit")
        most = int(limit) if limit.isascii() and limit.isdigit() and len(limit) < 10 else None
        return {name: [{"type": "unknown", "help": "", "unit": ""}] for name in names[:most]}

    return await _answer(call, metadata)


async def prometheus_build(call: HttpCall) -> Response:
    """The version of Prometheus whose API this is."""
    del call
    empty = dict.fromkeys(("revision", "branch", "buildUser", "buildDate", "goVersion"), "")
    return success({"version": VERSION, **empty})


async def _answer(call: HttpCall, work: Callable[[], object]) -> Response:
    return success(await call.front.run_query(work))


def _names(call: HttpCall, given: GivenParameters) -> list[str]:
    """The names of metrics: of columns, and those that columns hold."""
    samples = Samples(ScopeStreams(call))
    matchers = (LabelMatcher("!=", NAME, ""),)
    held = samples.series(matchers, given.time("start", FIRST_MS), given.time("end", LAST_MS), held_names=True)
    return sorted({*samples.names(), *(labels[NAME] for labels in held)})


def _series(call: HttpCall, given: GivenParameters, selectors: _Selectors) -> list[Labels]:
    samples = Samples(ScopeStreams(call))
    start, end = given.time("start", FIRST_MS), given.time("end", LAST_MS)
    found = {tuple(sorted(labels.items())): labels for each in selectors for labels in samples.series(each, start, end)}
    return [found[key] for key in sorted(found)]


def _selectors(given: GivenParameters) -> _Selectors:
    try:
        return [parse_selector(text).matchers for text in given.all("match")]
    except InvalidSql as exc:
        raise InvalidArgument(f'invalid parameter "match[]": {exc}') from exc
