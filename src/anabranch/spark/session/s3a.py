"""Converts a place in S3 to a URL and bucket settings for Hadoop's client `s3a`. Pure: no I/O.

The store's URL says how to connect to a bucket (`anabranch.blobs.address`); credentials come from the environment. For
`s3a` these become settings of one bucket, so that other buckets of the session keep theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from anabranch.blobs.address import ObjectStoreAddress

__all__ = ["bucket_settings", "hadoop_path"]

_AUTH: Final = "software.amazon.awssdk.auth.credentials"
_S3A: Final = "org.apache.hadoop.fs.s3a"
_WEB_IDENTITY: Final = (
    f"{_S3A}.TemporaryAWSCredentialsProvider,{_S3A}.SimpleAWSCredentialsProvider,"
    f"{_AUTH}.EnvironmentVariableCredentialsProvider,{_AUTH}.WebIdentityTokenFileCredentialsProvider"
)


def hadoop_path(path: str) -> str:
    """The place as Hadoop names it: `s3://` becomes `s3a://`. Paths and other URLs stay unchanged."""
    return f"s3a://{path.removeprefix('s3://')}" if path.startswith("s3://") else path


def bucket_settings(address: ObjectStoreAddress, environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of `s3a` for a bucket. The keys are setting names without their prefix `fs.s3a.bucket.NAME.`.

    The environment supplies what the URL does not specify, as it does for the store itself. Credentials are not
    included, because `s3a` itself finds them in the environment.
    """
    endpoint = address.endpoint or _first(environment, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    settings = {
        "endpoint.region": address.region or _first(environment, "AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1",
        "path.style.access": "false" if address.virtual_hosted else "true",
    }
    if endpoint is not None:
        settings["endpoint"] = _without_bucket(endpoint, address)
        settings["connection.ssl.enabled"] = "false" if endpoint.startswith("http://") else "true"
    if environment.get("AWS_SKIP_SIGNATURE", "").lower() in ("true", "1"):
        settings["aws.credentials.provider"] = f"{_S3A}.AnonymousAWSCredentialsProvider"
    elif environment.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        settings["aws.credentials.provider"] = _WEB_IDENTITY
    return settings


def _first(environment: Mapping[str, str], *names: str) -> str | None:
    return next((value for name in names if (value := environment.get(name))), None)


def _without_bucket(endpoint: str, address: ObjectStoreAddress) -> str:
    """The endpoint as `s3a` needs it. With virtual-hosted addressing the store's library expects the bucket in the
    endpoint's host; `s3a` adds it itself."""
    host = f"{address.bucket}."
    if address.virtual_hosted and urlsplit(endpoint).netloc.startswith(host):
        return endpoint.replace(f"://{host}", "://", 1)
    return endpoint
