"""Calls that survive their process: a folder with one file for each call that has no answer yet.

A file is whole or not there: it is written beside, made durable (`fsync`), and then linked to its name, which only one
process wins. So there is no lock to be left behind, any number of processes may share the folder, and another one, in
Python, TypeScript or Rust, may send what a dead one left. Two that send one call do no harm: both have the same key.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .errors import CallChanged, SemelError
from .keys import check_key, new_key

MAX_NAME_BYTES = 1024
_VERSION = 1
_BESIDE = ".new-"
_ASIDE = ".old-"
_STALE_SECONDS = 3600


class OutboxDamaged(SemelError):
    """A file of the outbox can't be read. It is never taken for a call without a key."""


@dataclass(frozen=True)
class StoredRequest:
    """What is sent, without credentials: those are the sender's, and never on disk."""

    method: str
    url: str
    content_type: str | None
    body: bytes = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """As it stands in the file."""
        body = base64.b64encode(self.body).decode()
        return {"method": self.method, "url": self.url, "content_type": self.content_type, "body_base64": body}

    @staticmethod
    def of_json(value: dict[str, Any]) -> StoredRequest:
        """Read back."""
        body = base64.b64decode(value["body_base64"], validate=True)
        return StoredRequest(str(value["method"]), str(value["url"]), value["content_type"], body)


@dataclass(frozen=True)
class Entry:
    """One call: its name, its key, and what it sends once that is known."""

    name: str
    key: str = field(repr=False)
    created: float
    request: StoredRequest | None = field(default=None, repr=False)
    maybe_sent: bool = field(default=False, repr=False, compare=False)
    """Whether somebody may have sent it: its request was on disk before it was read or attached."""


class Outbox:
    """The folder. Made for its owner alone: requests are in it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep()

    def begin(self, name: str, key: str | None = None) -> Entry:
        """The call of this name, begun now or by a process before. Its key is on disk when this returns."""
        size = len(name.encode())
        if not 0 < size <= MAX_NAME_BYTES:
            raise ValueError(f"a call's name has 1 to {MAX_NAME_BYTES} bytes")
        fresh = Entry(name, check_key(key) if key is not None else new_key(), time.time())
        while True:
            # Where neither, another process has forgotten it between the two steps: begin anew.
            made = fresh if self._link(fresh) else self.get(name)
            if made is not None:
                self._sync_folder()
                return made

    def attach(self, entry: Entry, request: StoredRequest, *, formerly: StoredRequest | None = None) -> Entry:
        """Keeps what the call sends. `CallChanged` where the name is another call's by now, or was begun with something
        else. `formerly` is the same request as earlier versions wrote it."""
        known = (None, request, formerly)
        while True:
            # Asked of the disk: the entry is as old as its reading, and others may have gone on with the call.
            found = self.get(entry.name)
            if entry.request not in known or (found and (found.key != entry.key or found.request not in known)):
                raise CallChanged("a call of this name was begun with another key or request")
            if found is None:
                # Whoever forgot it may have sent it.
                found = replace(entry, request=request, maybe_sent=True)
                if not self._link(found):
                    continue
            elif found.request is None:
                found = replace(found, request=request, maybe_sent=entry.maybe_sent)
                self._write(found).replace(self._path(entry.name))
            self._sync_folder()
            return found

    def get(self, name: str) -> Entry | None:
        """The call of this name, where it has no answer yet."""
        return self._read(self._path(name))

    def pending(self) -> Iterator[Entry]:
        """Every call without an answer, the oldest first."""
        found = (self._read(path) for path in self.folder.glob("*.call"))
        yield from sorted((entry for entry in found if entry is not None), key=lambda entry: entry.created)

    def forget(self, entry: Entry) -> None:
        """The answer is where the caller wants it. From here on, the name is a new call.

        What has become another call, or has got a request since the entry was read, stays: somebody works on it.
        """
        path = self._path(entry.name)
        if not _is_same(self._read(path), entry):
            return
        # What is looked at aside can't change any more; by its name it could, between the look and the removal.
        aside = self.folder / (_ASIDE + secrets.token_hex(8))
        try:
            path.rename(aside)
        except FileNotFoundError:
            return
        same = False
        try:
            same = _is_same(self._read(aside), entry)
        finally:
            if not same:
                self._put_back(aside, path)
            aside.unlink(missing_ok=True)
            self._sync_folder()

    def _put_back(self, aside: Path, path: Path) -> None:
        # Where the name is taken, it was begun anew meanwhile: the newer call is what stands there.
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            os.link(aside, path)

    def _link(self, entry: Entry) -> bool:
        """Writes it, unless there is a call of its name."""
        beside = self._write(entry)
        try:
            os.link(beside, self._path(entry.name))
        except FileExistsError:
            return False
        finally:
            beside.unlink()
        return True

    def _path(self, name: str) -> Path:
        return self.folder / (hashlib.sha256(name.encode()).hexdigest() + ".call")

    def _read(self, path: Path) -> Entry | None:
        try:
            value = json.loads(path.read_bytes())
            if value["version"] != _VERSION:
                raise OutboxDamaged(f"{path.name} is of another version")
            name = str(value["name"])
            if not path.name.startswith(_ASIDE) and self._path(name).name != path.name:
                # It would be sent as another call, and never be forgotten.
                raise OutboxDamaged(f"{path.name} is another call's")
            request = value["request"]
            stored = None if request is None else StoredRequest.of_json(request)
            return Entry(name, check_key(value["key"]), float(value["created"]), stored, stored is not None)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise OutboxDamaged(f"{path.name} can't be read") from error

    def _write(self, entry: Entry) -> Path:
        beside = self.folder / (_BESIDE + secrets.token_hex(8))
        value = {
            "version": _VERSION,
            "name": entry.name,
            "key": entry.key,
            "created": entry.created,
            "request": entry.request.to_json() if entry.request else None,
        }
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        return beside

    def _sync_folder(self) -> None:
        # Without this, the name could be lost although the file is safe. Windows has no such call, and needs none.
        if os.name == "nt":
            return
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _sweep(self) -> None:
        """What a process that died left: beside, while it wrote; aside, while it forgot."""
        for path in self.folder.glob(_BESIDE + "*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                    path.unlink()
        for path in self.folder.glob(_ASIDE + "*"):
            with contextlib.suppress(FileNotFoundError, OutboxDamaged):
                # When it was renamed, which is no change to the file: that may be as old as its call.
                if time.time() - path.stat().st_ctime > _STALE_SECONDS:
                    self._recall(path)

    def _recall(self, aside: Path) -> None:
        # It may not have been the one to forget. With its key, asking again does no harm; forgetting it could.
        left = self._read(aside)
        if left is not None:
            self._put_back(aside, self._path(left.name))
            aside.unlink()


def _is_same(found: Entry | None, entry: Entry) -> bool:
    return found is not None and found.key == entry.key and (found.request is None) == (entry.request is None)
