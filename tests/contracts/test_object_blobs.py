"""Object stores, held to the contract."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import anabranch as ab
from anabranch.blobs.address import parse
from anabranch.blobs.local import LocalBlobs
from anabranch.blobs.objects import ObjectBlobs
from anabranch.blobs.port import Blobs
from anabranch.blobs.requests import FailureKind, explain
from anabranch.blobs.tiers import TieredBlobs
from anabranch.runtime.ports import Runtime
from anabranch.testing.contracts import BlobContract
from tests.s3_server import BUCKET, fresh_url, put_object


class TestS3(BlobContract):
    def make(self) -> Blobs:
        self.url = fresh_url()
        return self.again()

    def again(self) -> Blobs:
        return ObjectBlobs(parse(self.url), Runtime())

    def test_a_listing_goes_on_page_after_page(self) -> None:
        keys = [f"commits/{n:04}" for n in range(1_203)]
        for key in keys:
            self.blobs.put(key, [b"x"])
        assert [blob.key for blob in self.blobs.list("commits/")] == keys

    def test_a_place_is_cleared_and_its_neighbour_is_not(self) -> None:
        base, _, options = self.url.partition("?")
        below, beside = (ObjectBlobs(parse(f"{base}/{name}?{options}"), Runtime()) for name in ("a", "a-b"))
        for name in ("offsets/1", "offsets.x/2", "state/0/0/3"):
            below.put(name, [b"x"])
        beside.put("offsets/1", [b"x"])
        below.clear(re.compile("offsets/"))
        assert [blob.key for blob in below.list()] == ["offsets.x/2", "state/0/0/3"]
        below.clear(re.compile(""))
        below.clear(re.compile(""))
        assert [blob.key for blob in self.blobs.list()] == ["a-b/offsets/1"]


def test_a_range_that_begins_at_the_end_lies_beyond_it_whatever_the_server_answers() -> None:
    said = "Generic MicrosoftAzure error: Wanted range starting at 4, but object was only 4 bytes long\n\nStartTooLarge"
    assert explain(ValueError(said)).kind is FailureKind.RANGE


class TestFolderAndS3(BlobContract):
    """Tier 1 in a folder, tier 2 in a bucket; the contract's own keys fall to both."""

    def setup_method(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        super().setup_method()

    def teardown_method(self) -> None:
        super().teardown_method()
        self.folder.cleanup()

    def make(self) -> Blobs:
        self.url = fresh_url()
        return self.again()

    def again(self) -> Blobs:
        self.local = LocalBlobs(Path(self.folder.name), Runtime())
        self.remote = ObjectBlobs(parse(self.url), Runtime())
        return TieredBlobs(self.local, self.remote)

    def test_the_prefix_says_where_a_blob_lies(self) -> None:
        for key in ("history/2", "commits/1", "history/1", "zebra/1"):
            self.blobs.put(key, [key.encode()])
        assert [blob.key for blob in self.local.list()] == ["commits/1", "zebra/1"]
        assert [blob.key for blob in self.remote.list()] == ["history/1", "history/2"]
        assert [blob.key for blob in self.blobs.list()] == ["commits/1", "history/1", "history/2", "zebra/1"]
        assert [blob.key for blob in self.blobs.list("h")] == ["history/1", "history/2"]
        assert [blob.key for blob in self.blobs.list("history/2")] == ["history/2"]
        assert [blob.key for blob in self.blobs.list("commits/")] == ["commits/1"]
        assert self.blobs.path("commits/1") == self.local.path("commits/1")
        assert self.blobs.path("history/1").startswith("s3://")
        assert self.blobs.get("history/1").to_pybytes() == b"history/1"
        self.blobs.delete("history/1")
        assert self.blobs.size("history/1") is None


def test_a_folder_that_another_program_has_marked_is_an_empty_place(tmp_path: Path) -> None:
    url = fresh_url(bucket=BUCKET)
    put_object(url, "", b"")
    with ab.connect(tmp_path / "river", blobs=url, create=True) as store:
        put_object(url, "commits/", b"")
        store.scopes.create("s")
        store.streams.create("s/a")
        store.writer("s/a").write(b"x" * 1_000_000).result()
        assert [info.size > 1_000_000 for info in ObjectBlobs(parse(url), Runtime()).list("commits/")] == [True]
        assert list(store.check()) == []
