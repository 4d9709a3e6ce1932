"""Signs a query, for stores that take signed ones alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from anabranch.cli.declare import option, without_store
from anabranch.cli.options import JsonOption
from anabranch.cli.output import print_result
from anabranch.cli.query_files import QueryFiles
from anabranch.cli.statement_options import FileArgument, ParamOption, translated_statements
from anabranch.cli.translate import DialectOption
from anabranch.core.pairs import parse_pairs
from anabranch.errors import InvalidArgument


@without_store
def sign(
    file: FileArgument,
    key: Annotated[
        Path, option("--key", "KEY.pem", "The private Ed25519 key; only its owner may be able to read the file.")
    ],
    *,
    files: QueryFiles,
    param: ParamOption = None,
    dialect: DialectOption = None,
    out: Annotated[Path | None, option("--out", "FILE", "Where it is written. Default: FILE.sql.sig.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Sign a file of statements together with the wheels, modules, resources and parameters that it is to be deployed with.

    The signature covers all of these, but not the query's name: they may be deployed under any name. A key is made by:
    openssl genpkey -algorithm ed25519 -out KEY.pem

    Examples:

      anabranch queries sign scores.sql --key alice.pem --wheel scoring-1.0-py3-none-any.whl --resource model.json
      anabranch queries deploy scores scores.sql --wheel scoring-1.0-py3-none-any.whl --resource model.json --signature scores.sql.sig
    """
    from anabranch.deployments.files import check_files
    from anabranch.deployments.signatures import sign_query

    listed = check_files(files.read() or {})
    text = sign_query(key, translated_statements(file, dialect), parse_pairs(param, "a parameter"), listed)
    target = out or file.with_name(f"{file.name}.sig")
    try:
        target.write_text(f"{text}\n", encoding="utf-8")
    except OSError as exc:
        raise InvalidArgument(f"the signature can't be written: {exc}") from exc
    print_result(as_json, {"signature": text, "file": str(target)}, f"the signature is in {target}")
