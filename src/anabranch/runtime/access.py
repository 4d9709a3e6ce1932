"""File modes: which users may open the files that a store creates. Only the owner, unless the owner declares them
shared.

A store holds events of many users, so files are created with mode 0600 and folders with 0700, whatever the process's
umask. A place is shared if `Settings.shared_files` says so, or if its folder has the set-group-id bit (`mkdir -m 2770`,
`chmod g+s`): then the umask decides, as for other programs. Existing files and folders keep their mode.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_OWNER_FILE: Final = 0o600
_OWNER_FOLDER: Final = 0o700
_UMASK_FILE: Final = 0o666
_UMASK_FOLDER: Final = 0o777


@dataclass(frozen=True, slots=True)
class Access:
    """The modes for creating files and folders, before the umask is applied."""

    file: int
    folder: int

    @property
    def shared(self) -> bool:
        """True if users other than the owner may have access."""
        return self.file != _OWNER_FILE

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents, unless they exist. Raises OSError."""
        for each in (*reversed(folder.parents), folder):
            if not each.exists():
                each.mkdir(mode=self.folder, exist_ok=True)

    def make_root(self, folder: Path) -> None:
        """Create the root folder of a place, unless it exists. A new shared one gets the set-group-id bit, so that
        every later process recognises it. Its parents are not part of the place. Raises OSError."""
        if folder.is_dir():
            return
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=self.folder, exist_ok=True)
        if self.shared:
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_ISGID)

    def create(self, file: Path) -> None:
        """Create an empty file, unless it exists. Raises OSError."""
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self.file))


OWNER_ONLY: Final = Access(_OWNER_FILE, _OWNER_FOLDER)
BY_UMASK: Final = Access(_UMASK_FILE, _UMASK_FOLDER)


def access_of(root: Path, *, shared: bool) -> Access:
    """The modes for files of the place in a folder; `shared` is the setting. A folder that doesn't exist yet is treated
    like its parent, from which it inherits the bit."""
    if shared:
        return BY_UMASK
    for folder in (root, *root.parents):
        try:
            return BY_UMASK if folder.stat().st_mode & stat.S_ISGID else OWNER_ONLY
        except FileNotFoundError:
            continue
        except OSError:
            break
    return OWNER_ONLY
