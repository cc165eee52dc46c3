"""`worker` for asyncio."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast

import httpx2 as httpx

from ._arguments import bound, key_of, reader
from ._claims import (
    ABANDONING,
    ENDED,
    NOTHING,
    Terms,
    answer_input,
    asked_again,
    claim_request,
    claim_view,
    new_token,
    not_kept,
    outcome_of,
    value_of,
)
from ._lease import LeaseState, Result, current, merged, naming, running_under
from ._values import JSON, Codec, codec_for, identity_function
from .api import AsyncApi
from .api_types import AnswerInput, ClaimRequest, ClaimView, Outcome
from .errors import AnswerNotKept, EffectFailed, GaveUp, LeaseLost, ProblemError, SemelError, Unrecorded
from .retry import RetryBudget, RetryPolicy

P = ParamSpec("P")
T = TypeVar("T")


class AsyncLease(LeaseState):
    """A lease that a task of its own renews until the effect has ended."""

    def __init__(self, api: AsyncApi, view: ClaimView, since: float) -> None:
        super().__init__(view, since)
        self._api = api
        self._task: asyncio.Task[None] | None = None

    async def renew(self, checkpoint: Any = NOTHING) -> None:
        """As `Lease.renew`."""
        within = max(self.remaining, 1.0)
        try:
            view, sent_at = await self._api.renew(
                self.id, self._token, self.fence, checkpoint=checkpoint, within=within
            )
        except LeaseLost:
            self._told_lost(self._api.retry.on_event)
            raise
        self._prolong(view, sent_at)

    async def save_checkpoint(self, value: Any) -> None:
        """As `Lease.save_checkpoint`."""
        await self.renew(value)

    async def derive_key(self, step: str) -> str:
        """As `Lease.derive_key`."""
        if step not in self._keys:
            self._keys.update(await self._api.keys(self.id, [step]))
        return self._keys[step]

    async def settle(self, outcome: Outcome, answer: AnswerInput | None) -> None:
        """As `Lease.settle`. A caller that is cancelled doesn't cut it short."""
        within = max(self.remaining, 3 * self.renew_every)
        sending = self._api.settle(self.id, self._token, self.fence, outcome, answer, within=within)
        await uncut(sending)

    async def _renewing(self) -> None:
        while True:
            await asyncio.sleep(self._pause())
            try:
                await self.renew()
            except LeaseLost:
                return
            except (SemelError, httpx.HTTPError):
                # No answer in time. The deadline stands, and the next turn may do better.
                continue

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._renewing())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def uncut(work: Coroutine[Any, Any, T]) -> T:
    """Waits for `work` to its end, also when cancelled meanwhile; only then is the cancellation passed on."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            cancelled = True
        except BaseException:
            break
    if cancelled:
        if not task.cancelled():
            task.exception()
        raise asyncio.CancelledError
    return task.result()


class AsyncOperation:
    """As `worker.Operation`."""

    def __init__(self, lease: AsyncLease | None, value: Any, *, replayed: bool) -> None:
        self.lease = lease
        """`None` where it was done before, and where the server doesn't enforce the scope."""
        self.value = value
        self.replayed = replayed

    def complete(self, value: Any) -> None:
        """The answer to keep; recorded when the block ends."""
        if self.replayed:
            raise SemelError("it was done before: its answer is fixed")
        self.value = value


class AsyncDecorator(Protocol):
    """What `idempotent` gives: the function keeps its signature."""

    def __call__(self, function: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """The function that runs once."""


class AsyncSemel:
    """As `worker.Semel`."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        tenant: str | None = None,
        actor: str | None = None,
        terms: Terms | None = None,
        retry: RetryPolicy | None = None,
        budget: RetryBudget | None = None,
        http: httpx.AsyncClient | None = None,
        api: AsyncApi | None = None,
    ) -> None:
        self.api = api or AsyncApi(url, token=token, retry=retry, budget=budget, http=http)
        self.terms = terms or Terms()
        self.tenant, self.actor = tenant, actor

    def idempotent(
        self,
        scope: str,
        *,
        key: str | Callable[..., str],
        payload: Callable[..., Any] | None = None,
        terms: Terms | None = None,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> AsyncDecorator:
        """As `Semel.idempotent`, for coroutine functions."""

        def wrap(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
            if not inspect.iscoroutinefunction(function):
                raise TypeError("not a coroutine function: use Semel")

            codec = codec_for(function, encode, decode)
            key_for = key_of(function, key)
            payload_of = None if payload is None else reader(function, payload)

            @functools.wraps(function)
            async def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
                asked = bound(function, args, kwargs) if payload_of is None else payload_of(*args, **kwargs)

                async def effect(_: AsyncLease | None) -> T:
                    return await function(*args, **kwargs)

                own_key = key_for(*args, **kwargs)
                found = await self._run(scope, own_key, effect, codec, payload=asked, terms=terms)
                return found.value

            return wrapped

        return wrap

    async def run(
        self,
        scope: str,
        key: str,
        effect: Callable[[AsyncLease | None], Awaitable[T]],
        *,
        payload: Any = NOTHING,
        terms: Terms | None = None,
        fingerprint: str | None = None,
        encode: Callable[[T], Any] | None = None,
        decode: Callable[[Any], T] | None = None,
    ) -> Result[T]:
        """As `Semel.run`."""
        codec = codec_for(effect, encode, decode)
        return await self._run(scope, key, effect, codec, payload=payload, terms=terms, fingerprint=fingerprint)

    async def _run(
        self,
        scope: str,
        key: str,
        effect: Callable[[AsyncLease | None], Awaitable[T]],
        codec: Codec,
        *,
        payload: Any,
        terms: Terms | None,
        fingerprint: str | None = None,
    ) -> Result[T]:
        terms = merged(terms, self.terms)
        request = claim_request(
            scope, key, payload, terms, tenant=self.tenant, actor=self.actor, fingerprint=fingerprint
        )
        with naming(key):
            view, lease = await self.admit(request)
            if view["status"] == "unprotected":
                with running_under(None):
                    return Result(await effect(None), view, replayed=False)
            if lease is None:
                return Result(value_of(view, codec.decode), view, replayed=True)
            async with lease:
                value = await self._effect(lease, effect, terms)
                return await self._complete(lease, value, view, codec)

    @asynccontextmanager
    async def operation(
        self, scope: str, key: str, *, payload: Any = NOTHING, terms: Terms | None = None
    ) -> AsyncIterator[AsyncOperation]:
        """As `Semel.operation`."""
        terms = merged(terms, self.terms)
        request = claim_request(scope, key, payload, terms, tenant=self.tenant, actor=self.actor)
        with naming(key):
            view, lease = await self.admit(request)
            earlier = value_of(view, identity_function) if view["status"] in ENDED else None
        if lease is None:
            with running_under(None):
                yield AsyncOperation(None, earlier, replayed=view["status"] != "unprotected")
            return
        async with lease:
            done = AsyncOperation(lease, None, replayed=False)
            try:
                with running_under(lease):
                    yield done
            except BaseException as error:
                await self._fail(lease, error, terms)
                raise
            await self._complete(lease, done.value, view, JSON)

    async def admit(self, request: ClaimRequest) -> tuple[ClaimView, AsyncLease | None]:
        """An answer, or a lease that is still good when its effect starts."""
        for _ in range(10):
            try:
                view, since = await self.api.claim(request)
            except asyncio.CancelledError:
                await self._abandon(request)
                raise
            if view["status"] != "claimed":
                return view, None
            lease = AsyncLease(self.api, view, since)
            if await self._may_start(lease):
                return view, lease
            # The reply was so late that the lease had lapsed: ask anew.
            request = {**request, "token": new_token()}
        raise LeaseLost("every lease had lapsed before its answer came")

    async def _abandon(self, request: ClaimRequest) -> None:
        """Releases what a claim may have won whose caller was cancelled before its answer."""

        async def release() -> None:
            with suppress(SemelError, httpx.HTTPError, TimeoutError, RuntimeError):
                async with asyncio.timeout(ABANDONING):
                    reply = await self.api.send("POST", "v1/claims", asked_again(request), within=ABANDONING / 2)
                    view = claim_view(reply)
                    if view["status"] == "claimed":
                        await AsyncLease(self.api, view, reply.sent_at).settle("release", None)

        with suppress(asyncio.CancelledError):
            await uncut(release())

    async def _may_start(self, lease: AsyncLease) -> bool:
        """Whether its deadline is still to come. One that was won past it is renewed, once (P30)."""
        try:
            if lease.remaining <= 0:
                await lease.renew()
        except LeaseLost:
            return False
        if lease.remaining > 0:
            return True
        # The renewal's answer was late too. Nothing was started, so letting go is legal.
        with suppress(ProblemError):
            await lease.settle("release", None)
        return False

    async def _effect(self, lease: AsyncLease, effect: Callable[[AsyncLease | None], Awaitable[T]], terms: Terms) -> T:
        try:
            with running_under(lease):
                return await effect(lease)
        except BaseException as error:
            await self._fail(lease, error, terms)
            raise

    async def _fail(self, lease: AsyncLease, error: BaseException, terms: Terms) -> None:
        """As `Semel._fail`."""
        outcome, answer = outcome_of(error, terms)
        try:
            await lease.settle(outcome, answer)
        except (SemelError, httpx.HTTPError) as second:
            if outcome == "fail":
                raise not_kept(second, answer) from error
            error.__context__ = second
        if outcome == "fail":
            raise EffectFailed((answer or {}).get("body"), replayed=False) from error

    async def _complete(
        self,
        lease: AsyncLease,
        value: T,
        view: ClaimView,
        codec: Codec,
    ) -> Result[T]:
        answer: AnswerInput = {"body_omitted_bytes": 0}
        plain, not_json = None, None
        try:
            answer, plain = answer_input(value, codec.encode)
        except Exception as error:
            # It happened all the same, and must not happen again.
            not_json = error
        try:
            await lease.settle("complete", answer)
        except ProblemError as error:
            if error.code != "idempotency_lease_not_held":
                raise Unrecorded(value) from error
            # Another run was quicker: its answer is everybody's.
            other = error.problem.get("claim")
            if other is None:
                raise LeaseLost("the effect ran, but the lease was another's by then") from error
            return Result(value_of(cast(ClaimView, other), codec.decode), cast(ClaimView, other), replayed=True)
        except GaveUp as error:
            raise Unrecorded(value) from error
        if not_json is not None:
            raise AnswerNotKept(0, value=value, reason=str(not_json)) from not_json
        return Result(codec.decode(plain), view, replayed=False)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self.api.aclose()

    async def __aenter__(self) -> Self:
        await self.api.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def current_async_lease() -> AsyncLease | None:
    """As `current_lease`."""
    return current(AsyncLease, "current_lease")
