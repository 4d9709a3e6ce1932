"""Every module of the embedded store's tests runs over a connection, or stands here with the reason why not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
STORE: Final = HERE.parents[1] / "store"

PARTS = "tests the parts of the embedded store by themselves, without a store to connect to"
DAMAGE = "damages or watches the catalog and the files, and opens the store itself again"
STAGING = "stages events or holds a lease, which needs the store's catalog and files (NotRemote)"
UPKEEP = "upkeep by the clock and the tasks of the embedded store, which a broker runs by itself"
JOBS = "jobs between stores that this process has open, which no broker can be given (NotRemote); see tests/remote/test_store.py"

NOT_OVER_A_CONNECTION: Final = {
    "blobs.test_encryption": DAMAGE,
    "catalog.test_damaged_rows": DAMAGE,
    "catalog.test_state_lookups": PARTS,
    "test_addresses_given": "opens the store itself, and refuses what is no address",
    "deployments.test_hosting": "a host opens the store itself",
    "deployments.test_replaying": "swaps queries as a host does, which opens the store itself",
    "deployments.test_results": "reads through a broker too",
    "deployments.test_separated_queries": "a host opens the store itself",
    "deployments.test_signatures": "keys are trusted by whoever opens the store itself",
    "export.test_metrics": "counts what the embedded store does",
    "groups.test_hosted": "holds readers as a broker does",
    "log.checking.test_check": PARTS,
    "log.checking.test_recovery_repair": DAMAGE,
    "log.recovery.test_clashing_manifests": DAMAGE,
    "log.recovery.test_hostile_backups": DAMAGE,
    "log.recovery.test_recovery": DAMAGE,
    "log.recovery.test_recovery_clocks": PARTS,
    "log.recovery.test_recovery_crashes": PARTS,
    "log.recovery.test_recovery_process": DAMAGE,
    "log.recovery.test_recovery_rebuild": DAMAGE,
    "log.recovery.test_store_id": DAMAGE,
    "log.test_group_commit": PARTS,
    "log.test_survey_portions": PARTS,
    "log.upkeep.test_collect": PARTS,
    "log.upkeep.test_compact": PARTS,
    "log.upkeep.test_flatten": UPKEEP,
    "log.upkeep.test_maintain": UPKEEP,
    "log.upkeep.test_space": UPKEEP,
    "log.upkeep.test_upkeep_crashes": PARTS,
    "log.upkeep.test_upkeep_isolation": UPKEEP,
    "modules.test_modules": "adds modules to stores of its own; tests/remote has those of a client",
    "notifications.test_notification_causes": "follows the causes through the source and the embedded publisher",
    "reading.history.test_history_files": "lists the Parquet files of history, which belong to the store's machine (NotRemote)",
    "reading.test_rates": "runs an embedded reader and one over a connection side by side",
    "reading.test_segment_reader": PARTS,
    "shared_state.test_locked_updates": "updates under a lock of the catalog; a client's updates are optimistic (NotRemote)",
    "streams.algebra.test_algebra_model": "a simulation of the embedded store",
    "streams.algebra.test_builder": "builds a stream from staged parts (NotRemote)",
    "streams.algebra.test_replace": "replaces by tables, which needs the store's files (NotRemote)",
    "streams.names.test_names_model": "a model of the embedded store, in thousands of steps",
    "streams.test_publish": STAGING,
    "test_bad_stores": DAMAGE,
    "test_clocks": STAGING,
    "test_close_interrupted": "interrupts each step of the embedded store's close",
    "test_display": "the objects of a client have names and facts of their own",
    "test_file_modes": DAMAGE,
    "test_imports": "looks at the imports of a process with the embedded store",
    "test_pairings": "pairs catalogs with blob stores, of which a client knows nothing",
    "test_six_places": "a simulation of the embedded store",
    "test_system_errors": "makes the system calls of the embedded store fail",
    "test_tracing": "traces the embedded store",
    "testing.test_faults": PARTS,
    "transactions.test_transaction_failures": "makes the catalog of this process fail; see test_transaction_sessions.py",
    "transfer.archives.test_archive": JOBS,
    "transfer.archives.test_attach": DAMAGE,
    "transfer.archives.test_damage": DAMAGE,
    "transfer.archives.test_forged_archives": DAMAGE,
    "transfer.archives.test_interrupted": DAMAGE,
    "transfer.jobs.test_copy_where": JOBS,
    "transfer.jobs.test_jobs": JOBS,
    "transfer.jobs.test_jobs_archive": JOBS,
    "transfer.jobs.test_jobs_deduplicate": JOBS,
    "transfer.jobs.test_jobs_follow": JOBS,
    "transfer.jobs.test_jobs_follow_within": JOBS,
    "transfer.jobs.test_jobs_give_up": JOBS,
    "transfer.jobs.test_jobs_replace": JOBS,
    "transfer.jobs.test_jobs_running": JOBS,
    "transfer.jobs.test_jobs_scope": JOBS,
    "transfer.jobs.test_jobs_several_stores": JOBS,
    "transfer.jobs.test_jobs_shared_files": JOBS,
    "writing.large_events.test_real_size": "measures the memory of a process with the embedded store",
    "writing.test_one_call_write": "`Store.write` creates, retries and takes back what it created (NotRemote)",
    "writing.test_producers": "`Store.producer` counts its own appends (NotRemote); `writer(producer=…)` does it through a broker",
}


def test_each_module_runs_over_a_connection_or_says_why_not() -> None:
    there = {".".join(path.relative_to(STORE).with_suffix("").parts) for path in STORE.rglob("test_*.py")}
    run = {
        name
        for path in HERE.rglob("test_*.py")
        for name in re.findall(r'"tests\.store\.([\w.]+)"', path.read_text(encoding="utf-8"))
        if name.rpartition(".")[2].startswith("test_")
    }
    assert run <= there, run - there
    assert run.isdisjoint(NOT_OVER_A_CONNECTION), run & NOT_OVER_A_CONNECTION.keys()
    assert there - run == NOT_OVER_A_CONNECTION.keys()
