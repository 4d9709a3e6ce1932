"""All kinds of state, and the check of a row of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from anabranch.catalog.state.access_binding import ACCESS_BINDING
from anabranch.catalog.state.access_role import ACCESS_ROLE
from anabranch.catalog.state.access_token import ACCESS_TOKEN
from anabranch.catalog.state.access_version import ACCESS_VERSION
from anabranch.catalog.state.archive_plan import ARCHIVE_PLAN
from anabranch.catalog.state.attachment import ATTACHMENT
from anabranch.catalog.state.byte_head import BYTE_HEAD
from anabranch.catalog.state.companions import COMPANIONS
from anabranch.catalog.state.copied import COPIED
from anabranch.catalog.state.copy_portion import COPY_PORTION
from anabranch.catalog.state.data_key import DATA_KEY
from anabranch.catalog.state.ephemeral import EPHEMERAL
from anabranch.catalog.state.flush import FLUSH
from anabranch.catalog.state.fork import FORK
from anabranch.catalog.state.former_name import FORMER_NAME
from anabranch.catalog.state.former_names import FORMER_NAMES
from anabranch.catalog.state.former_scope import FORMER_SCOPE
from anabranch.catalog.state.job import JOB
from anabranch.catalog.state.job_file import JOB_FILE
from anabranch.catalog.state.job_member import JOB_MEMBER
from anabranch.catalog.state.job_plan import JOB_PLAN
from anabranch.catalog.state.kind import Entry, State, StateKind
from anabranch.catalog.state.lineage import LINEAGE
from anabranch.catalog.state.listener import LISTENER
from anabranch.catalog.state.load import LOAD
from anabranch.catalog.state.load_policy import LOAD_POLICY
from anabranch.catalog.state.module_code import MODULE_CODE
from anabranch.catalog.state.module_version import MODULE_VERSION
from anabranch.catalog.state.notified import NOTIFIED
from anabranch.catalog.state.orphan import ORPHAN
from anabranch.catalog.state.pipeline import PIPELINE
from anabranch.catalog.state.pipeline_results import PIPELINE_RESULTS
from anabranch.catalog.state.published import PUBLISHED
from anabranch.catalog.state.query import QUERY
from anabranch.catalog.state.query_content import QUERY_CONTENT
from anabranch.catalog.state.query_question import QUERY_QUESTION
from anabranch.catalog.state.query_template import QUERY_TEMPLATE
from anabranch.catalog.state.query_version import QUERY_VERSION
from anabranch.catalog.state.rebuilt import REBUILT
from anabranch.catalog.state.relocated import RELOCATED
from anabranch.catalog.state.replacing import REPLACING
from anabranch.catalog.state.replacing_portion import REPLACING_PORTION
from anabranch.catalog.state.retention import RETENTION
from anabranch.catalog.state.retention_run import RETENTION_RUN
from anabranch.catalog.state.scaling import SCALING
from anabranch.catalog.state.store_id import STORE_ID
from anabranch.catalog.state.transaction import TRANSACTION
from anabranch.catalog.state.trusted_key import TRUSTED_KEY
from anabranch.catalog.state.upkeep_failure import UPKEEP_FAILURE
from anabranch.errors import CorruptCatalog

KINDS: Final[Mapping[str, StateKind[Any, Any]]] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            ACCESS_BINDING,
            ACCESS_ROLE,
            ACCESS_TOKEN,
            ACCESS_VERSION,
            ARCHIVE_PLAN,
            ATTACHMENT,
            BYTE_HEAD,
            COMPANIONS,
            COPIED,
            COPY_PORTION,
            DATA_KEY,
            EPHEMERAL,
            FLUSH,
            FORK,
            FORMER_NAME,
            FORMER_NAMES,
            FORMER_SCOPE,
            JOB,
            JOB_FILE,
            JOB_MEMBER,
            JOB_PLAN,
            LINEAGE,
            LISTENER,
            LOAD,
            LOAD_POLICY,
            MODULE_CODE,
            MODULE_VERSION,
            NOTIFIED,
            ORPHAN,
            PIPELINE,
            PIPELINE_RESULTS,
            PUBLISHED,
            QUERY,
            QUERY_CONTENT,
            QUERY_QUESTION,
            QUERY_TEMPLATE,
            QUERY_VERSION,
            REBUILT,
            RELOCATED,
            REPLACING,
            REPLACING_PORTION,
            RETENTION,
            RETENTION_RUN,
            SCALING,
            STORE_ID,
            TRANSACTION,
            TRUSTED_KEY,
            UPKEEP_FAILURE,
        )
    }
)


def decode(entry: Entry) -> State[Any, Any]:
    """The key and the value of a row of any kind. Raises CorruptCatalog, also for an unknown kind; FormatTooNew."""
    kind = KINDS.get(entry.kind)
    if kind is None:
        shown = f"{entry.kind}, {entry.key}"[:200]
        raise CorruptCatalog(
            f"the state ({shown}) of the catalog has a kind that this release does not know", "states", shown
        )
    return kind.decode(entry)
