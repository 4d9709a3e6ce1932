"""Errors of the store itself: its bytes, its keys, or the machine it runs on."""

from __future__ import annotations

from anabranch.errors.arguments import InvalidArgument
from anabranch.errors.base import AnabranchError


class CorruptStore(AnabranchError):
    """Data found in the store contradicts what was written."""


class CorruptBlob(CorruptStore):
    """A blob's bytes differ from those that were written."""

    def __init__(self, key: str, reason: str, location: str | None = None) -> None:
        """`location`: the path of the file, if it was attached from outside the store."""
        super().__init__(
            f"{f'blob {key}' if location is None else f'the attached file {location}'} is corrupt: {reason}"
        )
        self.key = key
        self.reason = reason


class BlobMissing(CorruptStore):
    """A blob named in the catalog is not in the blob store."""

    def __init__(self, key: str, location: str | None = None) -> None:
        """`location`: the path of the file, if it was attached from outside the store."""
        super().__init__(f"blob {key} is missing" if location is None else f"the attached file {location} is missing")
        self.key = key


class AttachmentUnconfirmed(AnabranchError):
    """Files were attached to the store before it was restored or rebuilt. Their place is not contacted until it is
    confirmed."""

    def __init__(self, location: str) -> None:
        super().__init__(
            f"the files in {location} were attached to the store before it was restored or rebuilt, and are not read until "
            f"you confirm that place: anabranch attach --confirm '{location}', or archives.confirm_attachment() in Python"
        )
        self.location = location


class CorruptCatalog(CorruptStore):
    """The catalog's database is damaged or is not a catalog. `table` and `row` (its key, as text) locate the damage, if
    known."""

    def __init__(self, what: str, table: str | None = None, row: str | None = None) -> None:
        super().__init__(what)
        self.table = table
        self.row = row


class CorruptArchive(CorruptStore):
    """A file of an archive, or of a place to be attached, is missing, changed or unexpected. Nothing was imported;
    another copy may work."""

    def __init__(self, location: str, file: str, reason: str) -> None:
        super().__init__(f"{location} is incomplete or damaged: {file} {reason}")
        self.location = location
        self.file = file
        self.reason = reason


class StoreUnavailable(AnabranchError, OSError):
    """The operating system or the database refused; nothing was acknowledged. Retrying later may help."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__


class DiskFull(StoreUnavailable):
    """No space is left for the write."""


class ReadOnlyStore(StoreUnavailable):
    """The folder or database can't be written."""


class StoreBusy(StoreUnavailable):
    """Another process held the store's lock for longer than the time given in the message."""


class KeyMissing(AnabranchError):
    """The store is encrypted, and the key with this id was not given."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"the store is encrypted, and its key '{key_id}' was not given: pass it with keys= or --keys")
        self.key_id = key_id


class KeysUnreadable(InvalidArgument):
    """The keys can't be read from the given place: the variable is not set on this machine, or the file not readable."""


class WrongKey(AnabranchError):
    """A key was given under the right id, but the store was encrypted with a different one."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"the given key '{key_id}' is not the one that the store was encrypted with")
        self.key_id = key_id


class FormatTooNew(AnabranchError):
    """The store was written by a newer release of this software."""

    def __init__(self, what: str, found: int, supported: int) -> None:
        super().__init__(f"{what} has format {found}; this release reads up to {supported}. Please upgrade anabranch")
        self.found = found
        self.supported = supported
