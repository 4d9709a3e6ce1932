"""Backups, manifests and catalogs that somebody has tampered with: nothing outside the store is written, read or removed."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.blobs.keys import parse
from anabranch.blobs.local import LocalBlobs
from anabranch.core.checksum import checksum
from anabranch.errors import (
    AnabranchError,
    AttachmentUnconfirmed,
    CorruptArchive,
    CorruptBlob,
    InvalidArgument,
    JobUnconfirmed,
    NotFound,
)
from anabranch.log.recovery import manifest as manifests
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.store import rebuild, restore
from tests.catalog_file import change
from tests.cli.kit import Line
from tests.waiting import until

KEY = "commits/0000000000000001-00000000000000000000000a.arrow"
OUT = "commits/d/" + "../" * 7 + "victim/evil"
PAYLOAD = b"* * * * * root true\n"


def filled(folder: Path) -> None:
    with ab.connect(folder, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        store.writer("s/a").write(b"x" * 100_000).result()
        store.compact(force=True)


@pytest.mark.parametrize(
    "key", [OUT, "/etc/passwd", "../../thesis.txt", "COMMITS/x", "history/x.parquet", KEY + "/", ""]
)
def test_a_key_has_one_grammar(key: str) -> None:
    with pytest.raises(CorruptBlob):
        parse(key)


def test_every_kind_of_key_is_parsed() -> None:
    assert parse(KEY).begun_at == 1
    found = parse("attached/0000000000000002-00000000000000000000000a/2026/My file.parquet")
    assert (found.begun_at, found.name) == (2, "2026/My file.parquet")
    with pytest.raises(CorruptBlob):
        parse("attached/0000000000000002-00000000000000000000000a/../../x.parquet")
    with pytest.raises(CorruptBlob):
        parse(None)


def test_a_backup_whose_keys_lead_out_of_the_store_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "made")
    file = tmp_path / "made" / "catalog.db"
    change(file, "update blobs set key=?, size=? where key like 'history/%'", OUT, len(PAYLOAD))
    change(
        file,
        "update extents set checksum=? where blob in (select id from blobs where key=?)",
        checksum(pa.py_buffer(PAYLOAD)),
        OUT,
    )
    backup = tmp_path / "shipped"
    backup.mkdir()
    (backup / "backup.json").write_text('{"anabranch": "backup", "format": 1}')
    target = LocalBlobs(backup, Runtime())
    with ab.connect(tmp_path / "made", create=True) as store:
        manifests.finish(manifests.write(store.catalog, target, Runtime()), target)
    deep = backup / "1/2/3/4/5/6/7/8"
    deep.mkdir(parents=True)
    (backup / "commits").mkdir()
    (backup / "commits" / "d").symlink_to("../1/2/3/4/5/6/7/8")
    (backup / "1/victim").mkdir()
    (backup / "1/victim/evil").write_bytes(PAYLOAD)
    (tmp_path / "victim").mkdir()
    with pytest.raises(CorruptBlob, match="not the key"):
        restore(backup, tmp_path / "srv/a/b/river")
    assert list((tmp_path / "victim").iterdir()) == []
    assert not [path for path in (tmp_path / "srv").rglob("*") if path.is_file() and path.read_bytes() == PAYLOAD]


def test_a_manifest_that_names_a_file_outside_is_not_rebuilt(tmp_path: Path) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("precious")
    filled(tmp_path / "river")
    file = tmp_path / "river" / "catalog.db"
    change(
        file, "insert into blobs(key, size, begun_at, encoding, digest) values ('../../thesis.txt', 8, 1, 'parquet', 0)"
    )
    with ab.connect(tmp_path / "river", create=True) as store:
        store.export_manifest()
    for each in (tmp_path / "river").glob("catalog.db*"):
        each.unlink()
    with pytest.raises(NotFound, match=r"thesis\.txt"):  # no other manifest is left to rebuild from
        rebuild(tmp_path / "river")
    assert precious.read_text() == "precious"


def test_collection_by_a_catalog_that_was_tampered_with_removes_nothing_outside(tmp_path: Path) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("precious")
    filled(tmp_path / "river")
    file = tmp_path / "river" / "catalog.db"
    change(
        file,
        "insert into blobs(key, size, begun_at, dead_at, encoding, digest) values ('../../thesis.txt', 8, 1, 1, 'parquet', 0)",
    )
    with ab.connect(tmp_path / "river", create=True) as store, pytest.raises(CorruptBlob, match=r"thesis\.txt"):
        store.collect(horizon_us=0)
    assert precious.read_text() == "precious"


def edited(blobs: LocalBlobs, folder: Path, **changes: Any) -> None:
    """A manifest's index with other values, whose checksum is right again."""
    from anabranch.blobs import layout

    (name,) = manifests.folders(blobs)
    key = f"{name}index"
    index = {**layout.read_index(key, blobs.get(key)), **changes}
    index.pop("parts")
    (folder / key).unlink()
    LocalBlobs(folder, Runtime()).put(key, layout.frame(index, [], []).chunks)


@pytest.mark.parametrize("part", ["../../../etc/passwd", "/etc/passwd", 7, None, ["x"], "manifests/x/00000000.arrow"])
def test_an_index_names_parts_of_its_own_manifest_alone(tmp_path: Path, part: object) -> None:
    filled(tmp_path / "river")
    with ab.connect(tmp_path / "river", create=True) as store:
        store.backup(tmp_path / "backup")
    blobs = LocalBlobs(tmp_path / "backup", Runtime())
    manifest = manifests.read(blobs, manifests.folders(blobs)[0])
    told = [[p.key, p.table, p.rows, p.size, p.checksum] for p in manifest.parts]
    told[0][0] = part  # type: ignore[call-overload]
    edited(blobs, tmp_path / "backup", pieces=told)
    with pytest.raises(CorruptBlob):
        restore(tmp_path / "backup", tmp_path / "other")
    assert not (tmp_path / "other" / "catalog.db").exists()


@pytest.mark.parametrize("name", ["taken_at", "horizon"])
def test_an_index_has_no_time_from_which_a_catalog_can_not_count_on(tmp_path: Path, name: str) -> None:
    filled(tmp_path / "river")
    with ab.connect(tmp_path / "river") as store:
        store.export_manifest()
    blobs = LocalBlobs(tmp_path / "river" / "blobs", Runtime())
    edited(blobs, tmp_path / "river" / "blobs", **{name: (1 << 63) - 1})
    (tmp_path / "river" / "catalog.db").unlink()
    with pytest.raises(NotFound, match="its time is too late"):
        rebuild(tmp_path / "river")


# links


@pytest.fixture
def linked(tmp_path: Path) -> tuple[LocalBlobs, Path]:
    """Blobs whose folder `commits` leads out, and beside it a file that does."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / KEY.partition("/")[2]).write_bytes(b"secret")
    root = tmp_path / "blobs"
    root.mkdir()
    (root / "commits").symlink_to(outside)
    (root / "one").symlink_to(outside / KEY.partition("/")[2])
    return LocalBlobs(root, Runtime()), outside


def test_no_symbolic_link_leads_out_of_the_folder(linked: tuple[LocalBlobs, Path]) -> None:
    blobs, outside = linked
    for key in (KEY, "one"):
        for call in (blobs.get, blobs.size, blobs.path, lambda key: blobs.get(key, 0, 1)):
            with pytest.raises(CorruptBlob, match="leads out"):
                call(key)
    with pytest.raises(CorruptBlob, match="leads out"):
        blobs.put("commits/x", [b"x"])
    with pytest.raises(CorruptBlob, match="leads out"):
        blobs.delete(KEY)
    with pytest.raises(CorruptBlob, match="leads out"):
        list(blobs.list("commits/"))
    blobs.delete("one")  # the link, which lies in the folder
    assert [path.read_bytes() for path in outside.iterdir()] == [b"secret"]


def test_links_within_the_folder_and_a_linked_folder_itself_are_followed(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "a").mkdir(parents=True)
    (real / "a" / "x").write_bytes(b"bytes")
    (real / "b").symlink_to("a")
    (real / "y").symlink_to("a/x")
    (tmp_path / "root").symlink_to(real)
    blobs = LocalBlobs(tmp_path / "root", Runtime())
    assert blobs.get("b/x").to_pybytes() == blobs.get("y").to_pybytes() == b"bytes"
    blobs.put("b/new", [b"new"])
    assert (real / "a" / "new").read_bytes() == b"new"


def test_what_is_no_file_is_no_blob(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"x")
    blobs = LocalBlobs(tmp_path, Runtime())
    assert blobs.size("pipe") is None
    with pytest.raises(CorruptBlob, match="not a file"):
        blobs.get("pipe")
    assert blobs.size("file/below") is None
    blobs.delete("file/below")


def test_an_attached_folder_is_not_left_through_a_link(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "secret.parquet")
    place = tmp_path / "place"
    place.mkdir()
    (place / "a.parquet").symlink_to(tmp_path / "secret.parquet")
    with ab.connect(tmp_path / "river", create=True) as store:
        store.scopes.create("s")
        with pytest.raises(CorruptArchive, match="leads out"):
            store.archives.attach(place, "s/a")


# attachments


def attached(tmp_path: Path, place: str | None = None) -> Path:
    """A backup of a store with an attachment, at another place if that is given."""
    (tmp_path / "pq").mkdir()
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "pq" / "x.parquet")
    with ab.connect(tmp_path / "evil", create=True) as store:
        store.scopes.create("s")
        store.archives.attach(tmp_path / "pq", "s/att")
    if place is not None:
        # A backup also says that it is confirmed.
        value = json.dumps({"place": place, "unconfirmed": False})
        change(
            tmp_path / "evil" / "catalog.db",
            "update states set value=?, lookup=? where kind='attachment'",
            value,
            place,
        )
    with ab.connect(tmp_path / "evil", create=True) as store:
        store.backup(tmp_path / "backup")
    return tmp_path / "backup"


def test_no_endpoint_of_a_backup_is_contacted_before_it_is_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(str(self.headers.get("authorization")))
            self.send_error(404)

        do_HEAD = do_GET  # noqa: N815 - as the base class calls it

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        place = f"s3://b/p?endpoint=http://127.0.0.1:{server.server_port}&allow_http=true&region=x"
        backup = attached(tmp_path, place)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "VICTIM")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
        report = restore(backup, tmp_path / "river")
        assert report.unconfirmed == (place,)
        with ab.connect(tmp_path / "river", settings=Settings(blob_deadline_s=0.5), create=True) as store:
            with pytest.raises(AttachmentUnconfirmed, match="attach --confirm"):
                list(store.reader("s/att"))
            store.collect()
            assert asked == []
            assert store.archives.unconfirmed_attachments() == [place]
            assert store.archives.confirm_attachment(place) == 1
            with pytest.raises(AnabranchError):
                list(store.reader("s/att"))
            assert asked  # now it was
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def test_local_places_wait_too_and_the_command_line_says_how_to_confirm_them(tmp_path: Path) -> None:
    backup = attached(tmp_path)
    line = Line(tmp_path / "river")
    told = line("restore", backup).err
    assert f"anabranch attach --confirm '{tmp_path / 'pq'}'" in told
    assert "attach --confirm" in line.refused("read", "s/att")
    assert "nothing was attached from" in line.refused("attach", "--confirm", tmp_path / "elsewhere")
    assert "takes only a location" in line.refused("attach", "--confirm", tmp_path / "pq", "s/x")
    assert line("attach", "--confirm", tmp_path / "pq").err == "1 attachment confirmed\n"
    assert line("attach", "--confirm", tmp_path / "pq").err == "confirmed already\n"
    assert [row["n"] for row in line("read", "s/att").rows] == [1, 2]


def test_attachments_of_a_rebuilt_store_wait_too(tmp_path: Path) -> None:
    attached(tmp_path)
    with ab.connect(tmp_path / "evil", create=True) as store:
        store.export_manifest()
    for each in (tmp_path / "evil").glob("catalog.db*"):
        each.unlink()
    assert rebuild(tmp_path / "evil").unconfirmed == [str(tmp_path / "pq")]
    with ab.connect(tmp_path / "evil", create=True) as store:
        with pytest.raises(AttachmentUnconfirmed):
            list(store.reader("s/att"))
        with pytest.raises(NotFound, match="waiting"):
            store.archives.confirm_attachment(tmp_path / "other")
        store.archives.confirm_attachment(tmp_path / "pq")
        assert len(list(store.reader("s/att"))) == 2


def test_a_job_of_a_restored_store_contacts_nothing_before_it_is_confirmed(tmp_path: Path) -> None:
    filled(tmp_path / "source")
    with ab.connect(tmp_path / "source", create=True) as source, ab.connect(tmp_path / "target", create=True) as target:
        target.scopes.create("t")
        job = target.jobs.copy(source, "s/a", "t/a", follow=True)
        until(lambda: target.streams.exists("t/a"))
        job.pause()
        target.backup(tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    with ab.connect(tmp_path / "restored", create=True) as store, pytest.raises(JobUnconfirmed, match=job.id):
        store.jobs.resume(job.id)
    said = Line(tmp_path / "restored").refused("job", "resume", job.id)
    assert "--confirm" in said
    with (
        ab.connect(tmp_path / "restored", create=True) as store,
        ab.connect(tmp_path / "source", create=True) as source,
    ):
        source.writer("s/a").write(b"more").result()
        store.jobs.confirm(job.id)
        going = store.jobs.resume(job.id)
        until(lambda: store.cuts.distance("t/a").events == 2)
        going.pause()


def test_bad_addresses_of_blobs_are_refused_in_our_words() -> None:
    with pytest.raises(InvalidArgument):
        ab.connect("memory://", blobs="s3://[::bad/p")
