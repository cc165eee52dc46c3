"""Every case of `spec/vectors`: what this package computes is what the other languages compute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from semel import _credentials, _fingerprint, _http, canonical, keys
from semel._fingerprint import Part
from semel.errors import KeyInvalid, PayloadInvalid
from support import derive, record

VECTORS = Path(__file__).parents[3] / "spec" / "vectors"


def cases(file: str, part: str = "cases") -> list[Any]:
    found = json.loads((VECTORS / file).read_text())[part]
    assert found, "an empty file shows nothing"
    return list(found)


def text_of(given: Any) -> str:
    return given if isinstance(given, str) else "".join(piece["repeat"] * piece["times"] for piece in given)


def material(case: Any) -> bytes:
    return bytes.fromhex(case["secret"]["material"]) if case["secret"] else b""


def part_of(given: Any) -> Part:
    data = bytes.fromhex(given["hex"]) if "hex" in given else text_of(given["text"]).encode()
    return Part(given["kind"], data)


@pytest.mark.parametrize("case", cases("keys.json"), ids=lambda case: str(case["text"])[:20])
def test_keys(case: Any) -> None:
    error = None
    try:
        keys.check_key(text_of(case["text"]), max_bytes=case["max_bytes"], extra=case["extra"])
    except KeyInvalid as refused:
        error = refused.reason
    assert (error is None, error) == (case["ok"], case["error"])


@pytest.mark.parametrize("case", cases("fingerprint.json"), ids=lambda case: case["name"])
def test_fingerprints(case: Any) -> None:
    refused, made = None, None
    try:
        made = derive.fingerprint([part_of(part) for part in case["parts"]], material(case)).hex()
    except PayloadInvalid as error:
        refused = error.reason
    assert (made, refused) == (case["fingerprint"], case["refused"])


@pytest.mark.parametrize("case", cases("fingerprint.json"), ids=lambda case: case["name"])
def test_canonical_texts(case: Any) -> None:
    for part in case["parts"]:
        if "canonical" in part:
            assert canonical.canonicalize(part_of(part).data).decode() == part["canonical"]


@pytest.mark.parametrize("case", cases("identity.json"))
def test_identities(case: Any) -> None:
    names = ("environment", "tenant", "scope", "principal")
    made = derive.identity(text_of(case["key"]), material=material(case), **{n: text_of(case[n]) for n in names})
    assert (made.hex(), made[:16].hex(), made[16:].hex()) == (case["identity"], case["address"], case["seal"])


@pytest.mark.parametrize("case", cases("downstream.json"))
def test_downstream_keys(case: Any) -> None:
    made = derive.downstream_key(bytes.fromhex(case["identity"]), case["step"], material(case))
    assert made == case["key"]


def record_of(given: Any) -> record.Record:
    fields = dict(given)
    for name in ("fingerprint", "seal", "token", "checkpoint"):
        fields[name] = bytes.fromhex(fields[name])
    for name in ("fence", "retention_ms", "created_us", "written_us"):
        fields[name] = int(fields[name])
    if answer := fields["answer"]:
        body, omitted = answer["body"], answer["omitted_bytes"]
        fields["answer"] = record.Answer(
            bytes.fromhex(answer["head"]),
            None if body is None else bytes.fromhex(body),
            None if omitted is None else int(omitted),
            bytes.fromhex(answer["digest"]) if "digest" in answer else None,
        )
    return record.Record(**fields)


@pytest.mark.parametrize("case", cases("record.json"), ids=lambda case: case["name"])
def test_records(case: Any) -> None:
    made = record_of(case["record"])
    assert record.pack(made).hex() == case["packed"]
    assert record.unpack(bytes.fromhex(case["packed"]), made.seal) == made


@pytest.mark.parametrize("case", cases("record.json", "skipped"), ids=lambda case: case["name"])
def test_records_with_sections_to_skip(case: Any) -> None:
    same = next(other for other in cases("record.json") if other["name"] == case["same_as"])
    assert record.unpack(bytes.fromhex(case["packed"])) == record_of(same["record"])


@pytest.mark.parametrize("case", cases("record.json", "refused"), ids=lambda case: case["name"])
def test_refused_records(case: Any) -> None:
    with pytest.raises(record.RecordInvalid) as refused:
        record.unpack(bytes.fromhex(case["packed"]), bytes.fromhex(case["seal"]))
    assert refused.value.reason == case["error"]


def test_every_file_is_read() -> None:
    read = {"credentials.json", "keys.json", "fingerprint.json", "identity.json", "downstream.json", "record.json"}
    read |= {"tools.json", "webhooks.json"}  # test_tools, test_webhooks
    # Only stores encrypt records.
    of_stores = {"encrypted.json"}
    assert {file.name for file in VECTORS.glob("*.json")} == read | of_stores


def test_the_same_headers_are_credentials() -> None:
    assert list(_credentials.NAMES) == cases("credentials.json", "headers")


@pytest.mark.parametrize("case", cases("credentials.json"), ids=lambda case: case["name"])
def test_credentials(case: Any) -> None:
    headers = [(name, value) for name, value in case["request"]]
    counted = _credentials.Credentials.of(case["more"], case["cookies"]).counted(headers)
    assert [[name, values] for name, values in counted if values] == case["counts"]
    assert _credentials.has_credentials(counted) == bool(case["counts"])


@pytest.mark.parametrize("case", cases("credentials.json", "answers"), ids=str)
def test_answers_that_ask_to_sign_in(case: Any) -> None:
    outcome = _http.outcome_of_status(case["status"], None, location=case["location"], anonymous=case["anonymous"])
    assert (outcome in ("complete", "fail")) == case["kept"]


def test_a_principals_own_key_is_nobody_elses() -> None:
    own = _http.owned_key("alice", "k-1")
    assert own != "k-1"
    assert _http.owned_key("", "k-1") == _http.owned_key(None, "k-1") == "k-1"
    with pytest.raises(KeyInvalid):
        _http.owned_key(None, own)


def test_the_digests_of_callers_stay_what_they_are() -> None:
    # Keys outlive versions of this package: another digest would make their retries conflicts.
    wanted = "e159194dc26ddaee242bf4cfe15611b1017aa9a21208d4d8fcda5a8c9dbc09f3"
    assert _fingerprint.fingerprint_of({"a": 1.0}) == wanted
    assert _fingerprint.fingerprint([Part.json('{ "a": 1 }')]) == wanted
    assert _fingerprint.fingerprint([Part.raw('{"a":1}')]) != wanted
