"""Tokens go to other machines encrypted, or not at all."""

from __future__ import annotations

import httpx2 as httpx
import pytest

from semel import AsyncSemel, Semel
from semel.api import Api, AsyncApi

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize("make", [Api, AsyncApi, Semel, AsyncSemel])
def test_a_token_in_the_clear_to_another_machine_is_refused(make: type) -> None:
    for url in ["http://semel.internal:8080", "http://192.0.2.1", "http://[2001:db8::1]:80"]:
        with pytest.raises(ValueError, match="in the clear"):
            make(url, token=TOKEN)
        make(url)
    for url in ["https://semel.internal", "http://127.0.0.1:8080", "http://localhost", "http://[::1]:8080"]:
        make(url, token=TOKEN)


def test_a_client_of_ones_own_decides_itself() -> None:
    with httpx.Client() as http:
        Api("http://semel.internal:8080", token=TOKEN, http=http)
