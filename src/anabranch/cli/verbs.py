"""The table of verbs: where each is implemented, and its line in the help of the whole command line.

Imports nothing but the standard library, so `anabranch --help` need not load any command.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

STORE_VARIABLE: Final = "ANABRANCH_STORE"
BLOBS_VARIABLE: Final = "ANABRANCH_BLOBS"
HISTORY_VARIABLE: Final = "ANABRANCH_HISTORY"
KEYS_VARIABLE: Final = "ANABRANCH_KEYS"
TIME_ZONE_VARIABLE: Final = "ANABRANCH_TIME_ZONE"
DEBUG_VARIABLE: Final = "ANABRANCH_DEBUG"
DEFAULT_STORE: Final = "./river"


class Verb(NamedTuple):
    """A verb, of one word or two, or a group of verbs. `where` is the function, or the app of a group, below
    `anabranch.cli`. `panel` is its heading in the help, `summary` the first paragraph of its own help."""

    where: str
    panel: str
    summary: str


class RootOption(NamedTuple):
    """An option of the whole command line. `variable` is the environment variable that sets it."""

    flag: str
    help: str
    metavar: str = ""
    variable: str = ""
    short: str = ""


INTRODUCTION: Final = """Anabranch: streams that are used like files.

A stream is called scope/name and is part of a store, which is a folder. A first session:

  anabranch scope create iot
  anabranch write iot/sensors measurements.csv --create --key device --time at
  anabranch read iot/sensors --limit 10
  anabranch query 'SELECT device, max(celsius) FROM iot.sensors GROUP BY 1'

The first six options may stand before or after the verb. An option after the verb takes precedence, then one before it,\
 then the environment variable.

Exit codes: 0 success, 1 `check` or `verify` found a problem, 2 failure (one line on stderr gives the reason),\
 130 interrupted."""

ROOT_OPTIONS: Final = (
    RootOption(
        "--store",
        f"The store's folder, {DEFAULT_STORE} by default, or the URL of its PostgreSQL catalog.",
        "PATH",
        STORE_VARIABLE,
    ),
    RootOption(
        "--blobs",
        "Location of the data: a folder, or s3://bucket/prefix?endpoint=…; required with PostgreSQL.",
        "PATH",
        BLOBS_VARIABLE,
    ),
    RootOption(
        "--history",
        "Location of compacted files, if elsewhere. A store that was made with it needs it for every verb.",
        "PATH",
        HISTORY_VARIABLE,
    ),
    RootOption(
        "--keys",
        "The keys of an encrypted store: file:/path, or env:NAME for an environment variable that holds them.",
        "PLACE",
        KEYS_VARIABLE,
    ),
    RootOption(
        "--time-zone",
        "The zone of times that are written without one, such as Europe/Berlin. Without a zone: UTC, with a warning.",
        "ZONE",
        TIME_ZONE_VARIABLE,
    ),
    RootOption("--debug", "Show the traceback of an error.", variable=DEBUG_VARIABLE),
    RootOption("--version", "Show the release and exit."),
    RootOption("--install-completion", "Install completion for the current shell."),
    RootOption("--show-completion", "Show completion for the current shell, to copy it or customize the installation."),
    RootOption("--help", "Show this message and exit.", short="-h"),
)

# The headings of the help, and below each its verbs: the name, where it is, and the summary.
# No SQL statement is the one word `translate`, so SQL after `query` is never taken for the verb of two words.
_TABLE: Final = """\
Scopes and streams
  scope           | scope.app             | Create, list, copy, rename and delete scopes: the namespaces of streams.
  stream          | stream.app            | Create, list, show, evolve, scale, seal, truncate and delete streams.
  copy            | copy.copy             | Copy a stream, or a range of it, at once and whatever its size: the copy shares its bytes.
  append          | append.append         | Append a stream, or a range of it, to another, at once and whatever its size. Writers and readers continue.
  stitch          | stitch.stitch         | Stitch streams together, at once and whatever their size: all of the first, then all of the second, and so on.
  replace         | replace.replace       | Replace the events of a time range, exactly those and at once, with those of another stream.
  cut             | cut.cut               | Print the cut at a position of a stream, or a number of events or bytes after it.
  distance        | cut.distance          | Count the events and bytes between two places of a stream, in total and by segment.
  compare         | compare.compare       | Compare two places of a stream: the first is before, after, same as, or concurrent with the second.
  contains        | compare.contains      | Check whether an event, or a place, is in a range of a stream.
  diff            | diff.diff             | Show which events two streams share, and which are only in one of them.
  lineage         | diff.lineage          | Show where the events of a stream came from: copies, stitches, streams that were appended, imports.
  rename          | names.rename          | Give a stream another name. Open readers and writers continue; using the old name gives an error that names the new one.
  move            | names.move            | Move a stream to another scope. Open readers and writers continue; using the old name gives an error that names the new one.
  alias           | names.alias           | Give a stream one more name, usable wherever its name is; or without arguments, list the aliases.
  unalias         | names.unalias         | Remove an alias. The stream stays.
  archive         | archive.app           | Archive streams to a folder or bucket as Parquet that any engine reads; verify and show archives.
  import          | import_archive.import_| Import an archive into this store: the same segments, offsets, times and columns, under any name.
  attach          | attach.attach         | Make Parquet files a stream of this store without copying them: they are read where they are.
  digest          | digest.digest         | Print a digest (SHA-256) of all events of a stream: the same for a copy, an archive and an import of it.
  files           | files.files           | List the Parquet files that hold a stream's history, and which of their rows are the stream's.
  job             | job.app               | Watch, pause, resume and cancel the jobs that write to this store, or archive it.

Events
  write           | write.write           | Append the events of a file or a pipe.
  read            | read.read             | Print the events of a stream.
  query           | query.query           | Query streams in SQL.
  query translate | translate.translate   | Print SQL of another system as SQL of a query or of a pipeline.
  modules         | modules.app           | Add, list, show and remove WebAssembly modules, whose functions queries call next to the data.
  bytes           | bytes.app             | Write and read streams of bytes, as files.
  txn             | txn.app               | List, show and abort transactions.
  group           | group.app             | Reader groups: their lag, and which reader has which segments.
  watch           | watch.watch           | Show the changes of a stream as they happen: scaling, truncation, sealing, renaming, and everything else except its events.
  watermark       | watermark.app         | Watermarks: up to which time streams are complete, and which writers hold them back.

Pipelines
  pipeline        | pipeline.app          | Run, list, show, stop, reset and delete pipelines: SQL over streams, on Spark.
  queries         | queries.app           | Deploy pipelines as queries that hosts keep running. (`query` asks once; `pipeline run` runs in this terminal.)
  demo            | demo.demo             | Watch streams and a pipeline at work, and see the result verified.

Brokers
  serve           | serve.serve           | Serve a store to other processes and machines: by Arrow Flight, HTTP and gRPC.
  token           | token.app             | Issue, list and revoke the tokens that identify callers of a broker.
  role            | role.app              | Define roles, and bind them to principals: who may do what through a broker.

Upkeep
  compact         | maintain.compact      | Compact appended events into Parquet files.
  collect         | maintain.collect      | Remove bytes that no stream refers to any more, and ephemeral streams whose holders were killed.
  space           | space.space           | Show how many bytes the files of the store take up, and what keeps those that no stream needs any more.
  retain          | maintain.retain       | Remove the events that retention policies release, of one stream or of all that have a policy.
  check           | maintain.check        | Verify the store, and report what is wrong and where.
  backup          | backup.backup         | Copy the store as of one moment to another place.
  restore         | restore.restore       | Create a store from a backup, at a location without a store.
  rebuild         | rebuild.rebuild       | Recreate a lost or damaged catalog from the newest manifest among the blobs.
  key             | key.app               | Make, show and rotate the keys of encrypted stores.
  metrics         | metrics.metrics       | Print the lag of reader groups and pipelines, the state of watermarks, the store's size, and failures of upkeep.
  version         | version.version       | Print the release.
"""


def _parsed(table: str) -> Iterator[tuple[str, Verb]]:
    panel = ""
    for line in filter(None, table.splitlines()):
        if not line.startswith(" "):
            panel = line
            continue
        name, where, summary = (cell.strip() for cell in line.split("|", 2))
        yield name, Verb(where, panel, summary)


VERBS: Final = dict(_parsed(_TABLE))
