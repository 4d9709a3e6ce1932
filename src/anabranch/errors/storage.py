"""What is wrong with the store itself: with its bytes, its keys, or the machine below it."""

from __future__ import annotations

from anabranch.errors.base import AnabranchError


class CorruptStore(AnabranchError):
    """What the store finds on disk contradicts what it once wrote."""


class CorruptBlob(CorruptStore):
    """A blob's bytes are not those that were written."""

    def __init__(self, key: str, why: str, place: str | None = None) -> None:
        """`place`: the file it is, where that was attached from somewhere else."""
        super().__init__(f"{f'blob {key}' if place is None else f'the attached file {place}'} is corrupt: {why}")
        self.key = key
        self.why = why


class BlobMissing(CorruptStore):
    """A blob that the catalog names is not in the blob store."""

    def __init__(self, key: str, place: str | None = None) -> None:
        """`place`: the file it is, where that was attached from somewhere else."""
        super().__init__(f"blob {key} is missing" if place is None else f"the attached file {place} is missing")
        self.key = key


class CorruptCatalog(CorruptStore):
    """The catalog's database is damaged or is not a catalog."""


class CorruptArchive(CorruptStore):
    """A file of an archive, or of a place to be attached, is missing, changed or does not belong there. Nothing was
    imported; another copy may do."""

    def __init__(self, place: str, file: str, why: str) -> None:
        super().__init__(f"{place} is not whole: {file} {why}")
        self.place = place
        self.file = file
        self.why = why


class StoreUnavailable(AnabranchError, OSError):
    """The operating system or the database refused; nothing was acknowledged. Trying again later may help."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__


class DiskFull(StoreUnavailable):
    """No space is left for the write."""


class ReadOnlyStore(StoreUnavailable):
    """The folder or database can't be written."""


class StoreBusy(StoreUnavailable):
    """Another process held the store's lock for longer than the stated time."""


class KeyMissing(AnabranchError):
    """The store is encrypted, and the key of this id was not given."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"the store is encrypted, and its key '{key_id}' was not given: give it by keys= or --keys")
        self.key_id = key_id


class WrongKey(AnabranchError):
    """A key was given under the right id, and is another than the store was encrypted with."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"the key '{key_id}' that was given is not the one that the store was encrypted with")
        self.key_id = key_id


class FormatTooNew(AnabranchError):
    """The store was written by a newer release of this software."""

    def __init__(self, what: str, found: int, supported: int) -> None:
        super().__init__(f"{what} has format {found}; this release reads up to {supported}. Please upgrade anabranch")
        self.found = found
        self.supported = supported
