"""Jobs that are submitted many times and enqueued once (`docs/jobs.md`)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypedDict, Unpack, cast

import httpx2 as httpx

from ._claims import refuse
from ._send import Reply
from .api import Api, AsyncApi
from .errors import AnswerNotKept, EffectFailed, SemelError
from .keys import check_key, new_key
from .retry import RetryBudget, RetryPolicy

MAX_WAIT_MS = 30_000
_DAY = 86_400


class Options(TypedDict, total=False):
    """How a job is treated; what is left out is the server's choice."""

    idempotency_key: str
    idempotency_ttl_days: float
    scope: str
    tenant: str
    node_id: str
    delay: float
    priority: int
    max_attempts: int


@dataclass(frozen=True)
class Job:
    """A job, as it stood when it was asked for."""

    id: str
    """The same for every submission with this key, and on every start: pass it on as a key."""
    request_id: str
    status: str
    """`accepted`, `in_progress`, `completed` or `failed`."""
    dedup: bool
    """Whether it was submitted before."""
    view: Mapping[str, Any]

    @property
    def ended(self) -> bool:
        """Whether it is done, or failed for good."""
        return self.status in ("completed", "failed")

    @property
    def result(self) -> Any:
        """What the worker gave back; `EffectFailed` where it failed for good."""
        if self.status == "failed":
            raise EffectFailed(self.view.get("error"), replayed=True)
        if self.status != "completed":
            raise SemelError(f"the job has no result yet: {self.status}")
        if "result_omitted_bytes" in self.view:
            raise AnswerNotKept(int(self.view["result_omitted_bytes"]))
        return self.view.get("result")


def _request(kind: str, params: Any, options: Options) -> dict[str, Any]:
    # Without a key of its own, a submission still has one: its attempts are one submission.
    key = options.get("idempotency_key")
    out: dict[str, Any] = {
        "kind": kind,
        "params": params,
        "idempotency_key": new_key() if key is None else check_key(key),
    }
    if (days := options.get("idempotency_ttl_days")) is not None:
        out["idempotency_ttl_sec"] = round(days * _DAY)
    if (delay := options.get("delay")) is not None:
        out["delay_ms"] = round(delay * 1000)
    if (node := options.get("node_id")) is not None:
        out["client"] = {"node_id": node}
    given = cast("dict[str, Any]", options)
    return out | {name: given[name] for name in ("scope", "tenant", "priority", "max_attempts") if name in given}


def _job(reply: Reply[Any]) -> Job:
    refuse(reply.response)
    view = json.loads(reply.response.content)
    return Job(view["job_id"], view["request_id"], view["status"], bool(view.get("dedup", True)), view)


def _path(job_id: str, deadline: float) -> str:
    left = max(0, min(MAX_WAIT_MS, round((deadline - time.monotonic()) * 1000)))
    return f"mesh/jobs/{job_id}?wait_ms={left}"


class Queue:
    """For programs with threads: `Queue("http://127.0.0.1:8080")`."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        retry: RetryPolicy | None = None,
        budget: RetryBudget | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        self._api = Api(url, token=token, retry=retry, budget=budget, http=http)

    def submit(self, kind: str, params: Any, **options: Unpack[Options]) -> Job:
        """Enqueues a job, or finds the one that its key stands for. `Conflict` where that is of other `params`."""
        return _job(self._api.send("POST", "mesh/submit_request", _request(kind, params, options)))

    def wait(self, job_id: str, *, timeout: float = 60.0) -> Job:
        """The job once it has ended, or as it stands when the time is up."""
        deadline = time.monotonic() + timeout
        while True:
            job = _job(self._api.send("GET", _path(job_id, deadline)))
            if job.ended or time.monotonic() >= deadline:
                return job

    def close(self) -> None:
        """Closes the connections."""
        self._api.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncQueue:
    """For asyncio."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        retry: RetryPolicy | None = None,
        budget: RetryBudget | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._api = AsyncApi(url, token=token, retry=retry, budget=budget, http=http)

    async def submit(self, kind: str, params: Any, **options: Unpack[Options]) -> Job:
        """As `Queue.submit`."""
        return _job(await self._api.send("POST", "mesh/submit_request", _request(kind, params, options)))

    async def wait(self, job_id: str, *, timeout: float = 60.0) -> Job:  # noqa: ASYNC109
        """As `Queue.wait`: the server waits, so this is no time limit of ours."""
        deadline = time.monotonic() + timeout
        while True:
            job = _job(await self._api.send("GET", _path(job_id, deadline)))
            if job.ended or time.monotonic() >= deadline:
                return job
            await asyncio.sleep(0)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._api.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
