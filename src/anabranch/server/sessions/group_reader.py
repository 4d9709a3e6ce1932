"""A group reader that a broker holds for a caller of any front end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from anabranch import limits
from anabranch.errors import GroupNotFound, NotFound, TooLarge
from anabranch.groups.cursor import GroupDelivery
from anabranch.groups.hosted import HostedGroupReader
from anabranch.groups.membership import Opening
from anabranch.groups.ports import StoredPositions
from anabranch.groups.progress import DeliveryMode
from anabranch.model.ids import StreamId
from anabranch.model.position import Position, StreamSegment
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.calls import allowed_stream


class HeldGroupReader:
    """One reader of a group. For one thread at a time, except `wake`. It checks the caller's rights and limits."""

    def __init__(
        self,
        broker: Broker,
        principal: Principal,
        group: str,
        name: str,
        opening: Opening,
        *,
        ident: StreamId | None = None,
        delivery: DeliveryMode,
        positions: StoredPositions | None = None,
        batch_rows: int,
        handed_out: Position | None = None,
        processed: Position | None = None,
        on_checkpoint: Callable[[str], None],
    ) -> None:
        """Open the reader. In the segments that it still has, it continues after `handed_out`; events before
        `processed` count as processed. Raises what `ReaderGroup.reader` raises, GroupNotFound if `ident` is not the id
        of the group, and PermissionDenied."""
        self._broker = broker
        self._principal = principal
        try:
            self._group = broker.store.groups.open(group)
        except NotFound:  # only callers who may use the group learn whether it exists
            broker.guard.authorize(principal, "write", group, verb="groups.read")
            raise
        if ident not in (None, self._group.id):
            raise GroupNotFound(self._group.name)
        self._outputs: dict[str, list[pa.Table]] = {}
        self._output_bytes = 0
        self.authorize()
        self.reader: HostedGroupReader = self._group.hosted_reader(
            name, opening, delivery=delivery, positions=positions, batch_rows=batch_rows
        )
        try:
            if handed_out is not None and (before := handed_out.as_dict()):
                self.reader.resume(before, {} if processed is None else processed.as_dict())
        except BaseException:
            self.reader.abandon()
            raise
        self.reader.on_checkpoint(on_checkpoint)

    def authorize(self) -> None:
        """Check the rights to write the group's positions and to read its streams. Raises PermissionDenied,
        Unauthenticated."""
        guard = self._broker.guard
        guard.authorize(self._principal, "write", self._group.name, verb="groups.read")
        for stream in self._group.streams:
            guard.authorize(self._principal, "read", stream, verb="groups.read")

    def pull(self, timeout_s: float | None, interrupted: Callable[[], bool]) -> GroupDelivery | None:
        """The next batch; see `HostedGroupReader.pull`. Waits at most `limits.SESSION_WAIT_S`, and at most a quarter of
        the lease."""
        wait_s = min(limits.SESSION_WAIT_S, self.reader.lease_s / 4)
        delivery = self.reader.pull(wait_s if timeout_s is None else min(wait_s, timeout_s), interrupted)
        if delivery is not None:
            self._broker.guard.admit(self._principal, calls=0, bytes_=delivery.rows.batch.nbytes)
        return delivery

    def add_output(self, stream: str, table: pa.Table) -> None:
        """Add rows that the next `commit` writes to the stream. Raises TooLarge, and then drops all rows that were
        added."""
        name = str(allowed_stream(self._broker, self._principal, stream, "write", "groups.commit").name)
        self._output_bytes += table.nbytes
        if self._output_bytes > limits.SESSION_OUTPUT_BYTES_MAX:
            size = self._output_bytes
            self._drop_outputs()
            raise TooLarge("the output of one commit", size, limits.SESSION_OUTPUT_BYTES_MAX)
        self._broker.guard.admit(self._principal, calls=0, bytes_=table.nbytes)
        self._outputs.setdefault(name, []).append(table)

    def commit(self) -> int:
        """Accept what was handed out, and write the outputs with it. Returns the number of the last commit that wrote
        outputs."""
        self.reader.commit(self._take_outputs())
        return self.reader.last_output

    def commit_to(self, positions: Mapping[StreamSegment, int], *, handed_out: int) -> None:
        """Like `commit`; see `HostedGroupReader.commit_to`."""
        self.reader.commit_to(positions, self._take_outputs(), handed_out=handed_out)

    def wake(self) -> None:
        """Wake a `pull` in another thread, so that it checks `interrupted()`."""
        self.reader.wake()

    def _take_outputs(self) -> dict[str, pa.Table] | None:
        outputs = {stream: pa.concat_tables(tables) for stream, tables in self._outputs.items()}
        self._drop_outputs()
        return outputs or None

    def _drop_outputs(self) -> None:
        self._outputs, self._output_bytes = {}, 0
