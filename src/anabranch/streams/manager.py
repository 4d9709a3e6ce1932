"""The stream manager: creates, changes, deletes and renames streams, and builds streams from other streams."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace as with_fields
from typing import TYPE_CHECKING, Any

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.core.copy import CopyResult
from anabranch.core.display import Displayed
from anabranch.core.list_filter import ListFilter, Tags
from anabranch.core.scale import ScalePlan, plan_merge, plan_replacement, plan_segments, plan_split
from anabranch.core.stitch import JoinResult
from anabranch.errors import InvalidArgument, ScopeNotFound, ScopeRenamed, StreamNotFound, StreamRenamed
from anabranch.model.amounts import check_number
from anabranch.model.check import checks_of, merged
from anabranch.model.cut import Edge, StreamCut, parse_cut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.keyspace import KeyRange
from anabranch.model.names import StreamName, check_scope
from anabranch.model.policy import Fixed, Scaling, initial_segments, rate_to_json
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Segment, StreamInfo, StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams.algebra.append import append_stream
from anabranch.streams.algebra.copy import copy_stream
from anabranch.streams.algebra.stitch import stitch_streams
from anabranch.streams.arguments import (
    StreamKey,
    arguments_text,
    columns_of,
    digest,
    request_label,
    retention_of,
    scaling_of,
    segment_id,
    stream_key,
    stream_schema,
)
from anabranch.streams.change import Changes
from anabranch.streams.companions.api import Companions
from anabranch.streams.directory.find import need_info, need_view
from anabranch.streams.directory.scopes import by_pages, need_scope
from anabranch.streams.lifecycle.create import create_stream, delete_stream
from anabranch.streams.lifecycle.evolve import (
    evolve_stream,
    need_violations_stream,
    put_checks,
    refuse_unusable_checks,
    tag_stream,
)
from anabranch.streams.names.rename import rename_stream
from anabranch.streams.requests import Result
from anabranch.streams.results_json import info_from_json, info_to_json, segments_from_json, segments_to_json
from anabranch.streams.retention.policy import Retention
from anabranch.streams.retention.stored import put_policy
from anabranch.streams.scaling.stored import put_rate_policy
from anabranch.streams.segments import apply_scale, fence_stream, seal_stream, truncate_stream

if TYPE_CHECKING:
    import pyarrow as pa

Name = str | StreamName
Source = Name | StreamRange


class Streams(Displayed):
    """Creates, finds and changes streams by name. Every change is durable when its call returns.

    Each change takes a `request` id. A second call with the same id does nothing and returns the first result, so a
    call whose answer was lost can be repeated. An existing stream is identified by its name, an alias, or its id; the
    id stays valid across renames. Raises StreamNotFound and ScopeNotFound for unknown names.
    """

    def __init__(self, changes: Changes, companions: Companions) -> None:
        self._changes = changes
        self._catalog = changes.catalog
        self._runtime = changes.runtime
        self._companions = companions

    # create, look up, change, delete

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
        checks: Mapping[str, str] | None = None,
        exist_ok: bool = False,
        request: str | None = None,
    ) -> StreamInfo:
        """Create a stream: raw, or typed where an Arrow `schema` of its columns is given.

        `key` and `time` name the columns that hold the routing key and the event time. `scaling` is `Fixed(n)` or n
        segments, or `ByEventRate` or `ByByteRate`, which start with their minimum number. `retention` says how long
        events are kept; None: forever. `checks` are conditions by name that each event must meet; see `add_check`. Raises
        StreamExists; with `exist_ok` only where the existing stream has another schema, key or time; InvalidSql.
        """
        full = StreamName.parse(name)
        wanted, checked = stream_schema(schema, key, time), checks_of(checks or {})
        if checked:
            refuse_unusable_checks(wanted, checked)
            wanted = wanted.with_checks(checked)
        policy, kept_for = scaling_of(scaling), retention_of(retention)
        begin = Fixed(initial_segments(policy))
        stream = self._changes.new_id()

        def change(txn: Writing, now: Micros) -> StreamInfo:
            present = txn.stream(full)
            if exist_ok and present is not None and present.schema == wanted and checked in ((), present.schema.checks):
                return present
            info = create_stream(txn, full, stream, wanted, begin, tags or {}, now)
            if kept_for is not None:
                put_policy(txn, stream, kept_for, now)
            if not isinstance(policy, Fixed):
                put_rate_policy(txn, stream, policy, now)
            return info

        kept = None if kept_for is None else arguments_text(**kept_for.to_json())
        rate = None if isinstance(policy, Fixed) else arguments_text(**rate_to_json(policy))
        asked = arguments_text(
            schema=wanted,
            segments=begin.segments,
            tags=tags,
            exist_ok=exist_ok,
            retention=kept,
            scaling=rate,
            checks=checks,
        )
        on = None if kept_for is not None and kept_for.groups else full  # groups are looked up by name
        return self._apply(f"create {full}{asked}", request, change, on=on)

    def list(
        self,
        scope: str | None = None,
        *,
        tag: Tags | None = None,
        pattern: str | None = None,
        internal: bool = False,
    ) -> Iterator[StreamInfo]:
        """Streams in name order, of one scope or of all; includes the store's internal streams only with `internal`.
        `tag` ("owner", "owner=plant-7") and `pattern` (a glob: "sensor-*", "iot-*/raw") select some of them; see
        `ListFilter`. Raises ScopeNotFound, InvalidArgument."""
        selected = ListFilter(tag=tag, pattern=pattern)
        if scope is not None:
            with self._catalog.reading() as txn:
                need_scope(txn, scope, suggest=True)

        def next_page(after: StreamName | None) -> Sequence[StreamInfo]:
            with self._catalog.reading() as txn:
                return txn.streams(scope, after=after, limit=limits.CATALOG_PAGE_ROWS)

        for info in by_pages(next_page):
            if (internal or not info.name.internal) and selected(str(info.name), info.tags):
                yield info

    def get(self, name: StreamKey) -> StreamInfo:
        """The description of one stream."""
        with self._catalog.reading() as txn:
            return need_info(txn, stream_key(name), suggest=True)

    def find(self, name: StreamKey) -> StreamInfo | None:
        """One stream, or None, for callers that then create it. Raises StreamRenamed and ScopeRenamed for a former
        name: the stream exists under another name and must not be created a second time."""
        try:
            return self.get(name)
        except (StreamRenamed, ScopeRenamed):
            raise
        except (StreamNotFound, ScopeNotFound):
            return None

    def view(self, name: StreamKey) -> StreamView:
        """One stream with its segments, spans and logs."""
        with self._catalog.reading() as txn:
            return need_view(txn, stream_key(name), suggest=True)

    def exists(self, name: StreamKey) -> bool:
        """True if the stream exists."""
        with self._catalog.reading() as txn:
            return txn.stream(stream_key(name)) is not None

    def delete(self, name: StreamKey, *, request: str | None = None) -> None:
        """Delete a stream and all that belongs only to it. Its writers and readers get StreamNotFound."""
        full = stream_key(name)
        self._changes.apply(
            f"delete {request_label(full)}",
            request,
            lambda txn, now: {"stream": delete_stream(txn, full, now)},
            on=full,
        )
        self._companions.sweep()

    def seal(self, name: StreamKey, *, request: str | None = None) -> None:
        """Refuse all further appends. Sealing again changes nothing."""
        full = stream_key(name)

        def change(txn: Writing, now: Micros) -> None:
            seal_stream(txn, need_view(txn, full), now)

        self._changes.apply(f"seal {request_label(full)}", request, change, on=full)

    def scale(
        self,
        name: StreamKey,
        segments: int | None = None,
        *,
        split: SegmentId | str | None = None,
        into: int = 2,
        merge: Sequence[SegmentId | str] = (),
        replace: Mapping[SegmentId | str, Sequence[KeyRange]] | None = None,
        request: str | None = None,
    ) -> tuple[Segment, ...]:
        """Change the segments of a stream by hand, in one of four ways, and return its new current segments.

        `segments`: this many, of equal key range. `split`: one segment `into` equal ones. `merge`: several segments
        with adjacent key ranges into one. `replace`: segments by key ranges of the caller's choice. Writers continue
        without any action; the order of each key is kept. Raises InvalidArgument, StreamSealed.
        """
        if sum([segments is not None, split is not None, bool(merge), replace is not None]) != 1:
            raise InvalidArgument("expected exactly one of segments=, split=, merge=, replace=")
        if not isinstance(merge, Collection) or isinstance(merge, str):
            raise InvalidArgument(f"expected merge= as a list of segments, got {merge!r:.100}")
        if replace is not None and not _are_ranges(replace):
            raise InvalidArgument(f"expected replace= as segments, each with a list of KeyRange, got {replace!r:.100}")
        full = stream_key(name)

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

        def change(txn: Writing, now: Micros) -> Result:
            view = need_view(txn, full, unsealed=True)
            chosen = plan(view)
            if chosen is not None:
                apply_scale(txn, view, chosen, now)
            current = view.current if chosen is None else need_view(txn, view.info.id).current
            return {"segments": segments_to_json(current)}

        asked = arguments_text(
            segments=segments, split=split, into=into if split else None, merge=merge, replace=replace
        )
        return segments_from_json(
            self._changes.apply(f"scale {request_label(full)}{asked}", request, change, on=full)["segments"]
        )

    def fence(self, name: StreamKey, fence: int, *, request: str | None = None) -> None:
        """Refuse appends with a lower fence from now on, including on segments that later scalings create. Raises
        InvalidArgument for a lower one than the stream has."""
        full, fence = stream_key(name), check_number("fence", fence)

        def change(txn: Writing, now: Micros) -> None:
            fence_stream(txn, need_view(txn, full, unsealed=True), fence, now)

        self._changes.apply(f"fence {request_label(full)} {fence}", request, change, on=full)

    def truncate(self, name: StreamKey, cut: StreamCut | Edge | str, *, request: str | None = None) -> None:
        """Make the events before the cut (a cut, or its text) unreadable; with `TAIL`, all events that exist when the
        call takes effect. Offsets do not change. Raises InvalidCut, Truncated."""
        full, place = stream_key(name), parse_cut(cut)

        def change(txn: Writing, now: Micros) -> None:
            truncate_stream(txn, need_view(txn, full), place, now)

        asked = place.value if isinstance(place, Edge) else place
        self._changes.apply(f"truncate {request_label(full)} {asked}", request, change, on=full)

    def evolve(self, name: StreamKey, schema: Any, *, request: str | None = None) -> StreamInfo:
        """Add the nullable columns of `schema` that the stream lacks; it must have all columns of the stream. Raises
        SchemaMismatch for any other change."""
        return self._evolve("evolve", name, schema, StreamSchema.evolved, request)

    def add_columns(self, name: StreamKey, columns: Any, *, request: str | None = None) -> StreamInfo:
        """Add those of the nullable `columns` that the stream lacks. They are null in earlier events, and in later ones
        that leave them out. Raises SchemaMismatch for a column that the stream has with another type."""
        return self._evolve("add columns to", name, columns, StreamSchema.with_columns, request)

    def add_check(
        self,
        name: StreamKey,
        check: str,
        condition: str,
        *,
        violations: str | StreamName | None = None,
        request: str | None = None,
    ) -> StreamInfo:
        """Refuse events from now on for which `condition` is false, such as "celsius > -90"; as in SQL, null passes.
        The check replaces an earlier one of the same name. Earlier events are not tested. Open writers and brokers
        apply the check within a second.

        With `violations`, a transaction, `Store.write` and Spark write events that break the check to that stream, in
        the same transaction as the others, with the check's name in the column `_check`. The stream is created if it
        does not exist, with the columns, key and time of this one. Other ways of writing refuse the events.

        Raises InvalidSql for a condition that can't be used, SchemaMismatch for a raw stream, StreamExists for a stream of
        violations with other columns, InvalidArgument for one that itself sends events elsewhere."""
        full, added = stream_key(name), checks_of({check: condition})[0]
        side = None if violations is None else StreamName.parse(violations)
        added = with_fields(added, violations=None if side is None else str(side))
        ident = None if side is None else self._changes.new_id()

        def change(txn: Writing, now: Micros) -> StreamInfo:
            info = need_info(txn, full)
            if side is not None and ident is not None:
                need_violations_stream(txn, info, side, ident, now)
            put_checks(txn, info, merged(info.schema.checks, added), now)
            return need_info(txn, full)

        asked = arguments_text(check=added.name, condition=added.condition, violations=added.violations)
        on = full if side is None else None
        return self._apply(f"add check {request_label(full)}{asked}", request, change, on=on)

    def remove_check(self, name: StreamKey, check: str, *, request: str | None = None) -> StreamInfo:
        """Remove a check. Raises InvalidArgument where the stream has none of that name."""
        full = stream_key(name)

        def change(txn: Writing, now: Micros) -> StreamInfo:
            info = need_info(txn, full)
            left = tuple(each for each in info.schema.checks if each.name != check)
            if len(left) == len(info.schema.checks):
                known = ", ".join(each.name for each in info.schema.checks) or "none"
                raise InvalidArgument(f"'{info.name}' has no check '{check}'; its checks: {known}")
            put_checks(txn, info, left, now)
            return need_info(txn, full)

        asked = arguments_text(check=check)
        return self._apply(f"remove check {request_label(full)}{asked}", request, change, on=full)

    def _evolve(
        self,
        verb: str,
        name: StreamKey,
        schema: Any,
        evolved: Callable[[StreamSchema, pa.Schema], StreamSchema],
        request: str | None,
    ) -> StreamInfo:
        full = stream_key(name)
        columns = columns_of(schema)

        def change(txn: Writing, now: Micros) -> StreamInfo:
            info = need_info(txn, full)
            evolve_stream(txn, info, evolved(info.schema, columns), now)
            return need_info(txn, full)

        asked = arguments_text(schema=digest(columns))
        return self._apply(f"{verb} {request_label(full)}{asked}", request, change, on=full)

    def tag(self, name: StreamKey, tags: Mapping[str, str], *, request: str | None = None) -> StreamInfo:
        """Replace the stream's tags."""
        full = stream_key(name)

        def change(txn: Writing, now: Micros) -> StreamInfo:
            tag_stream(txn, need_info(txn, full), tags, now)
            return need_info(txn, full)

        return self._apply(f"tag {request_label(full)}{arguments_text(tags=tags)}", request, change, on=full)

    def _apply(
        self,
        operation: str,
        request: str | None,
        change: Callable[[Writing, Micros], StreamInfo],
        *,
        on: StreamName | StreamId | None = None,
    ) -> StreamInfo:
        """`Changes.apply` for a change that returns the stream as it is then."""
        return info_from_json(
            self._changes.apply(operation, request, lambda txn, now: info_to_json(change(txn, now)), on=on)
        )

    # Streams built from streams: each is one transaction on names, segments and spans, whatever the size.

    def copy(self, source: Source, target: Name, *, request: str | None = None) -> CopyResult:
        """Create a copy of a stream, or of a range of one: same columns, tags, epochs, segments and offsets.

        Later writes to either stream do not appear in the other. The copy can be written to, even if the source is
        sealed; writer progress is not copied. A repeated call with the same arguments changes nothing and returns the
        same result. Raises StreamExists where `target` is another stream, InvalidCut, Truncated.
        """
        part, full = StreamRange.of(source), StreamName.parse(target)
        stream = self._changes.new_id()

        def change(txn: Writing, now: Micros) -> Result:
            return copy_stream(txn, part, full, stream, now).to_json()

        return CopyResult.from_json(self._changes.apply(f"copy {part} {full}", request, change))

    def append(self, source: Source, onto: StreamKey, *, request: str | None = None) -> JoinResult:
        """Append the events of a stream, or of a range of one, after the last event of `onto`.

        Writers and readers of `onto` continue without any action, after the appended events; the order of each key is
        kept. The source does not change. Its events are in new segments at their old offsets; the result says where. If
        `onto` was sealed, it stays sealed. Raises SchemaMismatch where columns of the same name have no common type, or the
        key or time columns differ; InvalidCut, Truncated. Without a request id, calling twice appends twice.
        """
        part, full = StreamRange.of(source), stream_key(onto)

        def change(txn: Writing, now: Micros) -> Result:
            return append_stream(txn, part, full, now).to_json()

        return JoinResult.from_json(self._changes.apply(f"append {part} onto {request_label(full)}", request, change))

    def stitch(
        self, sources: Sequence[Source], *, into: Name, keep_sources: bool = True, request: str | None = None
    ) -> JoinResult:
        """Create a stream of all events of the first source, then all of the second, and so on.

        Sources are streams or ranges; one may occur several times. Without `keep_sources` they are deleted in the same
        transaction, and `into` may be one of their names. Raises StreamExists, and what `append` raises.
        """
        parts, full = [StreamRange.of(source) for source in sources], StreamName.parse(into)
        if not parts:
            raise InvalidArgument("expected at least one source to stitch")
        stream = self._changes.new_id()

        def change(txn: Writing, now: Micros) -> Result:
            return stitch_streams(txn, parts, full, stream, now, keep_sources=keep_sources).to_json()

        gone = "" if keep_sources else " instead"
        return JoinResult.from_json(
            self._changes.apply(f"stitch {','.join(map(str, parts))} {full}{gone}", request, change)
        )

    # names

    def rename(self, stream: StreamKey, name: Name, *, request: str | None = None) -> StreamInfo:
        """Rename a stream, within its scope or into another. Its aliases stay.

        From then on the old name raises StreamRenamed, which carries the new name, until a stream is created under it.
        Raises StreamExists, ScopeNotFound.
        """
        old, new = stream_key(stream), StreamName.parse(name)

        return self._apply(
            f"rename {request_label(old)} {new}", request, lambda txn, now: rename_stream(txn, old, new, now)
        )

    def move(self, stream: StreamKey, scope: str, *, request: str | None = None) -> StreamInfo:
        """Move a stream into another scope under the same name. Given an alias, the stream itself moves. Raises what
        `rename` raises."""
        full = stream_key(stream)
        check_scope(scope)

        def change(txn: Writing, now: Micros) -> StreamInfo:
            info = need_info(txn, full)
            return rename_stream(txn, info.name, StreamName(scope, info.name.name), now)

        return self._apply(f"move {request_label(full)} {scope}", request, change)


def _are_ranges(replaced: Any) -> bool:
    return isinstance(replaced, Mapping) and all(
        isinstance(parts, Collection) and all(isinstance(each, KeyRange) for each in parts)
        for parts in replaced.values()
    )
