"""The outbox: one key for a name, whoever asks, and a file that is whole or not there."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from semel import CallChanged, Outbox
from semel.outbox import OutboxDamaged, StoredRequest

REQUEST = StoredRequest("POST", "/charges", "application/json", b"{}")


def test_a_name_has_one_key_for_all_who_ask_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as threads:
        entries = list(threads.map(lambda _: Outbox(tmp_path).begin("order-1"), range(64)))
    assert len({entry.key for entry in entries}) == 1
    assert len(list(tmp_path.iterdir())) == 1, "nothing is left beside"


def test_a_call_has_one_request(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    entry = outbox.attach(outbox.begin("order-1"), REQUEST)
    assert outbox.attach(entry, REQUEST) == entry
    with pytest.raises(CallChanged):
        outbox.attach(entry, StoredRequest("POST", "/charges", "application/json", b"{1}"))
    assert outbox.begin("order-1").request == REQUEST


def test_the_oldest_comes_first(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    names = [f"order-{number}" for number in (3, 1, 2)]
    for name in names:
        outbox.begin(name)
    assert [entry.name for entry in outbox.pending()] == names


def test_a_damaged_file_is_never_taken_for_a_new_call(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.begin("order-1")
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    version, name = whole.replace(b'"version": 1', b'"version": 2'), whole.replace(b"order-1", b"order-2")
    assert len({whole, version, name}) == 3
    for damage in (b"", b"{", version, name):
        file.write_bytes(damage)
        with pytest.raises(OutboxDamaged):
            outbox.begin("order-1")


def test_only_the_owner_reads_it(tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    Outbox(folder).begin("order-1")
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_names_are_bounded_and_never_a_path(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    for name in ("", "x" * 1025):
        with pytest.raises(ValueError):
            outbox.begin(name)
    outbox.begin("../../elsewhere")
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text())["name"] == "../../elsewhere"
    outbox.forget("../../elsewhere")
    assert list(outbox.pending()) == []


def test_what_is_printed_shows_neither_key_nor_body(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    request = StoredRequest("POST", "/charges", "application/json", b'{"card": "4242"}')
    entry = outbox.attach(outbox.begin("order-1"), request)
    assert entry.key not in repr(entry)
    assert "4242" not in repr(entry) + repr(request)
