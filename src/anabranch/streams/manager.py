"""The stream manager: what people do with streams as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from anabranch import limits
from anabranch.catalog.port import Catalog, Writing
from anabranch.core.scale import ScalePlan, plan_merge, plan_replacement, plan_segments, plan_split
from anabranch.errors import InvalidArgument, ScopeNotFound, ScopeRenamed, StreamNotFound, StreamRenamed
from anabranch.model.cut import Edge, StreamCut, place_of
from anabranch.model.ids import Micros, SegmentId
from anabranch.model.keyspace import KeyRange
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed, Scaling, rate_to_json, segments_of
from anabranch.model.retention import Retention
from anabranch.model.stream import Segment, StreamInfo, StreamView
from anabranch.runtime.ports import Runtime
from anabranch.streams.algebra import Algebra
from anabranch.streams.arguments import (
    Which,
    columns_of,
    digest,
    retention_of,
    said,
    scaling_of,
    segment_id,
    shown,
    wanted_schema,
    which,
)
from anabranch.streams.create import create_stream, delete_stream
from anabranch.streams.evolve import evolve_stream, tag_stream
from anabranch.streams.find import need_info, need_view
from anabranch.streams.holding import Holdings
from anabranch.streams.keeping import Keeping
from anabranch.streams.kinship import Kinship
from anabranch.streams.naming import Naming
from anabranch.streams.places import CutAlgebra, CutAt
from anabranch.streams.requests import Result
from anabranch.streams.retention import put_policy
from anabranch.streams.scale import apply_scale, fence_stream, seal_stream, truncate_stream
from anabranch.streams.scaling import put_rate_policy
from anabranch.streams.scopes import Scopes
from anabranch.streams.temporary import Temporary
from anabranch.streams.told import heard_info, heard_segments, told_info, told_segments

Name = str | StreamName


class Streams(Scopes, Naming, CutAlgebra, Keeping, Kinship, Algebra, Temporary):
    """Scopes and streams by name. Every change is durable when its call returns.

    Each change takes a `request` id: asked again with the same id, it does nothing and returns its first result, so
    a call whose answer was lost can be repeated. A stream that is there is known by its name, an alias, or its id, which
    means the same one whatever it is called by then. Raises StreamNotFound and ScopeNotFound for unknown names.
    """

    def __init__(self, catalog: Catalog, runtime: Runtime, *, cut_at: CutAt, changed: Callable[[], None]) -> None:
        self._catalog = catalog
        self._runtime = runtime
        self._cut_at = cut_at
        self._changed = changed
        self._holdings = Holdings(catalog, runtime, changed)

    def close(self) -> None:
        """Leave the ephemeral streams that are held, and end background work. A second call is harmless."""
        self._holdings.close()

    # streams

    def create(
        self,
        name: Name,
        *,
        schema: Any = None,
        key: str | None = None,
        time: str | None = None,
        scaling: Scaling | int = 1,
        tags: Mapping[str, str] | None = None,
        retention: Retention | None = None,
        exist_ok: bool = False,
        request: str | None = None,
    ) -> StreamInfo:
        """A new stream: raw, or typed where an Arrow `schema` of its columns is given.

        `key` and `time` name the columns that are its routing key and event time. `scaling` is `Fixed(n)` or n
        segments, or `ByEventRate` or `ByByteRate`, which begin with their least number. `retention` says how long events are kept; None: for ever. Raises StreamExists; with `exist_ok` only
        where the present stream has another schema, key or time.
        """
        full = StreamName.parse(name)
        wanted = wanted_schema(schema, key, time)
        policy, kept_for = scaling_of(scaling), retention_of(retention)
        begin = Fixed(segments_of(policy))
        stream = self._new_id()

        def act(txn: Writing, now: Micros) -> Result:
            present = txn.stream(full)
            if exist_ok and present is not None and present.schema == wanted:
                return told_info(present)
            info = create_stream(txn, full, stream, wanted, begin, tags or {}, now)
            if kept_for is not None:
                put_policy(txn, stream, kept_for, now)
            if not isinstance(policy, Fixed):
                put_rate_policy(txn, stream, policy, now)
            return told_info(info)

        kept = None if kept_for is None else said(**kept_for.to_json())
        rate = None if isinstance(policy, Fixed) else said(**rate_to_json(policy))
        asked = said(schema=wanted, segments=begin.segments, tags=tags, exist_ok=exist_ok, retention=kept, scaling=rate)
        operation = f"create {full}{asked}"
        return heard_info(self._change(operation, request, act, on=full))

    def list(self, scope: str | None = None, *, internal: bool = False) -> Iterator[StreamInfo]:
        """Streams by name, of one scope or of all; the store's own only with `internal`."""
        if scope is not None:
            self.scope(scope)
        after: StreamName | None = None
        while True:
            with self._catalog.reading() as txn:
                page = txn.streams(scope, after=after, limit=limits.CATALOG_PAGE_ROWS)
            yield from (info for info in page if internal or not info.name.internal)
            if len(page) < limits.CATALOG_PAGE_ROWS:
                return
            after = page[-1].name

    def get(self, name: Which) -> StreamInfo:
        """One stream."""
        with self._catalog.reading() as txn:
            return need_info(txn, which(name))

    def find(self, name: Which) -> StreamInfo | None:
        """One stream, or None, for who then makes it. Raises StreamRenamed and ScopeRenamed for a former name: what is meant
        has another one now, and is not to be made a second time."""
        try:
            return self.get(name)
        except (StreamRenamed, ScopeRenamed):
            raise
        except (StreamNotFound, ScopeNotFound):
            return None

    def view(self, name: Which) -> StreamView:
        """One stream with its segments, spans and logs."""
        with self._catalog.reading() as txn:
            return need_view(txn, which(name))

    def exists(self, name: Which) -> bool:
        """True if there is such a stream."""
        with self._catalog.reading() as txn:
            return txn.stream(which(name)) is not None

    def delete(self, name: Which, *, request: str | None = None) -> None:
        """Remove a stream, with what the store keeps for it alone. Writers and readers of it get StreamNotFound."""
        full = which(name)
        self._change(
            f"delete {shown(full)}", request, lambda txn, now: {"stream": delete_stream(txn, full, now)}, on=full
        )
        self.sweep_orphans()

    def seal(self, name: Which, *, request: str | None = None) -> None:
        """No event can be appended any more. Sealing again changes nothing."""
        full = which(name)

        def act(txn: Writing, now: Micros) -> Result:
            seal_stream(txn, need_view(txn, full), now)
            return {}

        self._change(f"seal {shown(full)}", request, act, on=full)

    def scale(
        self,
        name: Which,
        segments: int | None = None,
        *,
        split: SegmentId | str | None = None,
        into: int = 2,
        merge: Sequence[SegmentId | str] = (),
        replace: Mapping[SegmentId | str, Sequence[KeyRange]] | None = None,
        request: str | None = None,
    ) -> tuple[Segment, ...]:
        """Change the segments of a stream by hand, in one of four ways, and return its new current segments.

        `segments`: this many, of equal key range. `split` one segment `into` equal ones. `merge` several whose key
        ranges adjoin into one. `replace` segments by key ranges of the caller's choice. Writers go on by themselves;
        the order of each key is kept. Raises InvalidArgument, StreamSealed.
        """
        if sum([segments is not None, split is not None, bool(merge), replace is not None]) != 1:
            raise InvalidArgument("say one of: segments=, split=, merge=, replace=")
        full = which(name)

        def plan(view: StreamView) -> ScalePlan | None:
            if segments is not None:
                return plan_segments(view, segments)
            if split is not None:
                return plan_split(view, segment_id(split), into)
            if merge:
                return plan_merge(view, [segment_id(each) for each in merge])
            assert replace is not None
            ranges = [part for parts in replace.values() for part in parts]
            return plan_replacement(view, [segment_id(each) for each in replace], sorted(set(ranges)))

        def act(txn: Writing, now: Micros) -> Result:
            view = need_view(txn, full, unsealed=True)
            chosen = plan(view)
            if chosen is not None:
                apply_scale(txn, view, chosen, now)
            current = view.current if chosen is None else need_view(txn, view.info.id).current
            return {"segments": told_segments(current)}

        asked = said(segments=segments, split=split, into=into if split else None, merge=merge, replace=replace)
        return heard_segments(self._change(f"scale {shown(full)}{asked}", request, act, on=full)["segments"])

    def fence(self, name: Which, fence: int, *, request: str | None = None) -> None:
        """Refuse appends that carry a lower fence from now on. It covers the segments of later scalings too."""
        full = which(name)

        def act(txn: Writing, now: Micros) -> Result:
            fence_stream(txn, need_view(txn, full, unsealed=True), fence, now)
            return {}

        self._change(f"fence {shown(full)} {fence}", request, act, on=full)

    def truncate(self, name: Which, cut: StreamCut | Edge | str, *, request: str | None = None) -> None:
        """Events before the cut, or its text, can't be read any more; at `TAIL` those that are there when it is done. Offsets
        do not change. Raises InvalidCut, Truncated."""
        full, place = which(name), place_of(cut)

        def act(txn: Writing, now: Micros) -> Result:
            truncate_stream(txn, need_view(txn, full), place, now)
            return {}

        self._change(
            f"truncate {shown(full)} {place.value if isinstance(place, Edge) else place}", request, act, on=full
        )

    def evolve(self, name: Which, schema: Any, *, request: str | None = None) -> StreamInfo:
        """Add the nullable columns of `schema` that the stream lacks. Raises SchemaMismatch for any other change."""
        full = which(name)
        columns = columns_of(schema)

        def act(txn: Writing, now: Micros) -> Result:
            evolve_stream(txn, need_info(txn, full), columns, now)
            return told_info(need_info(txn, full))

        return heard_info(self._change(f"evolve {shown(full)}{said(schema=digest(columns))}", request, act, on=full))

    def tag(self, name: Which, tags: Mapping[str, str], *, request: str | None = None) -> StreamInfo:
        """Replace the stream's tags."""
        full = which(name)

        def act(txn: Writing, now: Micros) -> Result:
            tag_stream(txn, need_info(txn, full), tags, now)
            return told_info(need_info(txn, full))

        return heard_info(self._change(f"tag {shown(full)}{said(tags=tags)}", request, act, on=full))
