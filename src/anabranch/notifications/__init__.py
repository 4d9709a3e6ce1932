"""Notifications of changes of streams and reader groups. Every change writes rows to the change outbox in its own
transaction. `publisher` appends each row once to a stream, `follow` reads them from there, and `subscription` delivers
them to listeners."""
