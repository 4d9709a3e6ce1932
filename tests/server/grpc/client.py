"""A client of the service `anabranch.v1.Store`, made of its descriptor as generated code is."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from anabranch.wire.v1 import store_pb2 as v1

SERVICE = v1.DESCRIPTOR.services_by_name["Store"]


class Client:
    """`client.Append(request)` and so on, with a token if there is one."""

    def __init__(
        self, address: str, token: str | None = None, credentials: grpc.ChannelCredentials | None = None
    ) -> None:
        options = [("grpc.max_receive_message_length", -1)]
        if credentials is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            self.channel = grpc.secure_channel(address, credentials, options)
        self.metadata = () if token is None else (("authorization", f"Bearer {token}"),)

    def __getattr__(self, name: str) -> Any:
        method = SERVICE.methods_by_name[name]
        return lambda given, **more: self.raw(name, method.input_type)(given, **more)

    def raw(self, name: str, kind: Any = None) -> Any:
        """An RPC; without `kind`, of bytes."""
        method = SERVICE.methods_by_name[name]
        shape = "_".join("stream" if each else "unary" for each in (method.client_streaming, method.server_streaming))
        serializer = None if kind is None else (lambda message: message.SerializeToString())
        call = getattr(self.channel, shape)(
            f"/{SERVICE.full_name}/{name}",
            request_serializer=serializer,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        return lambda given, **more: call(given, metadata=self.metadata, **{"timeout": 30, **more})

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()


def error_of(error: Any) -> v1.Error:
    """What the broker says of a failed call; empty where it says nothing."""
    found = dict(error.trailing_metadata() or ())
    return v1.Error.FromString(found.get("anabranch-error-bin", b""))
