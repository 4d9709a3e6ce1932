"""`anabranch serve`: the broker."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from anabranch.cli.declare import flag, option
from anabranch.cli.interrupts import interrupts
from anabranch.cli.options import JSON_OPTION, invocation
from anabranch.cli.output import print_note, put_json, put_line, put_text
from anabranch.core.pairs import parse_pairs
from anabranch.core.redact import redacted, shown_address
from anabranch.errors.optional import optional

if TYPE_CHECKING:
    from anabranch.server.config import LoadedSettings, ServerSettings
    from anabranch.server.run import Serving


_SHARED = ("store", "blobs", "history", "keys")
_FAILED = 2
_ALL_INTERFACES = re.compile(r"//(0\.0\.0\.0|\[::\]):")


@dataclass(frozen=True)
class ServeOptions:
    """The settings of a broker that have an option of their own."""

    host: str | None = option("--host", "HOST", "The interface to listen on. Default: 127.0.0.1.")
    flight_port: int | None = option("--flight-port", "PORT", "The port of flight; 0 takes a free one.")
    http_port: int | None = option("--http-port", "PORT", "The port of http; 0 takes a free one.")
    grpc_port: int | None = option("--grpc-port", "PORT", "The port of grpc; 0 takes a free one.")
    workers: int | None = option("--workers", "N", "Processes that serve HTTP on one socket.")
    auth: str | None = option("--auth", "KIND", "Authentication: tokens, or off. Default: off on loopback.")
    tls_certificate: Path | None = option("--tls-certificate", "FILE", "The certificate chain, in PEM.")
    tls_key: Path | None = option("--tls-key", "FILE", "Its private key, in PEM.")
    dev_tls: bool | None = flag("--dev-tls", "Make a certificate for this start.", default=None)
    insecure: bool | None = flag("--insecure", "Serve other machines without TLS or authentication.", default=None)
    queries: bool | None = flag(
        "--queries", "Run deployed queries too, as `anabranch queries serve` does.", default=None
    )


def serve(
    context: typer.Context,
    *,
    config: Path | None = option("--config", "FILE", "Settings as TOML. Default: ANABRANCH_SERVER_CONFIG."),
    options: ServeOptions,
    sets: list[str] | None = option(
        "--set", "NAME=VALUE", "Any other setting, as in the file; may be given several times."
    ),
    print_config: bool = flag("--print-config", "Print all settings and where each came from, and exit."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Serve a store to other processes and machines: by Arrow Flight, HTTP and gRPC.

    The store is created if there is none. Only this machine can connect unless --host says otherwise, which needs TLS
    and tokens. A flag takes precedence over an environment variable, ANABRANCH_SERVER_ and the setting's name, and that
    over the file. With --json, one line on stdout names the addresses once it serves.

    Ctrl-C or SIGTERM stops it gracefully: calls under way are finished, and followers are told where to resume. A second
    one ends it at once.

    Examples:

      anabranch serve
      anabranch serve --queries
      anabranch serve --config server.toml --workers 4
      anabranch serve --host 0.0.0.0 --tls-certificate server.pem --tls-key server-key.pem

    Then, for a stream that exists:

      curl -N 'localhost:7411/v1/streams/iot/sensors/events?follow'
    """
    chosen = {name: value for name, value in asdict(options).items() if value is not None}
    more = {name.strip().replace("-", "_"): value for name, value in parse_pairs(sets, "a setting").items()}
    loaded = _load({**_shared(context), **more, **chosen}, config)
    if print_config:
        put_text(loaded.as_toml(), end="")
        return
    _run(loaded.settings, as_json=as_json)


def _load(flags: dict[str, Any], file: Path | None) -> LoadedSettings:
    with optional("the broker", "server"):
        from anabranch.server.config import load
    return load(flags, file=file)


def _shared(context: typer.Context) -> dict[str, str]:
    """The options that all verbs share, as far as they were given: the broker reads the environment itself."""
    chosen = {name: getattr(invocation, name) for name in _SHARED}
    return {name: value for name, value in chosen.items() if value and _is_given(context, name)}


def _is_given(context: typer.Context, name: str) -> bool:
    """True for an option that stands before or behind the verb."""
    sources = (each.get_parameter_source(name) for each in (context, context.find_root()))
    return any(source is not None and source.name == "COMMANDLINE" for source in sources)


def _run(settings: ServerSettings, *, as_json: bool) -> None:
    from anabranch.server.logs import log_to_stderr
    from anabranch.server.run import run

    log_to_stderr(settings.log_level)

    note = f"stopping: open calls have {settings.drain_s:g} s; Ctrl-C again stops at once"
    with interrupts(note) as stopping:

        def ready(serving: Serving) -> None:
            if as_json:
                put_json(json.dumps({"store": shown_address(serving.store), **serving.addresses}), flush=True)
            else:
                _show(settings, serving)

        ended = run(settings, stopping=stopping, ready=ready)
        if ended.failure is not None:
            print_note(redacted(f"anabranch: the broker has ended: {ended.failure}"))
        elif not ended.drained:
            print_note(f"anabranch: calls that were still under way after {settings.drain_s:g} s were cut off")
        sys.stdout.flush()
        sys.stderr.flush()
        # Threads of calls whose callers are silent can't be ended, and must not keep the process.
        os._exit(0 if ended.failure is None else _FAILED)


def _show(settings: ServerSettings, serving: Serving) -> None:
    put_line(f"Serving {shown_address(serving.store)}", bold=True)
    labels = {"flight": "Flight", "http": "HTTP", "grpc": "gRPC", "queries": "Queries"}
    for name, address in serving.addresses.items():
        put_line(f"  {labels[name]:<8}{address}")
    who = "callers with a token or certificate" if settings.authenticates else "everybody"
    reach = "reach" if settings.authenticates else "reaches"
    where = "on this machine" if settings.on_loopback else f"who {reach} this machine"
    put_line(f"  {'Access':<8}{who} {where}; {'TLS' if settings.tls else 'no TLS'}")
    http = serving.addresses.get("http")
    if http is not None:
        # No certificate names the address that stands for all interfaces.
        _show_requests(_curl(settings, serving), _ALL_INTERFACES.sub("//localhost:", http), serving.stream)
    put_line(f"  {'Stop':<8}Ctrl-C", flush=True)


def _show_requests(curl: str, http: str, stream: str | None) -> None:
    if stream is None:  # nothing to follow yet
        as_json = "-H 'content-type: application/json'"
        put_line(f'  {"Create":<8}{curl} {http}/v1/scopes {as_json} -d \'{{"name": "iot"}}\'')
        put_line(f'  {"":<8}{curl} {http}/v1/streams {as_json} -d \'{{"name": "iot/sensors"}}\'')
    put_line(f"  {'Try':<8}{curl} -N '{http}/v1/streams/{stream or 'iot/sensors'}/events?follow'")


def _curl(settings: ServerSettings, serving: Serving) -> str:
    """`curl` with the options that this broker requires: the authority of a certificate that it made, and a token."""
    words = ["curl"]
    if serving.authority is not None:
        words += ["--cacert", shlex.quote(str(serving.authority))]
    if settings.authenticates:
        words += ["-H", '"Authorization: Bearer $TOKEN"']
    return " ".join(words)
