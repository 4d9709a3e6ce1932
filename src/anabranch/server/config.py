"""The settings of a broker: from flags, the environment and one TOML file, in this order of precedence.

One setting has one name in all three: `http_port` in the file, `ANABRANCH_SERVER_HTTP_PORT` in the environment,
`--http-port` (or `--set http_port=…`) as a flag. A name that is not a setting is refused.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from anabranch import limits
from anabranch.core.redact import shown_address
from anabranch.errors import InvalidArgument
from anabranch.runtime.bounded_files import read_bounded, to_text
from anabranch.security.exposure import is_loopback, require_safe
from anabranch.store.addresses import MEMORY

PREFIX: Final = "ANABRANCH_SERVER_"
CONFIG_VARIABLE: Final = f"{PREFIX}CONFIG"
# Variables that all commands of `anabranch` share; those with the prefix of the broker take precedence.
_SHARED_VARIABLES: Final = {name: f"ANABRANCH_{name.upper()}" for name in ("store", "blobs", "history", "keys")}
_ADDRESSES: Final = ("store", "blobs", "history", "keys", "jwks_url", "allowed_places")


def _parts(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _off_is_none(value: Any) -> Any:
    return None if value in ("off", "") else value


def _no_spaces(value: str) -> str:
    if not value or any(letter.isspace() for letter in value):
        raise ValueError("expected the name or address of an interface, such as 127.0.0.1")
    return value


def _origins(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if value != "*" and not re.fullmatch(r"https?://[^/\s?#@*]+", value):
            raise ValueError(f"expected an origin such as https://app.example, without a path, or *; not {value!r}")
    return values


def _host_names(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if value != "*" and not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", value):
            raise ValueError(f"expected the name of a host such as river.example, without a port, or *; not {value!r}")
    return tuple(value.lower() for value in values)


Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Lifetime = Annotated[
    Annotated[float, Field(gt=0, le=366 * 86_400, allow_inf_nan=False)] | None, BeforeValidator(_off_is_none)
]
Interval = Annotated[Seconds | None, BeforeValidator(_off_is_none)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_parts)]
Rate = Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, BeforeValidator(_off_is_none)]
Count = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_off_is_none)]
OptionalText = Annotated[str | None, BeforeValidator(_off_is_none)]


class ServerSettings(BaseSettings):
    """The settings of a broker. Sizes are in bytes and times in seconds, as the names say. `off` stands for none."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, case_sensitive=False, hide_input_in_errors=True
    )

    store: str = Field("./river", repr=False, description="The store: a folder, or the URL of its PostgreSQL catalog.")
    blobs: OptionalText = Field(None, repr=False, description="Where its data is; required with PostgreSQL.")
    history: OptionalText = Field(None, repr=False, description="Where its compacted files are, if elsewhere.")
    keys: OptionalText = Field(None, repr=False, description="The keys of an encrypted store: file:/path or env:NAME.")
    create: bool = Field(True, description="Create the store if there is none.")

    host: Annotated[str, AfterValidator(_no_spaces)] = Field(
        "127.0.0.1", description="The interface to listen on. Anything but loopback needs TLS and tokens."
    )
    flight: bool = Field(True, description="Serve Arrow Flight and Flight SQL.")
    flight_port: Port = Field(7410, description="Its port; 0 takes a free one.")
    http: bool = Field(True, description="Serve HTTP.")
    http_port: Port = Field(7411, description="Its port; 0 takes a free one.")
    grpc: bool = Field(True, description="Serve gRPC, in a process of its own. Not for a store in memory.")
    grpc_port: Port = Field(7412, description="Its port; 0 takes a free one.")
    workers: Annotated[int, Field(ge=1, le=256)] = Field(
        1, description="Processes that serve HTTP on one socket. With one, the main process serves it itself."
    )

    queries: bool = Field(
        False,
        description="Run deployed queries too, in a process of its own, as `anabranch queries serve` does. Needs Spark.",
    )
    queries_spares: Annotated[int, Field(ge=0)] = Field(
        1, description="Drivers that it starts and warms up ahead of use."
    )

    insecure: bool = Field(False, description="Serve other machines without TLS or without authentication.")
    auth: Literal["off", "tokens"] | None = Field(
        None,
        description="Authentication: with `tokens`, only callers with a token or certificate. Default: off on loopback, unless there is a jwt_issuer or a tls_client_ca.",
    )
    dev_tls: bool = Field(
        False, description="Make a certificate authority and a certificate, kept in the store's folder: for tests."
    )
    tls_certificate: Path | None = Field(None, description="The certificate chain, in PEM.")
    tls_key: Path | None = Field(None, description="Its private key, in PEM.")
    tls_client_ca: Path | None = Field(
        None, description="The authority that must have signed callers' certificates, in PEM."
    )
    jwks_url: OptionalText = Field(
        None, repr=False, description="The address of the issuer's keys. Default: what the issuer's metadata names."
    )
    jwt_issuer: OptionalText = Field(
        None, description="An issuer of JSON Web Tokens (OpenID Connect), as `iss` in them."
    )
    jwt_audience: OptionalText = Field(None, description="This broker's name, as `aud` in its tokens.")
    allowed_places: Names = Field(
        (),
        repr=False,
        description="Folders and URLs of this server that admins may name in calls, by prefix. None by default.",
    )

    cors_origins: Annotated[Names, AfterValidator(_origins)] = Field(
        (), description="Origins whose pages may call this broker from a browser, such as https://app.example, or *."
    )
    allowed_hosts: Annotated[Names, AfterValidator(_host_names)] = Field(
        (),
        description="Names by which callers may address HTTP without tokens, besides localhost, addresses and names without a dot; or *.",
    )
    request_bytes_max: Annotated[int, Field(ge=1024)] = Field(
        64 << 20, description="The largest body of one HTTP request."
    )
    upload_lifetime_s: Lifetime = Field(
        7 * 86_400, description="How long an unfinished upload stays without a request, or off."
    )
    connections_max: Annotated[int, Field(ge=1)] = Field(
        4096, description="HTTP connections of one process; more are answered 503."
    )
    principal_calls_per_s: Rate = Field(None, description="Calls of one principal, or off.")
    principal_bytes_per_s: Rate = Field(None, description="Bytes that one principal may send and read, or off.")
    principal_connections: Count = Field(1_000, description="Open calls of one principal.")
    principal_followers: Count = Field(5_000, description="Open followers of one principal.")
    principal_memory_bytes: Count = Field(512 << 20, description="Memory for the calls of one principal.")
    total_calls_per_s: Rate = Field(None, description="Calls of all callers together, per process, or off.")
    total_bytes_per_s: Rate = Field(None, description="Bytes of all callers together, per process, or off.")
    total_connections: Count = Field(10_000, description="Open calls of all callers together, per process.")
    total_followers: Count = Field(20_000, description="Open followers of all callers together, per process.")
    total_memory_bytes: Count = Field(2 << 30, description="Memory for the calls of all callers together, per process.")
    header_timeout_s: Seconds = Field(10, description="How long a caller may take to send the head of a request.")
    body_timeout_s: Seconds = Field(30, description="How long a caller may pause within a body.")
    send_timeout_s: Seconds = Field(
        60, description="How long a caller, also a follower, may read nothing of an answer."
    )
    idle_timeout_s: Seconds = Field(75, description="How long an idle connection stays open.")
    drain_s: Seconds = Field(20, description="How long calls may take to end after SIGTERM.")

    access_log: bool = Field(True, description="One JSON line for each call, on stderr.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least level to log.")
    maintenance_s: Interval = Field(60, description="How often to compact and collect in the background, or off.")
    scaling_s: Interval = Field(10, description="How often to scale streams by their load, or off.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only the values that `load` passes, which it has merged by the precedence of their sources."""
        return (init_settings,)

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the broker."""
        return is_loopback(self.host)

    @property
    def tls(self) -> bool:
        """Whether the broker speaks TLS."""
        return self.dev_tls or self.tls_certificate is not None

    @property
    def serves_grpc(self) -> bool:
        """Whether gRPC is served: a store in memory belongs to one process, and gRPC has one of its own."""
        return self.grpc and self.store != MEMORY

    @property
    def authenticates(self) -> bool:
        """Whether callers have to say who they are."""
        if self.auth is not None:
            return self.auth != "off"
        if self.jwt_issuer is not None or self.tls_client_ca is not None:
            return True
        return not self.on_loopback and not self.insecure


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and where each that is not a default came from: a flag, a variable or a file."""

    settings: ServerSettings
    origins: Mapping[str, str]

    def as_toml(self) -> str:
        """The settings as a TOML file, each with its origin in a comment. Passwords in addresses are hidden."""
        lines = []
        for name, field in ServerSettings.model_fields.items():
            value = getattr(self.settings, name)
            if value is None and field.default is None:
                lines.append(f"# {name} is not set")
                continue
            shown = _without_passwords(value) if name in _ADDRESSES else "off" if value is None else value
            lines.append(f"{name} = {_toml(shown)}  # {self.origins.get(name, 'default')}")
        return "\n".join([*lines, ""])


def load(
    flags: Mapping[str, Any], *, environment: Mapping[str, str] | None = None, file: Path | None = None
) -> LoadedSettings:
    """The settings: flags take precedence over the environment, the environment over the file. Without `file`,
    `ANABRANCH_SERVER_CONFIG` may name it.
    Raises InvalidArgument for a file that can't be read, an unknown name, a bad value, or values that contradict each
    other."""
    variables = os.environ if environment is None else environment
    if file is None and variables.get(CONFIG_VARIABLE):
        file = Path(variables[CONFIG_VARIABLE])
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for source_values, origin in (
        (_from_file(file), str(file)),
        (_from_environment(variables), "environment"),
        (dict(flags), "flag"),
    ):
        for name in source_values:
            _check_name(name, origin)
            origins[name] = origin
        values |= source_values
    try:
        settings = ServerSettings(**values)
    except ValidationError as exc:
        raise InvalidArgument(_problem(exc, origins)) from exc
    _check_together(settings)
    return LoadedSettings(settings, origins)


def _from_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(to_text(read_bounded(file, limits.CONFIGURATION_BYTES_MAX)))
    except OSError as exc:
        raise InvalidArgument(f"the configuration {file} can't be read: {exc.strerror}") from exc
    except (ValueError, RecursionError) as exc:  # TOMLDecodeError, or the ValueError for an integer of too many digits
        raise InvalidArgument(f"the configuration {file} is not TOML: {exc}") from exc


def _from_environment(variables: Mapping[str, str]) -> dict[str, Any]:
    shared = {name: variables[shared] for name, shared in _SHARED_VARIABLES.items() if variables.get(shared)}
    own = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in variables.items()
        if name.startswith(PREFIX) and name != CONFIG_VARIABLE
    }
    return shared | own


def _check_name(name: str, origin: str) -> None:
    if name in ServerSettings.model_fields:
        return
    near = difflib.get_close_matches(name, ServerSettings.model_fields, n=1, cutoff=0.6)
    shown = f"{PREFIX}{name.upper()}" if origin == "environment" else f"'{name}'"
    place = {"flag": "", "environment": " in the environment"}.get(origin, f" in {origin}")
    hint = f"did you mean '{near[0]}'?" if near else "anabranch serve --print-config lists all settings"
    raise InvalidArgument(f"{shown}{place} is not a setting of the broker; {hint}")


def _problem(exc: ValidationError, origins: Mapping[str, str]) -> str:
    first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
    name = str(first["loc"][0]) if first["loc"] else "the settings"
    message = first["msg"].removeprefix("Value error, ")
    return f"{name} ({origins.get(name, 'default')}): {message[:1].lower()}{message[1:]}"


def _check_together(settings: ServerSettings) -> None:
    """Refuse values that contradict each other, and a broker that others can reach without TLS and authentication."""
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise InvalidArgument("set both tls_certificate and tls_key, or neither")
    if settings.dev_tls and settings.tls_certificate is not None:
        raise InvalidArgument("dev_tls creates its own certificate: omit tls_certificate and tls_key")
    if settings.tls_client_ca is not None and not settings.tls:
        raise InvalidArgument("tls_client_ca verifies callers over TLS: set tls_certificate and tls_key too")
    if (settings.jwt_issuer is None) != (settings.jwt_audience is None):
        raise InvalidArgument("set both jwt_issuer and jwt_audience, or neither")
    if settings.jwks_url is not None and not (settings.jwt_issuer and settings.jwt_audience):
        raise InvalidArgument(
            "jwks_url needs jwt_issuer and jwt_audience; without them, anybody's tokens would be accepted"
        )
    if not (settings.flight or settings.http or settings.grpc):
        raise InvalidArgument("flight, http and grpc are all off: nothing would be served")
    if not (settings.flight or settings.http or settings.serves_grpc):
        raise InvalidArgument("a store in memory is not served by gRPC: switch flight or http on")
    if settings.store == MEMORY and settings.workers > 1:
        raise InvalidArgument("a store in memory belongs to one process: leave workers at 1")
    if settings.store == MEMORY and settings.queries:
        raise InvalidArgument("a store in memory belongs to one process: it can't have a host of queries")
    require_safe(settings.host, tls=settings.tls, authentication=settings.authenticates, insecure=settings.insecure)


def _without_passwords(places: str | tuple[str, ...]) -> str | tuple[str, ...]:
    return shown_address(places) if isinstance(places, str) else tuple(map(shown_address, places))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value).removesuffix(".0")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    # TOML requires the escape of this character, JSON does not.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
