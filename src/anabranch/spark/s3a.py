"""A place in S3 as Hadoop's client `s3a` knows it: its URL, and the settings of its bucket. Pure: nothing is asked.

The store's URL says how a bucket is reached (`anabranch.blobs.address`), the environment who asks. `s3a` takes the same
as settings of one bucket, so that other buckets of the session keep theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from anabranch.blobs.address import Address

__all__ = ["bucket_settings", "hadoop_path"]

_AUTH: Final = "software.amazon.awssdk.auth.credentials"
_S3A: Final = "org.apache.hadoop.fs.s3a"
_WEB_IDENTITY: Final = (
    f"{_S3A}.TemporaryAWSCredentialsProvider,{_S3A}.SimpleAWSCredentialsProvider,"
    f"{_AUTH}.EnvironmentVariableCredentialsProvider,{_AUTH}.WebIdentityTokenFileCredentialsProvider"
)


def hadoop_path(path: str) -> str:
    """The same place under the name that Hadoop has for it. Paths and other URLs stay as they are."""
    return f"s3a://{path.removeprefix('s3://')}" if path.startswith("s3://") else path


def bucket_settings(address: Address, environment: Mapping[str, str]) -> dict[str, str]:
    """What `s3a` has to know of a bucket, by the last part of the settings' names (`fs.s3a.bucket.NAME.`). The
    environment adds what the URL leaves open, as it does for the store itself; keys are none of it, for `s3a` looks for
    them there too."""
    endpoint = address.endpoint or _first(environment, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    said = {
        "endpoint.region": address.region or _first(environment, "AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1",
        "path.style.access": "false" if address.virtual_hosted else "true",
    }
    if endpoint is not None:
        said["endpoint"] = _without_bucket(endpoint, address)
        said["connection.ssl.enabled"] = "false" if endpoint.startswith("http://") else "true"
    if environment.get("AWS_SKIP_SIGNATURE", "").lower() in ("true", "1"):
        said["aws.credentials.provider"] = f"{_S3A}.AnonymousAWSCredentialsProvider"
    elif environment.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        said["aws.credentials.provider"] = _WEB_IDENTITY
    return said


def _first(environment: Mapping[str, str], *names: str) -> str | None:
    return next((value for name in names if (value := environment.get(name))), None)


def _without_bucket(endpoint: str, address: Address) -> str:
    """The store's library wants the bucket in the endpoint's host where it is addressed there; `s3a` adds it itself."""
    host = f"{address.bucket}."
    if address.virtual_hosted and urlsplit(endpoint).netloc.startswith(host):
        return endpoint.replace(f"://{host}", "://", 1)
    return endpoint
