"""Notifications: what happened to streams and reader groups. Detected by the change outbox, into which every change writes
in its own transaction; noted down once and for all in a stream (`journal`); read again from there (`follow`); handed to
whoever listens (`listen`)."""
