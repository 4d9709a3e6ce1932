"""The contract of `catalog.port.Catalog` except for appends and extents: transactions, names, segments, small state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.catalog.port import Lease, Writing
from anabranch.errors import Closed, CorruptCatalog, InvalidArgument, StreamExists
from anabranch.model.append import Batch, LogState, Progress
from anabranch.model.ids import BlobId, LogId, Micros, SegmentId, StreamId, WriterId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Scope, Segment, Span
from tests.contracts.catalog.samples import NOW, SEGMENT, STREAM, append, info, lengths, new_stream, part
from tests.contracts.catalog.suite import CatalogSuite


class CatalogContract(CatalogSuite):
    # transactions

    def test_an_exception_undoes_a_transaction(self) -> None:
        with pytest.raises(KeyboardInterrupt), self.catalog.writing() as writing:  # noqa: PT012 - the transaction is undone
            writing.put_scope(Scope("iot", {}, NOW))
            raise KeyboardInterrupt
        with self.catalog.reading() as reading:
            assert reading.scopes() == []

    def test_a_transaction_sees_its_own_changes(self) -> None:
        with self.catalog.writing() as writing:
            writing.put_scope(Scope("iot", {}, NOW))
            assert writing.scope("iot") == Scope("iot", {}, NOW)

    def test_a_snapshot_does_not_move(self) -> None:
        other = self.again()
        if other is None:
            return
        with self.catalog.reading() as reading:
            assert reading.scopes() == []
            with other.writing() as writing:
                writing.put_scope(Scope("iot", {}, NOW))
            assert reading.scopes() == []
        with self.catalog.reading() as reading:
            assert reading.scopes() == [Scope("iot", {}, NOW)]
        other.close()

    def test_the_token_reports_changes(self) -> None:
        other = self.again()
        log = new_stream(self.catalog)
        before = self.catalog.token()
        assert self.catalog.token() == before
        append(self.catalog, part(log))
        after = self.catalog.token()
        assert after != before
        if other is not None:
            append(other, part(log))
            deadline = time.monotonic() + 10 * limits.LISTEN_POLL_US / 1e6
            while self.catalog.token() == after:
                assert time.monotonic() < deadline, "another process's commit was not noticed"
                time.sleep(0.001)
            other.close()

    def test_it_reports_what_others_commit(self) -> None:
        other = self.again()
        log = new_stream(self.catalog)
        told = threading.Event()
        tells = self.catalog.on_change(told.set)
        assert not self.catalog.on_change(lambda: None), "only the first callback is registered"
        if other is None or not tells:  # in memory, or where the system can't: readers poll
            return
        for _ in range(3):
            told.clear()  # also of what was committed before
            append(other, part(log))
            assert told.wait(60), "another process's commit was not reported"
        other.close()
        self.catalog.close()
        assert not any(each.name.endswith("listener") for each in threading.enumerate()), (
            "it still listens after it was closed"
        )

    def test_two_openings_share_one_order(self) -> None:
        other = self.again()
        if other is None:
            return
        log = new_stream(self.catalog)
        starts = [append(each, part(log))[0].start for each in (self.catalog, other) * 5]  # type: ignore[union-attr]
        assert starts == [*range(10)]
        assert lengths(other, [log]) == lengths(self.catalog, [log]) == {log: 10}
        other.close()

    def test_a_closed_catalog_says_so(self) -> None:
        self.catalog.close()
        self.catalog.close()
        with pytest.raises(Closed), self.catalog.writing():
            pass
        with pytest.raises(Closed), self.catalog.reading():
            pass

    def test_a_sound_database_has_nothing_to_report(self) -> None:
        append(self.catalog, part(new_stream(self.catalog)))
        with self.catalog.reading() as reading:
            assert reading.verify_database() == []

    # scopes and streams

    def test_scopes_are_kept_by_name(self) -> None:
        with self.catalog.writing() as writing:
            for name in ("b", "a", "B"):
                writing.put_scope(Scope(name, {"owner": name}, NOW))
            writing.put_scope(Scope("a", {"owner": "ä"}, NOW))
        with self.catalog.reading() as reading:
            assert [scope.name for scope in reading.scopes()] == ["B", "a", "b"]
            assert reading.scope("a") == Scope("a", {"owner": "ä"}, NOW)
            assert reading.scope("c") is None
        with self.catalog.writing() as writing:
            writing.drop_scope("a")
            assert writing.scope("a") is None

    def test_a_stream_is_found_by_name_and_id(self) -> None:
        value = info(2**63 - 1, "iot/raw", tags={"owner": "me"}, sealed=True, version=3, epoch=2, next_number=5)
        with self.catalog.writing() as writing:
            writing.put_scope(Scope("iot", {}, NOW))
            writing.insert_stream(value)
        with self.catalog.reading() as reading:
            assert reading.stream(value.name) == reading.stream(value.id) == value
            assert reading.stream(StreamName("iot", "other")) is None
            assert reading.stream(StreamId(1)) is None

    def test_a_stream_is_found_by_its_alias(self) -> None:
        value = info(2**63 - 1, "iot/raw")
        alias = StreamName("other", "alias")
        with self.catalog.writing() as writing:
            writing.put_scope(Scope("iot", {}, NOW))
            writing.insert_stream(value)
            writing.put_alias(alias, value.id)
            writing.put_alias(StreamName("iot", "nobody"), StreamId(1))
        for on in (None, alias):  # on an alias, a transaction is on its stream
            with self.catalog.writing(on) as writing:
                found = writing.stream(alias)
                assert found == value
                assert writing.view(found.id) is not None
                writing.update_stream(found)
        with self.catalog.reading() as reading:
            assert reading.stream(alias) == value
            assert reading.stream(StreamName("iot", "nobody")) is None
            assert reading.aliases_of(value.id) == (alias,)
            assert reading.aliases_of(StreamId(2)) == ()
            assert reading.stream(StreamName("alias", "other")) is None

    def test_a_name_is_taken_once(self) -> None:
        new_stream(self.catalog, 1, "iot/raw")
        new_stream(self.catalog, 2, "iot/other")
        with pytest.raises(StreamExists), self.catalog.writing() as writing:
            writing.insert_stream(info(3, "iot/raw"))
        with pytest.raises(StreamExists), self.catalog.writing() as writing:
            writing.update_stream(info(2, "iot/raw"))

    def test_streams_are_listed_by_name_in_pages(self) -> None:
        names = ["a/x", "a/y", "a.b/x", "b/a", "b/b"]
        for number, name in enumerate(names):
            new_stream(self.catalog, number + 1, name)
        ordered = sorted(StreamName.parse(name) for name in names)
        with self.catalog.reading() as reading:
            assert [each.name for each in reading.streams()] == ordered
            assert [str(each.name) for each in reading.streams("a")] == ["a/x", "a/y"]
            page = reading.streams(after=ordered[1], limit=2)
            assert [each.name for each in page] == ordered[2:4]
            assert reading.streams("c") == []

    def test_a_stream_can_change_all_but_its_id(self) -> None:
        new_stream(self.catalog)
        wider = StreamSchema.typed(pa.schema([("device", pa.string()), ("n", pa.int64())]), key="device")
        changed = info(
            name="iot/moved", schema=wider, schema_version=2, tags={"a": "b"}, version=2, epoch=1, sealed=True
        )
        with self.catalog.writing() as writing:
            writing.update_stream(changed)
        with self.catalog.reading() as reading:
            assert reading.stream(STREAM) == changed
            assert reading.schema(STREAM, 1) == info().schema
            assert reading.schema(STREAM, 2) == wider
            with pytest.raises(CorruptCatalog):
                reading.schema(STREAM, 3)

    def test_a_dropped_stream_leaves_its_logs(self) -> None:
        log = new_stream(self.catalog)
        append(self.catalog, part(log, 2))
        with self.catalog.writing() as writing:
            writing.drop_stream(STREAM)
        with self.catalog.reading() as reading:
            assert reading.stream(STREAM) is None
            assert reading.view(STREAM) is None
            assert reading.spans_of_log(log) == []
            assert reading.logs([log])[log].length == 2
            assert reading.schema(STREAM, 1) == info().schema
        new_stream(self.catalog, 78)

    # segments, spans, logs

    def test_a_view_holds_segments_spans_and_logs(self) -> None:
        log = new_stream(self.catalog)
        low, high = FULL_KEY_RANGE.split(2)
        left, right = SegmentId(1, 1), SegmentId(1, 2)
        with self.catalog.writing() as writing:
            logs = [writing.new_log(STREAM, appended_at=Micros(5)) for _ in range(3)]
            writing.put_segment(STREAM, Segment(SEGMENT, FULL_KEY_RANGE, 1, 2))
            writing.put_span(STREAM, Span(SEGMENT, 0, log, 0, 4))
            for ident, key_range, its in ((right, high, logs[2]), (left, low, logs[0])):
                writing.put_segment(STREAM, Segment(ident, key_range, None, 0))
                writing.put_span(STREAM, Span(ident, 0, its, 0, 7))
            writing.put_span(STREAM, Span(left, 7, logs[1], 3, None))
        with self.catalog.reading() as reading:
            view = reading.view(STREAM)
        assert view is not None
        assert [segment.id for segment in view.ordered] == [SEGMENT, left, right]
        assert [segment.range for segment in view.current] == [low, high]
        assert view.segments[SEGMENT] == Segment(SEGMENT, FULL_KEY_RANGE, 1, 2)
        assert view.spans[left] == (Span(left, 0, logs[0], 0, 7), Span(left, 7, logs[1], 3, None))
        assert view.logs[logs[1]] == LogState(logs[1], STREAM, appended_at=Micros(5))
        assert view.open_log(left) == logs[1]

    def test_views_of_several_streams_are_those_of_each(self) -> None:
        """Also if one shares a log with another, has no segment, or does not exist."""
        other, bare, missing = (StreamId(STREAM + n) for n in (1, 2, 3))
        log = new_stream(self.catalog)
        new_stream(self.catalog, other, "iot/other")
        with self.catalog.writing() as writing:
            writing.insert_stream(info(bare, "iot/bare"))
            writing.put_segment(other, Segment(SegmentId(1, 1), FULL_KEY_RANGE, None, 4))
            writing.put_span(other, Span(SegmentId(1, 1), 4, log, 0, None))
            asked = [bare, other, missing, STREAM]
            seen = writing.views(asked)
            assert [*seen] == [bare, other, STREAM]
            assert seen == {each: writing.view(each) for each in seen}
            assert writing.views([]) == {}
        with self.catalog.reading() as reading:
            assert reading.views(asked) == seen
            assert seen[other].logs[log] == seen[STREAM].logs[log]

    def test_spans_are_found_by_their_log(self) -> None:
        log = new_stream(self.catalog)
        new_stream(self.catalog, 78, "iot/copy")
        with self.catalog.writing() as writing:
            writing.put_span(StreamId(78), Span(SEGMENT, 9, log, 5, 7))
        with self.catalog.reading() as reading:
            spans = [(STREAM, Span(SEGMENT, 0, log, 0, None)), (StreamId(78), Span(SEGMENT, 9, log, 5, 7))]
            assert reading.spans_of_log(log) == spans
        with self.catalog.writing() as writing:
            writing.drop_spans(STREAM, SEGMENT)
            assert writing.spans_of_log(log) == spans[1:]

    def test_segments_of_many_spans_are_found_those_of_most_first(self) -> None:
        counts = {(STREAM, SEGMENT): 2, (STREAM, SegmentId(1, 1)): 4, (StreamId(78), SEGMENT): 4}
        new_stream(self.catalog)
        new_stream(self.catalog, 78, "iot/more")
        with self.catalog.writing() as writing:
            for (stream, segment), count in counts.items():
                log = writing.new_log(stream, appended_at=Micros(0))
                for i in range(count):
                    writing.put_span(stream, Span(segment, i, log, i, i + 1))
        many = [(STREAM, SegmentId(1, 1)), (StreamId(78), SEGMENT)]
        with self.catalog.reading() as reading:
            assert reading.fragmented(3, 10) == many
            assert reading.fragmented(2, 10) == [*many, (STREAM, SEGMENT)]
            assert reading.fragmented(2, 1) == many[:1]
            assert reading.fragmented(5, 10) == []

    def test_log_ids_rise_and_are_never_used_again(self) -> None:
        first = new_stream(self.catalog)
        with self.catalog.writing() as writing:
            second = writing.new_log(STREAM, appended_at=NOW)
            writing.drop_log(second)
        with self.catalog.writing() as writing:
            third = writing.new_log(STREAM, appended_at=NOW)
        assert first < second < third
        with self.catalog.reading() as reading:
            assert [log.id for log in reading.logs_after(LogId(0), 10)] == [first, third]
            assert [log.id for log in reading.logs_after(LogId(0), 1)] == [first]
            assert [log.id for log in reading.logs_after(first, 10)] == [third]
            assert [*reading.logs([third, second])] == [third]
            assert reading.logs([]) == {}

    def test_a_log_keeps_its_state(self) -> None:
        log = new_stream(self.catalog)
        state = LogState(log, STREAM, 10, True, 3, 2, 2**40, NOW, Micros(-5))
        with self.catalog.writing() as writing:
            writing.update_log(state)
        with self.catalog.reading() as reading:
            assert reading.logs([log]) == {log: state}

    # writers

    def test_progress_is_kept_by_log_and_writer(self) -> None:
        log = new_stream(self.catalog)
        some = Progress(9, 2, (Batch(0, 4, 100, NOW, 1), Batch(4, 5, 104, NOW + 1, 2)))
        with self.catalog.writing() as writing:
            writing.put_progress(log, WriterId("b"), some, now=NOW)
            writing.put_progress(log, WriterId("a"), Progress(), now=Micros(NOW + 10))
            writing.put_progress(log, WriterId("c"), Progress(1), now=Micros(NOW + 20))
        with self.catalog.reading() as reading:
            assert reading.progress(log, WriterId("b")) == some
            assert reading.progress(log, WriterId("d")) is None
            assert [writer for writer, _ in reading.writers_of_log(log, WriterId(""), 10)] == ["a", "b", "c"]
            assert reading.writers_of_log(log, WriterId("a"), 1) == [("b", some)]
        with self.catalog.writing() as writing:
            assert writing.drop_progress_before(Micros(NOW + 20), 1) == 1
            assert writing.drop_progress_before(Micros(NOW + 20), 10) == 1
            assert [writer for writer, _ in writing.writers_of_log(log, WriterId(""), 10)] == ["c"]

    def test_an_heir_inherits_the_fences_of_its_predecessors(self) -> None:
        log, successor = new_stream(self.catalog), new_stream(self.catalog, 78, "iot/successor")
        with self.catalog.writing() as writing:
            for writer, fence in (("low", 2), ("high", 5), ("none", 0)):
                writing.put_progress(log, WriterId(writer), Progress(9, fence, (Batch(0, 9, 0, NOW, fence),)), now=NOW)
            for writer, fence in (("low", 3), ("high", 4)):
                writing.put_progress(successor, WriterId(writer), Progress(1, fence), now=NOW)
            writing.put_progress(log, WriterId("new"), Progress(9, 1), now=NOW)
            writing.copy_fences(log, successor)
        with self.catalog.reading() as reading:
            held = dict(reading.writers_of_log(successor, WriterId(""), 10))
        assert held == {"low": Progress(1, 3), "high": Progress(1, 5), "new": Progress(0, 1)}

    # small state

    def test_the_horizon_never_goes_back(self) -> None:
        with self.catalog.writing() as writing:
            assert writing.horizon() == 0
            writing.set_horizon(NOW)
            writing.set_horizon(Micros(NOW - 1))
        with self.catalog.reading() as reading:
            assert reading.horizon() == NOW

    def test_leases_are_renewed_and_given_back(self) -> None:
        lease = Lease("l1", "upload", "me", NOW, Micros(NOW + 10))
        longer = replace(lease, expires_at=Micros(NOW + 20))
        with self.catalog.writing() as writing:
            writing.put_lease(lease)
            writing.put_lease(longer)
            writing.drop_lease("unknown")
        with self.catalog.reading() as reading:
            assert reading.leases() == [longer]
        with self.catalog.writing() as writing:
            writing.drop_lease("l1")
            assert writing.leases() == []

    def test_a_request_keeps_its_first_result(self) -> None:
        with self.catalog.writing() as writing:
            writing.record_request("r1", "scale", '{"a":1}', now=NOW)
            writing.record_request("r2", "seal", "[]", now=Micros(NOW + 1))
        with self.catalog.reading() as reading:
            assert reading.request("r1") == ("scale", '{"a":1}')
            assert reading.request("r3") is None
        with self.catalog.writing() as writing:
            assert writing.drop_requests_before(Micros(NOW + 1), 10) == 1
            assert writing.request("r1") is None

    def test_a_text_that_is_not_unicode_is_refused_wherever_it_stands(self) -> None:
        with pytest.raises(InvalidArgument), self.catalog.reading() as reading:
            reading.request("\udcff")
        with pytest.raises(InvalidArgument), self.catalog.writing() as writing:
            writing.record_request("r1", "scale", "\ud800", now=NOW)
        with self.catalog.writing() as writing:  # its connections are as they were
            assert writing.request("r1") is None
            writing.record_request("r1", "scale", "[]", now=NOW)

    def test_changes_come_in_commit_order_and_are_never_numbered_twice(self) -> None:
        with self.catalog.writing() as writing:
            for kind in ("created", "scaled"):
                writing.add_change(STREAM, kind, {"to": [1, "é"]}, now=NOW)
        with self.catalog.writing() as writing:
            writing.add_change(None, "scope", {}, now=Micros(NOW + 1))
        with self.catalog.reading() as reading:
            changes = reading.changes(0, 10)
            assert [change.kind for change in changes] == ["created", "scaled", "scope"]
            assert (changes[0].stream, changes[0].at, changes[0].detail) == (STREAM, NOW, {"to": [1, "é"]})
            assert reading.changes(changes[0].sequence, 1) == changes[1:2]
        with self.catalog.writing() as writing:
            assert writing.drop_changes_before(Micros(NOW + 2), 10) == 3
            writing.add_change(None, "later", {}, now=NOW)
            assert writing.changes(0, 10)[0].sequence > changes[-1].sequence

    def test_aliases_are_listed_by_name_a_page_at_a_time(self) -> None:
        """Only those of the scope, even if its name is a prefix of another scope's."""
        names = ["a/x", "a/y", "a-b/x", "a.c/x", "a0/x", "A/x", "b/x"]
        new_stream(self.catalog)
        with self.catalog.writing() as writing:
            for name in names:
                writing.put_alias(StreamName.parse(name), STREAM)
            writing.put_alias(StreamName("a", "nobody"), StreamId(STREAM + 1))
        with self.catalog.reading() as reading:
            found = reading.aliases()
            assert [str(each.name) for each in found] == sorted(names)
            own = reading.stream(STREAM)
            assert own is not None
            assert {(each.stream, each.stream_name) for each in found} == {(STREAM, own.name)}
            assert [str(each.name) for each in reading.aliases("a")] == ["a/x", "a/y"]
            assert reading.aliases("a", limit=1) == reading.aliases("a")[:1]
            assert [str(each.name) for each in reading.aliases("a", after=StreamName("a", "x"))] == ["a/y"]
            paged, after = [], None
            while page := reading.aliases(after=after, limit=2):
                paged += page
                after = page[-1].name
            assert paged == found
        with self.catalog.writing() as writing:
            assert writing.aliases() == found
            assert [str(name) for name in writing.aliases_of(STREAM)] == sorted(names)
            writing.drop_alias(StreamName("a", "x"))
            writing.drop_alias(StreamName("a", "x"))  # harmless
            assert StreamName("a", "x") not in writing.aliases_of(STREAM)
            assert writing.stream(StreamName("a", "x")) is None

    def test_a_transaction_with_a_subject_touches_nothing_else(self) -> None:
        new_stream(self.catalog)
        other = StreamId(78)
        log = new_stream(self.catalog, other, "iot/other")
        name = StreamName("iot", "raw")
        for subject in (STREAM, name):
            with self.catalog.writing(subject) as writing:
                assert writing.stream(name) == writing.stream(STREAM)
                assert writing.view(STREAM) is not None
        touched: list[Callable[[Writing], object]] = [
            lambda writing: writing.stream(other),
            lambda writing: writing.stream(StreamName("iot", "other")),
            lambda writing: writing.view(other),
            lambda writing: writing.views([STREAM]),
            lambda writing: writing.logs([log]),
            lambda writing: writing.new_log(other, appended_at=NOW),
            lambda writing: writing.put_alias(StreamName("iot", "more"), other),
            lambda writing: writing.drop_stream(other),
            lambda writing: writing.insert_stream(info(79, "iot/more")),
            lambda writing: writing.leases(),
            lambda writing: writing.streams("iot", limit=1),
        ]
        for touch in touched:
            for on in (STREAM, name, "a value of state"):
                with pytest.raises(AssertionError), self.catalog.writing(on) as writing:
                    touch(writing)

    def test_blobs_are_listed_marked_and_forgotten(self) -> None:
        with self.catalog.writing() as writing:
            ids = [writing.insert_blob(f"commits/{name}", 10, NOW, "arrow") for name in "cab"]
            assert ids == sorted(ids)
            writing.set_blob_dead(ids[1], Micros(NOW + 5))
        with self.catalog.reading() as reading:
            blobs = reading.blobs_after(BlobId(0), 10)
            assert [(blob.id, blob.key) for blob in blobs] == [
                *zip(ids, ("commits/c", "commits/a", "commits/b"), strict=True)
            ]
            assert [blob.dead_at for blob in blobs] == [None, NOW + 5, None]
            assert reading.blobs_after(ids[0], 1) == blobs[1:2]
            assert reading.blob_ids_after(BlobId(0), 10) == ids
            assert reading.blob_ids_after(ids[0], 1) == ids[1:2]
            assert reading.blob_keys(["commits/a", "commits/x"]) == {"commits/a"}
            assert not reading.blob_in_use(ids[0])
        with self.catalog.writing() as writing:
            writing.set_blob_dead(ids[1], None)
            assert writing.blobs_after(ids[0], 1)[0].dead_at is None
            writing.drop_blobs(ids[:2])
            again = writing.insert_blob("commits/a", 10, NOW, "arrow")
            assert again > ids[2]
