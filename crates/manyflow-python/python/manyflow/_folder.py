"""The folder of a sweep: of a file system, or of an object store by fsspec."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any, Union

from .results import _library

#: How often a folder is listed again, because another process has removed files while they were copied.
_PULLS_MAX = 5


class Folder:
    """A folder whose files are on this machine, at ``here``."""

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        #: The folder as its caller named it.
        self.given: Union[Path, str] = Path(path)
        self.here = Path(path).absolute()
        #: The path or address by which others find the folder.
        self.address = str(self.here)

    def look(self) -> None:
        """Learns which files others have written."""

    def pull(self) -> None:
        """Brings the files that others have written, and removes those that they have removed."""

    def push(self) -> None:
        """Gives others the files of this machine, and removes those that are here no longer."""

    def push_new(self) -> None:
        """Gives others the files of this machine that they did not have at the last look or pull."""


class Objects(Folder):
    """A folder of an object store, with a copy on this machine that is removed with this object.

    Objects are written whole, and the names of rows depend on the writer or on the contents, so several processes may
    use the same folder: an object is never replaced by another one.
    """

    def __init__(self, address: str) -> None:
        self.given = self.address = address
        core = _library("fsspec.core", "objects")
        self._store, self._path = core.url_to_fs(address)
        self.here = Path(tempfile.mkdtemp(prefix="manyflow-sweep-"))
        weakref.finalize(self, shutil.rmtree, self.here, ignore_errors=True)
        #: The names of the files that are in the store, as far as this process knows.
        self._stored: set[str] = set()

    def look(self) -> None:
        self._stored = self._listed()

    def pull(self) -> None:
        for left in reversed(range(_PULLS_MAX)):
            self.look()
            try:
                for name in sorted(self._stored - self._own()):
                    self._store.get_file(f"{self._path}/{name}", str(self.here / f".{name}"))
                    (self.here / f".{name}").rename(self.here / name)
                break
            except FileNotFoundError:
                # Another process has brought the rows in order, and removed the parts.
                if left == 0:
                    raise
        for name in self._own() - self._stored:
            (self.here / name).unlink()

    def push(self) -> None:
        self.push_new()
        # Rows are in the new files before the old ones are removed.
        for name in self._stored - self._own():
            try:
                self._store.rm_file(f"{self._path}/{name}")
            except FileNotFoundError:
                pass
            self._stored.discard(name)

    def push_new(self) -> None:
        self._store.makedirs(self._path, exist_ok=True)
        # The scenario comes before its rows.
        for name in sorted(self._own() - self._stored, reverse=True):
            self._store.put_file(str(self.here / name), f"{self._path}/{name}")
            self._stored.add(name)

    def _own(self) -> set[str]:
        return {path.name for path in self.here.iterdir() if not path.name.startswith(".")}

    def _listed(self) -> set[str]:
        self._store.invalidate_cache(self._path)
        try:
            entries: list[dict[str, Any]] = self._store.ls(self._path, detail=True)
        except FileNotFoundError:
            return set()
        names = (str(entry["name"]).rsplit("/", 1)[-1] for entry in entries if entry["type"] == "file")
        return {name for name in names if name.startswith(("scenario-", "part-", "rows-"))}


def open_folder(folder: Union[str, os.PathLike[str]]) -> Folder:
    """Opens a folder by its path, or by an address such as ``s3://bucket/sweep``."""
    if isinstance(folder, str) and "://" in folder:
        if folder.startswith("file://"):
            raise ValueError(f"{folder}: name a folder of this machine by its path")
        return Objects(folder.rstrip("/"))
    return Folder(folder)
