"""The remote store has every method of the embedded one, with its signature: remote, or refused with a reason."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument, NotRemote
from anabranch.remote.address import BrokerAddress
from anabranch.remote.jobs import RemoteJob
from anabranch.remote.store import RemoteStore
from anabranch.remote.verbs import NOT_REMOTE, public_methods
from anabranch.store import Store
from anabranch.transfer.jobs.job import Job
from anabranch.wire.verbs import NOUNS, VERBS


def names() -> list[str]:
    return [f"{noun}.{each}" if noun else each for noun, kind in NOUNS.items() for each in public_methods(kind)]


def attribute(store: Any, name: str) -> Any:
    for part in name.split("."):
        store = getattr(store, part)
    return store


@pytest.fixture
def remote() -> Any:
    return ab.connect("anabranch://127.0.0.1:1")


@pytest.mark.parametrize("name", names())
def test_a_method_of_the_store_is_one_of_the_remote_store_with_the_same_arguments(remote: Any, name: str) -> None:
    noun, _, method = name.rpartition(".")
    own = inspect.signature(getattr(NOUNS[noun], method)).replace(return_annotation=None)
    found = inspect.signature(attribute(remote, name)).replace(return_annotation=None)
    assert list(own.parameters.values())[1:] == list(found.parameters.values())


def test_the_table_of_verbs_names_methods_of_the_store_and_arguments_that_they_have() -> None:
    for verb in VERBS.values():
        noun, _, method = verb.name.rpartition(".")
        if noun in NOUNS and hasattr(NOUNS[noun], method) and verb.name != "id":
            own = inspect.signature(getattr(NOUNS[noun], method))
            assert list(own.parameters)[1:] == list(verb.parameters), verb.name
    assert not set(NOT_REMOTE) & set(VERBS)
    assert set(NOT_REMOTE) <= {*names(), "job_store"}


def test_every_attribute_of_a_store_is_one_of_the_remote_store(remote: Any) -> None:
    with ab.connect("memory://") as store:
        own = {name for name in vars(store) if not name.startswith("_")}
        own |= {name for name in dir(Store) if not name.startswith("_")}
    missing = {name for name in own if not hasattr(type(remote), name) and name not in vars(remote)}
    assert missing == set()


def test_a_job_has_the_methods_of_a_job() -> None:
    for name in public_methods(Job):
        if name != "start":
            own, found = (inspect.signature(getattr(kind, name)) for kind in (Job, RemoteJob))
            assert own == found, name


def test_what_needs_the_files_of_the_store_says_so(remote: Any) -> None:
    with pytest.raises(NotRemote, match="needs the store's catalog and files"):
        remote.hold("upload", "me")
    with pytest.raises(NotRemote, match="is done by the broker itself"):
        remote.notifications.publish_pending()
    with pytest.raises(TypeError, match="missing a required argument"):
        remote.streams.get()
    with ab.connect("memory://") as other, pytest.raises(NotRemote, match="can't take to= as a Store"):
        remote.streams.copy("a/b", "a/c", to=other)


@pytest.mark.parametrize(
    ("text", "places", "tls"),
    [
        ("anabranch://river", ("river:7410",), False),
        ("anabranch+tls://river.example:9,10.0.0.1/", ("river.example:9", "10.0.0.1:7410"), True),
        ("anabranch://[::1]:8", ("[::1]:8",), False),
    ],
)
def test_an_address_names_one_or_several_brokers(text: str, places: tuple[str, ...], tls: bool) -> None:
    assert BrokerAddress.parse(text) == BrokerAddress(places, tls)


@pytest.mark.parametrize(
    "text", ["anabranch://", "anabranch://a:b", "anabranch://user:secret@host", "anabranch://a:0", "anabranch://a/b"]
)
def test_what_is_no_address_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        ab.connect(text)
    assert "secret" not in str(caught.value)


def test_arguments_of_the_other_kind_of_store_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="token= is only for a broker's address"):
        ab.connect("memory://", token="t")
    with pytest.raises(InvalidArgument, match="blobs= can't be used with a broker"):
        ab.connect("anabranch://river", blobs="memory://")
    with pytest.raises(InvalidArgument, match="TLS"):
        ab.connect("anabranch://river", ca="ca.pem")


def test_a_token_is_in_no_repr() -> None:
    store: Any = ab.connect("anabranch+tls://river", token="very-secret")
    assert isinstance(store, RemoteStore)
    assert "very-secret" not in repr(store) + repr(vars(store.connection)) + repr(store.connection._credentials)


@pytest.mark.parametrize(
    "host", ["river", "10.0.0.7:7410", "127.0.0.1,river", "[2001:db8::1]:7410", "localhost.example"]
)
def test_a_token_crosses_no_network_in_plain_text_unless_it_is_allowed(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = pytest.raises(InvalidArgument, match=r"plain text: use anabranch\+tls://.*insecure=True")
    with refused as caught:
        ab.connect(f"anabranch://{host}", token="very-secret")
    assert "very-secret" not in str(caught.value)
    ab.connect(f"anabranch://{host}", token="very-secret", insecure=True)
    ab.connect(f"anabranch+tls://{host}", token="very-secret")
    ab.connect(f"anabranch://{host}")
    monkeypatch.setenv("ANABRANCH_TOKEN", "very-secret")
    with refused:
        ab.connect(f"anabranch://{host}")
    monkeypatch.setenv("ANABRANCH_INSECURE", "1")
    ab.connect(f"anabranch://{host}")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:7", "127.9.9.9", "[::1]:7410", "localhost,127.0.0.1"])
def test_a_token_is_sent_to_this_machine(host: str) -> None:
    ab.connect(f"anabranch://{host}", token="very-secret")
