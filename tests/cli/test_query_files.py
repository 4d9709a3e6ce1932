"""Wheels, modules, resources and signatures of queries on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from anabranch import connect
from tests.cli.kit import Line
from tests.wasm_modules import ALLOC, FAHRENHEIT, MEMORY
from tests.wheels import wheel

SQL = """
CREATE FUNCTION score(celsius DOUBLE) RETURNS DOUBLE AS PYTHON 'scoring:score';
CREATE STREAM iot.scores AS SELECT device, score(celsius) AS s FROM STREAM iot.sensors;
"""
WHEEL = "scoring-1.0-py3-none-any.whl"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with statements, a wheel, a model, and a pair of keys."""
    monkeypatch.chdir(tmp_path)
    Path("scores.sql").write_text(SQL)
    Path(WHEEL).write_bytes(wheel({"scoring.py": "def score(x): return x"}))
    Path("model.json").write_text("{}")
    key = Ed25519PrivateKey.generate()
    Path("alice.pem").touch(0o600)
    Path("alice.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    Path("alice.pub").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return tmp_path


FILES = ("--wheel", WHEEL, "--resource", "model.json")


def test_files_are_deployed_shown_and_kept_by_an_upgrade(sensors: Line, folder: Path) -> None:
    deployed = sensors("queries", "deploy", "scores", "scores.sql", *FILES, "--json").json
    assert deployed["version"] == 1
    (version,) = sensors("queries", "versions", "scores", "--json").json
    assert [(file["name"], file["kind"]) for file in version["files"]] == [("model.json", "resource"), (WHEEL, "wheel")]
    assert version["signature"] is None
    assert f"model.json, {WHEEL}" in sensors("queries", "versions", "scores").out
    assert f"wheel {WHEEL}: " in sensors("queries", "show", "scores").out
    Path("scores.sql").write_text(SQL + "-- changed")
    sensors("queries", "upgrade", "scores", "scores.sql")
    Path("model.json").write_text('{"a": 1}')
    sensors("queries", "upgrade", "scores", "scores.sql", *FILES)
    first, second, third = sensors("queries", "versions", "scores", "--json").json
    assert first["files"] == second["files"] != third["files"]
    with connect(sensors.store) as store:
        assert store.queries.file("scores", "model.json") == b'{"a": 1}'


def test_code_that_is_missing_is_refused_at_once(sensors: Line, folder: Path) -> None:
    for verb in (("deploy", "scores"), ("validate",)):
        told = sensors.refused("queries", *verb, "scores.sql", "--resource", "model.json")
        assert "line 2: there is no module 'scoring' for 'score'" in told
    assert "there is no module 'scoring'" in sensors.refused("queries", "deploy", "scores", "scores.sql")
    assert sensors("queries", "list", "--json").json == []


def test_a_module_is_given_as_text(sensors: Line, folder: Path) -> None:
    Path("heat.wat").write_text(f"(module {MEMORY} {ALLOC} {FAHRENHEIT})")
    Path("heat.sql").write_text(SQL.replace("PYTHON 'scoring", "WASM 'heat"))
    assert sensors("queries", "deploy", "heat", "heat.sql", "--wasm", "heat.wat", "--json").json["version"] == 1
    (version,) = sensors("queries", "versions", "heat", "--json").json
    assert [(file["name"], file["kind"]) for file in version["files"]] == [("heat.wasm", "wasm")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--wheel", "model.json"), "expected --wheel with the path of a wheel"),
        (("--resource", WHEEL), "is not a resource: pass it with --wheel"),
        (("--resource", "nothing.json"), "the file can't be read"),
        (("--resource", "model.json", "--resource", "other/model.json"), "two files are called 'model.json'"),
        (("--wheel", "bad-1.0-py3-none-any.whl"), "wheel 'bad-1.0-py3-none-any.whl' can't be read"),
        (("--wasm", "model.json"), "is not a WebAssembly module"),
        (("--signature", "model.json"), "is not a signature"),
    ],
)
def test_files_that_are_refused(sensors: Line, folder: Path, options: tuple[str, ...], message: str) -> None:
    Path("bad-1.0-py3-none-any.whl").write_bytes(b"nothing")
    Path("other").mkdir()
    Path("other/model.json").write_text("[]")
    wheels = () if "--wheel" in options else ("--wheel", WHEEL)
    assert message in sensors.refused("queries", "deploy", "scores", "scores.sql", *wheels, *options)


def test_a_store_that_trusts_a_key_takes_what_it_signed(sensors: Line, folder: Path) -> None:
    told = sensors("queries", "trust", "alice.pub", "--label", "alice").err
    assert "queries need a signature by alice" in told
    deploy = ("queries", "deploy", "scores", "scores.sql", *FILES)
    assert "version 1 of query 'scores' is not signed" in sensors(*deploy, code=None).err
    sensors("queries", "sign", "scores.sql", "--key", "alice.pem", *FILES)
    assert sensors(*deploy, "--signature", "scores.sql.sig", "--json").json["version"] == 1
    assert sensors("queries", "versions", "scores").out.splitlines()[1].split()[4] == "yes"
    Path("model.json").write_text("[]")
    refused = sensors(*deploy, "--signature", "scores.sql.sig", code=None)
    assert refused.code != 0 and "does not match its statements, parameters and files" in refused.err
    (key,) = sensors("queries", "trust", "--json").json
    assert (key["label"], len(key["key"])) == ("alice", 64)
    assert "queries need no signature" in sensors("queries", "trust", "--remove", "alice").err
    assert sensors(*deploy, "--json").json["version"] == 2


def test_keys_that_do_not_sign(sensors: Line, folder: Path) -> None:
    sign = ("queries", "sign", "scores.sql", *FILES, "--key")
    Path("alice.pub").chmod(0o600)
    assert "is not a private key" in sensors.refused(*sign, "alice.pub")
    Path("alice.pem").chmod(0o644)
    assert "all users may read the private key" in sensors.refused(*sign, "alice.pem")
    assert "is not a public key" in sensors.refused("queries", "trust", "scores.sql")
    assert "pass a key to add, or --remove" in sensors.refused("queries", "trust", "alice.pub", "--remove", "alice")


def test_the_translation_of_a_file_is_what_is_signed(sensors: Line, folder: Path) -> None:
    Path("job.sql").write_text("INSERT INTO iot.hot SELECT device FROM iot.sensors WHERE celsius > 30;")
    sensors("queries", "trust", "alice.pub")
    sensors("queries", "sign", "job.sql", "--key", "alice.pem", "--dialect", "flink")
    signed = ("--signature", "job.sql.sig")
    sensors("queries", "deploy", "hot", "job.sql", "--dialect", "flink", *signed)
    (version,) = sensors("queries", "versions", "hot", "--json").json
    Path("translated.sql").write_text(version["text"])
    sensors("queries", "deploy", "again", "translated.sql", *signed)
    other = sensors.refused("queries", "deploy", "other", "job.sql", "--dialect", "trino", "--signature", "none.sig")
    assert "none.sig" in other
