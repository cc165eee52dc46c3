"""Run it once: the decorator, the context manager and the function behind them, for programs with threads."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
from .api import Api
from .api_types import AnswerInput, ClaimRequest, ClaimView, Outcome
from .errors import AnswerNotKept, EffectFailed, GaveUp, LeaseLost, ProblemError, SemelError, Unrecorded
from .retry import RetryBudget, RetryPolicy

P = ParamSpec("P")
T = TypeVar("T")


class Lease(LeaseState):
    """A lease that a thread of its own renews until the effect has ended."""

    def __init__(self, api: Api, view: ClaimView, since: float) -> None:
        super().__init__(view, since)
        self._api = api
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renewing, name="semel-renew", daemon=True)

    def renew(self, checkpoint: Any = NOTHING) -> None:
        """Prolongs it now. `LeaseLost` where it is another's."""
        within = max(self.remaining, 1.0)
        try:
            view, sent_at = self._api.renew(self.id, self._token, self.fence, checkpoint=checkpoint, within=within)
        except LeaseLost:
            self._told_lost(self._api.retry.on_event)
            raise
        self._prolong(view, sent_at)

    def save_checkpoint(self, value: Any) -> None:
        """Keeps progress (any JSON, at most 64 KiB) for whoever runs next, should this process vanish."""
        self.renew(value)

    def derive_key(self, step: str) -> str:
        """The key for a system further down the road: the same on every attempt of this operation."""
        if step not in self._keys:
            self._keys.update(self._api.keys(self.id, [step]))
        return self._keys[step]

    def settle(self, outcome: Outcome, answer: AnswerInput | None) -> None:
        """Ends it. Sent until it is acknowledged, for as long as the lease may live."""
        within = max(self.remaining, 3 * self.renew_every)
        self._api.settle(self.id, self._token, self.fence, outcome, answer, within=within)

    def _renewing(self) -> None:
        while not self._ended.wait(self._pause()):
            try:
                self.renew()
            except (LeaseLost, RuntimeError):
                # Another's; or the client was closed meanwhile, as one is when its last effect has ended.
                return
            except (SemelError, httpx.HTTPError):
                # No answer in time. The deadline stands, and the next turn may do better.
                continue

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()


class Operation:
    """What `with semel.operation(…)` gives: an answer there is already, or a lease to do it under."""

    def __init__(self, lease: Lease | None, value: Any, *, replayed: bool) -> None:
        self.lease = lease
        """`None` where it was done before, and where the server doesn't enforce the scope."""
        self.value = value
        """What an earlier run returned, where `replayed`; else what `complete` was given."""
        self.replayed = replayed
        """Whether there is nothing left to do."""

    def complete(self, value: Any) -> None:
        """The answer to keep; recorded when the block ends."""
        if self.replayed:
            raise SemelError("it was done before: its answer is fixed")
        self.value = value


class Decorator(Protocol):
    """What `idempotent` gives: the function keeps its signature."""

    def __call__(self, function: Callable[P, T], /) -> Callable[P, T]:
        """The function that runs once."""


class Semel:
    """Over the protocol API of a sidecar: `Semel("http://127.0.0.1:8080/_semel")`. One may be shared by all threads."""

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
        http: httpx.Client | None = None,
        api: Api | None = None,
    ) -> None:
        self.api = api or Api(url, token=token, retry=retry, budget=budget, http=http)
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
    ) -> Decorator:
        """Makes a function run once for each key: a text with the names of arguments, such as `charge-{order}`, or a
        function of the arguments.

        All arguments are the payload, unless `payload` says what counts. Everybody gets what the first run returned:
        as the function's annotation says, else as JSON gives it back. `encode` and `decode` are for other types.
        """

        def wrap(function: Callable[P, T]) -> Callable[P, T]:
            if inspect.iscoroutinefunction(function):
                raise TypeError(f"{function.__name__} is a coroutine function: use AsyncSemel")

            codec = codec_for(function, encode, decode)
            key_for = key_of(function, key)
            payload_of = None if payload is None else reader(function, payload)

            @functools.wraps(function)
            def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
                asked = bound(function, args, kwargs) if payload_of is None else payload_of(*args, **kwargs)

                def effect(_: Lease | None) -> T:
                    return function(*args, **kwargs)

                own_key = key_for(*args, **kwargs)
                found = self._run(scope, own_key, effect, codec, payload=asked, terms=terms)
                return found.value

            return wrapped

        return wrap

    def run(
        self,
        scope: str,
        key: str,
        effect: Callable[[Lease | None], T],
        *,
        payload: Any = NOTHING,
        terms: Terms | None = None,
        fingerprint: str | None = None,
        encode: Callable[[T], Any] | None = None,
        decode: Callable[[Any], T] | None = None,
    ) -> Result[T]:
        """Runs `effect` unless it was done; the lease is `None` where the server doesn't enforce the scope.

        `fingerprint` is a digest of your own in place of the payload: 16 to 64 bytes in hexadecimal digits.

        Raises what the effect raised; `EffectFailed` where an earlier run failed for good; `Conflict`, `InDoubt`,
        `GaveUp`; `LeaseLost` and `Unrecorded` where it ran and that isn't recorded.
        """
        codec = codec_for(effect, encode, decode)
        return self._run(scope, key, effect, codec, payload=payload, terms=terms, fingerprint=fingerprint)

    def _run(
        self,
        scope: str,
        key: str,
        effect: Callable[[Lease | None], T],
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
            view, lease = self.admit(request)
            if view["status"] == "unprotected":
                with running_under(None):
                    return Result(effect(None), view, replayed=False)
            if lease is None:
                return Result(value_of(view, codec.decode), view, replayed=True)
            with lease:
                value = self._effect(lease, effect, terms)
                return self._complete(lease, value, view, codec)

    @contextmanager
    def operation(
        self, scope: str, key: str, *, payload: Any = NOTHING, terms: Terms | None = None
    ) -> Iterator[Operation]:
        """The same as a block: look whether it was `replayed`, else do it and say `complete(value)`."""
        terms = merged(terms, self.terms)
        request = claim_request(scope, key, payload, terms, tenant=self.tenant, actor=self.actor)
        with naming(key):
            view, lease = self.admit(request)
            earlier = value_of(view, identity_function) if view["status"] in ENDED else None
        if lease is None:
            with running_under(None):
                yield Operation(None, earlier, replayed=view["status"] != "unprotected")
            return
        with lease:
            done = Operation(lease, None, replayed=False)
            try:
                with running_under(lease):
                    yield done
            except BaseException as error:
                self._fail(lease, error, terms)
                raise
            self._complete(lease, done.value, view, JSON)

    def admit(self, request: ClaimRequest) -> tuple[ClaimView, Lease | None]:
        """An answer, or a lease that is still good when its effect starts."""
        for _ in range(10):
            try:
                view, since = self.api.claim(request)
            except (SemelError, httpx.HTTPError, RuntimeError):
                raise
            except BaseException:
                # A signal, such as the time limit of a task queue.
                self._abandon(request)
                raise
            if view["status"] != "claimed":
                return view, None
            lease = Lease(self.api, view, since)
            if self._may_start(lease):
                return view, lease
            # The reply was so late that the lease had lapsed: ask anew.
            request = {**request, "token": new_token()}
        raise LeaseLost("every lease had lapsed before its answer came")

    def _abandon(self, request: ClaimRequest) -> None:
        """Releases what a claim may have won that was interrupted."""
        with suppress(Exception):
            reply = self.api.send("POST", "v1/claims", asked_again(request), within=ABANDONING / 2)
            view = claim_view(reply)
            if view["status"] == "claimed":
                Lease(self.api, view, reply.sent_at).settle("release", None)

    def _may_start(self, lease: Lease) -> bool:
        """Whether its deadline is still to come. One that was won past it is renewed, once (P30)."""
        try:
            if lease.remaining <= 0:
                lease.renew()
        except LeaseLost:
            return False
        if lease.remaining > 0:
            return True
        # The renewal's answer was late too. Nothing was started, so letting go is legal.
        with suppress(ProblemError):
            lease.settle("release", None)
        return False

    def _effect(self, lease: Lease, effect: Callable[[Lease | None], T], terms: Terms) -> T:
        try:
            with running_under(lease):
                return effect(lease)
        except BaseException as error:
            self._fail(lease, error, terms)
            raise

    def _fail(self, lease: Lease, error: BaseException, terms: Terms) -> None:
        """Records what an error says. That it can't be recorded must not hide the error itself, unless it is a failure
        for good: one that isn't kept is none, and others may be told otherwise."""
        outcome, answer = outcome_of(error, terms)
        try:
            lease.settle(outcome, answer)
        except (SemelError, httpx.HTTPError) as second:
            if outcome == "fail":
                raise not_kept(second, answer) from error
            error.__context__ = second
        if outcome == "fail":
            raise EffectFailed((answer or {}).get("body"), replayed=False) from error

    def _complete(
        self,
        lease: Lease,
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
            lease.settle("complete", answer)
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

    def close(self) -> None:
        """Closes the connections."""
        self.api.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def current_lease() -> Lease | None:
    """The lease under which the code that asks is running; `None` where the server doesn't enforce its scope.

    `SemelError` outside of anything that runs under a key.
    """
    return current(Lease, "current_async_lease")
