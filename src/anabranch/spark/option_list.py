"""The options of the `anabranch` data source, as a list. `docs/reference/spark-options.md` is made from it."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

__all__ = ["OPTIONS", "READ", "SPARK_OWN", "WRITE", "SparkOption"]


class SparkOption(NamedTuple):
    """One option. `used_in`: whether reading, writing or both take it. `default` and `meaning` are Markdown; a required
    option has no default. Pipelines set those that are `internal`."""

    name: str
    used_in: Literal["read", "write", "both"]
    default: str
    meaning: str
    internal: bool = False


OPTIONS: Final = (
    SparkOption(
        "path",
        "both",
        "",
        "the store's folder, the URL of its PostgreSQL catalog, or the address of its brokers, `anabranch://host:port`; also "
        "the argument of `load`, `save` and `start`",
    ),
    SparkOption("stream", "both", "", "the stream, as `scope/name`"),
    SparkOption(
        "streamId",
        "both",
        "found by name",
        "the stream's id (`store.streams.get(name).id`), by which a query still finds its stream after a rename",
    ),
    SparkOption(
        "blobs", "both", "in the store", "where the blobs are, as for `anabranch.connect`; PostgreSQL requires it"
    ),
    SparkOption("history", "both", "as `blobs`", "where the compacted files are, if elsewhere"),
    SparkOption(
        "encryptionKeys",
        "both",
        "none",
        "the keys of an encrypted store: `file:/path` or `env:NAME`, on every machine of the job",
    ),
    SparkOption(
        "tokenFile",
        "both",
        "the environment variable `ANABRANCH_TOKEN`",
        "for a broker: a file that holds the token, on every machine of the job",
    ),
    SparkOption(
        "ca",
        "both",
        "the machine's",
        "for a broker with TLS: a PEM file with the certificate of the CA to trust, on every machine of the job",
    ),
    SparkOption(
        "access",
        "both",
        "`auto`",
        "for a broker: which way the job takes. `broker`: through the brokers; `native`: to the store itself at `nativePath`, "
        "or it fails; `auto`: natively if `nativePath` is given, the driver reaches the store there and it is the one that the "
        "brokers serve, else through the brokers. The driver logs which way it took and why",
    ),
    SparkOption(
        "nativePath",
        "both",
        "none",
        "for a broker, which does not tell where its store is: the store's folder or the URL of its PostgreSQL catalog, with "
        "`blobs`, `history` and `encryptionKeys` as for a `path`. Every machine of the job reaches it there, and the brokers' "
        "rights and limits don't apply. Give no password in the URL",
    ),
    SparkOption(
        "start",
        "read",
        "`head`",
        "where reading begins: `head`, `tail`, a stream cut, an event pointer or an ISO 8601 time",
    ),
    SparkOption(
        "end",
        "read",
        "the tail as of planning; for `readStream` none",
        "where reading ends (exclusive): a place as for `start`, or `watermark`, up to which the stream is complete "
        "according to its writers. A restarted query resolves its end again, but keeps its start",
    ),
    SparkOption(
        "by", "read", "`append`", "what a time in `start` or `end` means: the time of the `append` or of the `event`"
    ),
    SparkOption("columns", "read", "all", "the columns to read, as `a, b` or a JSON list"),
    SparkOption("keys", "read", "all", "read only the events of these routing keys, as `a, b` or a JSON list"),
    SparkOption(
        "maxEventsPerTrigger",
        "read",
        "no limit",
        "the maximum number of events in a micro-batch, counted before `keys` is applied",
    ),
    SparkOption("maxBytesPerTrigger", "read", "no limit", "the approximate maximum of logical bytes in a micro-batch"),
    SparkOption(
        "pollMs",
        "read",
        "`500`",
        "how long to wait for events before telling Spark that there is no micro-batch, in ms",
    ),
    SparkOption(
        "failOnDataLoss",
        "read",
        "`true`",
        "`false`: continue after events that were truncated before they were read, instead of failing",
    ),
    SparkOption(
        "ranges",
        "read",
        "none",
        "JSON `[stream id, [[segment, start, stop], …]]`: read exactly these offsets",
        internal=True,
    ),
    SparkOption(
        "pipelineSource",
        "read",
        "none",
        "JSON: how a statement of a pipeline reads it, such as when the watermark advances without an event, and when load is shed",
        internal=True,
    ),
    SparkOption(
        "create", "write", "`false`", "`true`: create a missing stream and scope, with the DataFrame's columns"
    ),
    SparkOption("key", "write", "none", "the column for the routing key of a stream that is created"),
    SparkOption("time", "write", "none", "the column for the event time of a stream that is created"),
    SparkOption("segments", "write", "`1`", "the number of segments of a stream that is created"),
    SparkOption(
        "checkpointLocation",
        "write",
        "Spark's `spark.sql.streaming.checkpointLocation`",
        "the folder of the checkpoint of a `writeStream`: Spark's own option",
    ),
    SparkOption(
        "checkpointUrl",
        "write",
        "`checkpointLocation`",
        "the same place as a URL with the bucket's connection options: `s3://bucket/prefix?endpoint=…`",
    ),
    SparkOption(
        "queryId",
        "write",
        "Spark's id of the query",
        "identifies the query's batches, for when the checkpoint can't be read",
    ),
    SparkOption(
        "pipelineRun",
        "write",
        "none",
        "JSON `[pipeline, token]`: publish only while this run holds the pipeline",
        internal=True,
    ),
    SparkOption(
        "batch", "write", "none", "the number of the micro-batch whose results the DataFrame holds", internal=True
    ),
    SparkOption(
        "outputs", "write", "none", "JSON: the ids of the streams of a statement's side outputs", internal=True
    ),
    SparkOption("late", "write", "none", "JSON: which late events are kept, and in which stream", internal=True),
)

READ: Final = tuple(each.name for each in OPTIONS if each.used_in != "write")
WRITE: Final = tuple(each.name for each in OPTIONS if each.used_in != "read")

# What Spark itself adds or reads: settings of the query, and properties of a table that `CREATE TABLE … USING` made.
SPARK_OWN: Final = frozenset(
    {"queryName", "outputMode", "trigger", "mergeSchema", "ignoreMissingFiles"}
    | {"location", "owner", "provider", "comment", "collation", "external", "is_managed_location"}
)
