//! Help for the codes of the APIs, the sidecar and the gateway.

use semel::core::Code;

use super::{Help, help};

/// One help text for each code of the interfaces.
#[rustfmt::skip]
pub(super) const HELP: &[Help] = &[
    help(Code::RequestInvalid,
        "The body or a parameter of an API call is malformed. Nothing was changed.",
        "Correct it; `detail` names the place. The formats are in [the protocol API](../api.md), \
         [jobs](../jobs.md) and [the admin API](../admin.md).",
        ""),
    help(Code::Unauthorized,
        "The request has no valid token or certificate. Nothing was changed.",
        "Send your token as `Authorization: Bearer …`.",
        "`api.tokens_file`, `admin.operators_file` and `admin.token_file` control access. Entries \
         may have expired."),
    help(Code::Forbidden,
        "The token belongs to another tenant than the request names. Or the listener has no \
         credential, and the request came for a host name other than a loopback name. Nothing \
         was changed.",
        "Leave the tenant out, or use the token of that tenant. Without a credential, call \
         `127.0.0.1` or `localhost`.",
        "To accept other host names, the listener needs a credential: `api.access = \"tokens\"` \
         or `admin.token_file`."),
    help(Code::NotFound,
        "The record, job or path does not exist, or it has expired.",
        "Check the id. An expired record counts as absent.",
        ""),
    help(Code::MethodNotAllowed,
        "The path exists, but not with this method.",
        "The `Allow` header lists the methods.",
        ""),
    help(Code::MediaTypeUnsupported,
        "The `Content-Type` of the body is not supported here.",
        "Send `application/json`.",
        ""),
    help(Code::RequestRefused,
        "The request is well formed, but a rule forbids it, such as a limit or the state of the \
         record. Nothing was changed.",
        "`detail` names the rule.",
        ""),
    help(Code::MovedOn,
        "The record has changed since it was read: its fence is different, or it is not in doubt \
         (resolve) or not running (unlock). Nothing was changed.",
        "Read the record again, and decide again.",
        ""),
    help(Code::JobsQueueFull,
        "The maximum number of jobs of this kind or of this client is waiting. Nothing was \
         enqueued.",
        "Submit it again with the same key after `Retry-After`.",
        "Raise `jobs.max_queued_per_kind` or `jobs.max_unfinished_per_client`, or add workers."),
    help(Code::JobsLeaseLost,
        "The lease of the job has expired, and another worker has the job or it has ended. The \
         report of this worker changes nothing.",
        "Stop working on the job. Send a heartbeat at every third of the lease.",
        ""),
    help(Code::JobsNotDead,
        "Only dead letters can be retried, and only while no other job has their key. Nothing \
         was changed.",
        "Check the state of the job.",
        ""),
    help(Code::TooManyStreams,
        "The maximum number of event streams is open.",
        "Close one, or retry later.",
        ""),
    help(Code::AuditUnavailable,
        "An operator's change must be in the audit trail before it is made, and the trail cannot \
         be written. Nothing was changed. An erasure is an exception: it changes the files first \
         and fails if a copy cannot be reached. A retry is safe.",
        "Retry once the trail can be written.",
        "Check the disk of `audit.file`: it may be full or read-only. For an erasure, also check \
         the copies in PostgreSQL and NATS; the log names the failing one."),
    help(Code::BodyNotKept,
        "The request was completed earlier, but its response was too large to keep, or was a \
         stream. It does not run again.",
        "The operation is complete, with the status of this response (200 for any success with \
         profile `intake`). Read its result by an ordinary request.",
        "`max_answer` limits the size of kept responses. A bucket can keep large ones \
         (`store.body_store`)."),
    help(Code::UpstreamUnreachable,
        "The service could not be reached. Nothing was sent, and the key is free.",
        "Retry, with the same key if there is one. It is safe.",
        "Check whether the service runs and whether `upstream.urls` is right. `semel doctor` \
         checks both."),
    help(Code::UpstreamFull,
        "The number of requests with a key at the service has reached `limits.running`, and none \
         of them ended in time. Nothing was sent, and the key is free.",
        "Retry with the same key after `Retry-After`.",
        "Check whether the service is slow. Requests of disconnected clients count too. The \
         limit is `limits.running`."),
    help(Code::UpstreamTimeout,
        "The request was sent, and no response came within `upstream.response_timeout`. It is \
         unknown whether the request took effect; the service may still be working on it.",
        "`retryable` tells whether a retry is safe. With a key under `takeover`, retry with the \
         same key. Under `hold` the key is in doubt. Without a key, a retry may run the \
         operation twice.",
        "For slow responses, raise `response_timeout`. For effects that cannot be undone, use \
         `crash = \"hold\"`."),
    help(Code::UpstreamBroken,
        "The request was sent, and the connection broke before the response. It is unknown \
         whether the request took effect.",
        "See [`upstream_timeout`](upstream_timeout.md).",
        "The service crashed, or closed an idle connection that was just used again. Keep \
         `upstream.idle_timeout` below the idle timeout of the service."),
    help(Code::RequestNotForwardable,
        "Requests of this method or form, such as `CONNECT`, are not forwarded. Nothing was \
         sent.",
        "Send a request that a reverse proxy can forward.",
        ""),
    help(Code::RequestTooLarge,
        "The body is larger than `listener.max_body`. With a key, nothing was sent. Without a \
         key, the service may have received a part of it.",
        "Send a smaller body.",
        "The limit is `listener.max_body`."),
    help(Code::RequestSlow,
        "The body of a request without a key paused for longer than `listener.body_timeout`. The \
         service may have received a part of it.",
        "A retry may run the operation twice. A key makes it safe, because the complete body is \
         read before anything is sent.",
        "The limit is `listener.body_timeout`."),
    help(Code::RequestBroken,
        "The body of a request without a key broke off. The service may have received a part of \
         it.",
        "See [`request_slow`](request_slow.md).",
        ""),
    help(Code::Overloaded,
        "The process has reached its limit of concurrent requests or connections. Nothing was \
         started.",
        "Retry after `Retry-After`, with the same key if there is one.",
        "The limits are `limits.requests` and `limits.connections`; `semel_limit_used` shows \
         their usage. Check whether the service is slow. If one caller sends too much, limit its \
         rate with `limits.tenant_rate`, `limits.principal_rate` or `limits.address_rate`."),
    help(Code::TooManyRequests,
        "This tenant, principal or address has reached its share of concurrent requests, or of \
         requests with a key at the service. Requests of disconnected clients count too. Nothing \
         was sent to the service.",
        "Wait until some of your requests end, then retry with the same key.",
        "The shares are `limits.tenant_share`, `limits.principal_share` and \
         `limits.address_share`. Use 100 if there is only one caller of a kind."),
    help(Code::ReplayAuthUnavailable,
        "The response is stored, and the service that decides whether this caller may still have \
         it did not answer. Nothing was started.",
        "Retry with the same key.",
        "The service is set with `replay_auth_url`; see its log."),
    help(Code::RateLimited,
        "This tenant, principal or address exceeds its request rate. At the admin API, ten sign-ins \
         from this address have failed within a minute. Nothing was started.",
        "Retry after `Retry-After`, with the same key if there is one.",
        "The rates are `limits.tenant_rate`, `limits.principal_rate` and `limits.address_rate`. The \
         audit trail has failed sign-ins as `admin.sign_in.failed`."),
    help(Code::TokenRequired,
        "The tenant or the caller comes from a token, and the token is missing, expired or \
         invalid. Nothing was started.",
        "Get a new token and send it as `Authorization: Bearer …`. `WWW-Authenticate` names the \
         problem of the old one.",
        "Check `jwt.key_file`, `jwt.algorithm`, `jwt.issuer`, `jwt.audience` and the clocks \
         (`jwt.leeway`)."),
    help(Code::RequestAmbiguous,
        "The request has two lengths, or its head is too long to check. Nothing was sent to the \
         service, and the connection is closed.",
        "Send either one `Content-Length` or `Transfer-Encoding: chunked`.",
        "An intermediary that adds a second length allows request smuggling: fix it."),
    help(Code::HeaderNameAmbiguous,
        "A header name has an underscore, which many services read as a hyphen. A client could \
         forge a header that only the proxy in front may set. Nothing was sent to the service.",
        "Send the header with a hyphen, or leave it out.",
        "Set `listener.allow_underscores = true` if the service distinguishes the two."),
    help(Code::LeaseNotHeld,
        "The lease has expired and another owner may have taken over, or the run is already \
         settled. Nothing was changed.",
        "Stop the work, and do not settle it. Claim again with the same key to get the outcome.",
        "The lease is too short for the work, or the worker paused for longer than its lease: \
         check `lease_ms` and renewals."),
    help(Code::Held,
        "The call has the same identity as an earlier one (the arguments that the tool's rule \
         names), and its other arguments differ. It may be the earlier call in other words. \
         Nothing was done.",
        "If it is the same call in other words, call again with `newCall: false` for the earlier \
         result. If it is a second call that is meant, use `newCall: true` or a new key.",
        "`semel_held_total` counts these. If calls that are really different are held, name more \
         arguments in `identity`, or fewer in `ignore`."),
    help(Code::NotSent,
        "The gateway did not send the call to the tool. Nothing was done.",
        "Call again with the same arguments and the same key.",
        "Check whether the server of the tool runs. The log of the gateway has the cause."),
    help(Code::Lost,
        "The connection to the server of the tool ended before its answer. The tool may run \
         again.",
        "Call again with the same arguments and the same key.",
        "The server of the tool crashed or was restarted. For tools that must not run again, use \
         `crash = \"hold\"`."),
    help(Code::Refused,
        "The namespace or the key of this call is invalid. Nothing was done.",
        "Correct what the text names.",
        ""),
    help(Code::NotKept,
        "The call was completed earlier, but its result was too large to keep.",
        "Do not call again for the result. Read it in another way.",
        "`max_answer` limits the size of kept results."),
    help(Code::Failed,
        "An operator recorded that the call failed and had no effect.",
        "It does not run again with this key. A new attempt needs a new key.",
        ""),
    help(Code::NoResult,
        "An operator recorded that the call took effect, or a lookup with another tool showed it. \
         Its own result is not known.",
        "Do not call again for it.",
        ""),
];
