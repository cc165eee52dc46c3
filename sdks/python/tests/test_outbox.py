"""The outbox: one key for a name, whoever asks, and a file that is whole or not there."""

from __future__ import annotations

import asyncio
import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import pytest

from semel import AsyncClient, CallChanged, Client, GaveUp, Outbox, RetryPolicy
from semel.outbox import Entry, OutboxDamaged, StoredRequest

REQUEST = StoredRequest("POST", "/charges", "application/json", b"{}")
OTHER = StoredRequest("POST", "/charges", "application/json", b"{1}")


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
        outbox.attach(entry, OTHER)
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
    entry = outbox.begin("../../elsewhere")
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text())["name"] == "../../elsewhere"
    outbox.forget(entry)
    assert list(outbox.pending()) == []


def test_what_is_printed_shows_neither_key_nor_body(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    request = StoredRequest("POST", "/charges", "application/json", b'{"card": "4242"}')
    entry = outbox.attach(outbox.begin("order-1"), request)
    assert entry.key not in repr(entry)
    assert "4242" not in repr(entry) + repr(request)


def test_a_stale_entry_forgets_no_request_that_another_has_kept_since(tmp_path: Path) -> None:
    begun = Outbox(tmp_path).begin("order-1")
    (stale,) = Outbox(tmp_path).pending()
    kept = Outbox(tmp_path).attach(begun, REQUEST)
    Outbox(tmp_path).forget(stale)
    assert list(Outbox(tmp_path).pending()) == [kept]
    Outbox(tmp_path).forget(kept)
    assert list(tmp_path.iterdir()) == []


def test_a_stale_entry_forgets_no_newer_call_of_its_name(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.begin("order-1")
    (stale,) = outbox.pending()
    outbox.forget(stale)
    newer = outbox.begin("order-1")
    outbox.forget(stale)
    assert newer.key != stale.key
    assert list(outbox.pending()) == [newer]


class Overtaken(Outbox):
    """Another goes on with the call between the look at its file and what is done by that look."""

    def _read(self, path: Path) -> Entry | None:
        found = super()._read(path)
        if found is not None and path.suffix == ".call":
            Outbox(self.folder).attach(found, REQUEST)
        return found


def test_what_changes_while_it_is_forgotten_is_put_back(tmp_path: Path) -> None:
    begun = Outbox(tmp_path).begin("order-1")
    Overtaken(tmp_path).forget(begun)
    (kept,) = Outbox(tmp_path).pending()
    assert (kept.key, kept.request) == (begun.key, REQUEST)
    assert len(list(tmp_path.iterdir())) == 1, "nothing is left aside"


def test_what_a_process_left_that_died_while_it_forgot_is_a_call_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Outbox(tmp_path).begin("order-1")
    (file,) = tmp_path.iterdir()
    file.rename(tmp_path / ".old-0123456789abcdef")
    assert list(Outbox(tmp_path).pending()) == [], "whoever took it aside may be at work"
    monkeypatch.setattr("semel.outbox._STALE_SECONDS", -1)
    assert list(Outbox(tmp_path).pending()) == [entry]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_stale_entry_takes_no_request_that_another_call_of_its_name_keeps(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    stale = outbox.begin("order-1")
    kept = outbox.attach(stale, REQUEST)
    with pytest.raises(CallChanged):
        outbox.attach(stale, OTHER)
    assert outbox.attach(stale, REQUEST) == kept
    outbox.forget(kept)
    newer = outbox.begin("order-1")
    with pytest.raises(CallChanged):
        outbox.attach(stale, REQUEST)
    assert list(outbox.pending()) == [newer]


def test_a_call_that_another_has_forgotten_is_kept_again_under_its_key(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    entry = outbox.begin("order-1")
    outbox.forget(entry)
    kept = outbox.attach(entry, REQUEST)
    assert (kept.key, kept.maybe_sent) == (entry.key, True), "whoever forgot it may have sent it"
    assert list(outbox.pending()) == [kept]


def test_a_file_says_what_clients_in_other_languages_read(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.attach(outbox.begin("order-1"), REQUEST)
    (file,) = tmp_path.iterdir()
    found = json.loads(file.read_text())
    assert set(found) == {"version", "name", "key", "created", "request"}
    assert found["request"] == {
        "method": "POST",
        "url": "/charges",
        "content_type": "application/json",
        "body_base64": "e30=",
    }


ONCE = RetryPolicy(max_attempts=1)


class Way:
    """A network of the test's own: nobody is there, or somebody who says yes."""

    def __init__(self, *, there: bool = True) -> None:
        self.there = there
        self.seen: list[httpx.Request] = []
        self.transport = httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if not self.there:
            raise httpx.ConnectError("nobody there")
        self.seen.append(request)
        return httpx.Response(201)

    def client(self, base: str, folder: Path) -> Client:
        return Client(http=httpx.Client(base_url=base, transport=self.transport), retry=ONCE, outbox=Outbox(folder))

    def async_client(self, base: str, folder: Path) -> AsyncClient:
        http = httpx.AsyncClient(base_url=base, transport=self.transport)
        return AsyncClient(http=http, retry=ONCE, outbox=Outbox(folder))


BASE = "https://api.test/v1"


def test_a_call_that_was_kept_before_may_be_done(tmp_path: Path) -> None:
    client = Way(there=False).client(BASE, tmp_path)
    with pytest.raises(GaveUp) as first, client.call("order-1") as call:
        call.post("/charges", json={})
    assert not first.value.unknown, "nobody can have sent it before it was kept"
    with pytest.raises(GaveUp) as same:
        call.send()
    (left,) = client.pending()
    with pytest.raises(GaveUp) as later:
        left.send()
    with pytest.raises(GaveUp) as anew, client.call("order-1") as call:
        call.post("/charges", json={})
    assert [found.value.unknown for found in (same, later, anew)] == [True, True, True]


async def test_a_call_that_was_kept_before_may_be_done_with_asyncio_too(tmp_path: Path) -> None:
    client = Way(there=False).async_client(BASE, tmp_path)
    with pytest.raises(GaveUp) as first:
        async with client.call("order-1") as call:
            await call.post("/charges", json={})
    (left,) = await client.pending()
    with pytest.raises(GaveUp) as later:
        await left.send()
    assert (first.value.unknown, later.value.unknown) == (False, True)


async def kept_with_asyncio(client: AsyncClient, name: str, url: str) -> None:
    with pytest.raises(GaveUp):
        async with client.call(name) as call:
            await call.post(url, json={})


def test_a_call_goes_where_it_was_begun_whoever_finishes_it(tmp_path: Path) -> None:
    away, way = Way(there=False), Way()
    with pytest.raises(GaveUp), away.client(BASE, tmp_path).call("order-1") as call:
        call.post("/charges?a=b", json={})
    asyncio.run(kept_with_asyncio(away.async_client(BASE, tmp_path), "order-2", "charges"))
    kept = [entry.request.url for entry in Outbox(tmp_path).pending() if entry.request]
    assert kept == [f"{BASE}/charges?a=b", f"{BASE}/charges"]
    for left in way.client("https://elsewhere.test", tmp_path).pending():
        with left:
            left.send()
    assert [str(request.url) for request in way.seen] == kept
    assert list(tmp_path.iterdir()) == []


def test_a_call_that_was_kept_without_its_base_is_sent_with_the_clients(tmp_path: Path) -> None:
    way, outbox = Way(), Outbox(tmp_path)
    outbox.attach(outbox.begin("order-1"), REQUEST)
    client = way.client(BASE, tmp_path)
    (left,) = client.pending()
    left.send()
    with client.call("order-1") as call:
        call.post("/charges", json={})
    assert [str(request.url) for request in way.seen] == [f"{BASE}/charges"] * 2
    assert list(tmp_path.iterdir()) == []


def test_credentials_in_the_base_are_sent_and_never_kept(tmp_path: Path) -> None:
    way = Way()
    client = way.client("https://ada:secret@api.test/v1", tmp_path)
    with pytest.raises(RuntimeError), client.call("order-1") as call:
        call.post("/charges", json={})
        raise RuntimeError("died before the answer was kept")
    (file,) = tmp_path.iterdir()
    assert "secret" not in file.read_text()
    (left,) = client.pending()
    left.send()
    assert [request.headers.get("authorization") for request in way.seen] == ["Basic YWRhOnNlY3JldA=="] * 2
