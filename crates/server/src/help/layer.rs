//! Help for the codes of the idempotency layer.

use semel::core::Code;

use super::{Help, help};

/// One help text for each code of the layer.
#[rustfmt::skip]
pub(super) const HELP: &[Help] = &[
    help(Code::KeyRequired,
        "The route requires a key, and the request has none. Nothing was started.",
        "Send `Idempotency-Key` with a unique value, such as a UUID. Create it once for the \
         operation, before the first attempt, and use it for all retries.",
        "A route requires keys because of `require_key` or profile `acp`. The member `keyRules` of \
         the problem has where the key belongs, and its rules."),
    help(Code::KeyInvalid,
        "The key is empty, too long, has invalid characters or another form than the route takes, \
         carries no time or one in the future although the route limits the age of keys, or is \
         sent more than once. With profile `repeatable`, `Repeatability-First-Sent` is missing or \
         malformed. Nothing was started.",
        "Send exactly one header with 1 to 255 of `A-Z a-z 0-9 _ - . :`, bare or in quotation \
         marks. The `detail` of the problem names the broken rule, and its member `keyRules` has \
         all rules of the route.",
        "`keys` widens the rules for keys; `key_form` and `key_age` narrow them. If a client and a \
         gateway both add a key, remove one of them."),
    help(Code::KeyTooOld,
        "The route limits the age of keys, and this one was made longer ago: its record may be \
         gone, so that the operation could run twice. Nothing was started.",
        "Find out what became of the operation. Only if it did not happen, send it with a new key. \
         The member `keyRules` of the problem has the limit as `maxAge`.",
        "The limit is `key_age` of the route, or `retention` with profile `repeatable`. If keys are \
         refused that were just made, compare the clocks of the clients with this server's."),
    help(Code::PayloadInvalid,
        "The body claims to be JSON, but it cannot be read in exactly one way: it has a \
         duplicate member, a number beyond 2^53−1 or with more digits than a double holds, more \
         than 64 levels, or is not JSON. Nothing was started.",
        "Correct the body. Send large numbers as strings.",
        "A route can compare bodies by their bytes instead (`Compare::Bytes`; sidecar: \
         `fingerprint.body = \"bytes\"`), unless the key is in the body."),
    help(Code::TenantRequired,
        "The route has tenants, and the request names none, or the name of the tenant or the \
         caller is invalid (too long, control characters). Nothing was started.",
        "Authenticate, or send the header that names the tenant.",
        "Check where the route reads the tenant from, and whether the proxy in front still sends \
         it."),
    help(Code::TtlInvalid,
        "`X-Idempotency-TTL` is not a whole number of milliseconds of at least 1. Nothing was \
         started.",
        "Correct the header, or leave it out.",
        ""),
    help(Code::BodyBroken,
        "The connection broke before the body was complete. Nothing was started.",
        "Retry with the same key.",
        ""),
    help(Code::BodySlow,
        "The body did not arrive in time. Nothing was started.",
        "Retry with the same key.",
        "The limit is `body_time` of the route."),
    help(Code::BodyTooLarge,
        "The body of a request with a key must be read completely to be compared, and this one \
         exceeds the limit of the route. Nothing was started.",
        "Send a smaller body, or upload the data first and send a reference.",
        "The limit is `max_body` of the route. It applies to requests without a key only if the \
         key may be in the body or a signature must be checked. The sidecar limits all bodies by \
         `listener.max_body`."),
    help(Code::NoRoom,
        "Bodies of requests with a key are buffered in memory, and the buffer of the process or \
         of this caller is full. Nothing was started.",
        "Retry with the same key after `Retry-After`.",
        "The limit is `limits.buffered`, of which each tenant and principal has a share."),
    help(Code::QuotaExceeded,
        "This tenant, principal or address has kept as many new keys, or as many bytes of \
         responses, as its quota allows. Nothing was started. Keys that the store has are still \
         answered.",
        "Retry with the same key later: the quota frees up evenly over its window.",
        "The quotas are `limits.tenant_keys`, `limits.tenant_stored` and the same for principals \
         and addresses, over `limits.quota_window`."),
    help(Code::UnaryOnly,
        "A gRPC call with a key streams its requests or uses gRPC-Web. Nothing was started.",
        "Call without a key, or use a unary call.",
        "Put the layer behind the proxy that translates gRPC-Web."),
    help(Code::PathAmbiguous,
        "Services can read the path in different ways, to which different rules apply: it has \
         `//`, `.` or `..` as a segment, `;`, `\\`, or an escaped delimiter such as `%2F`. \
         Nothing was started.",
        "Send the path in its normal form.",
        "If such paths are intended, cover them by one route: `/files/{*rest}` matches every \
         reading."),
    help(Code::WebhookUnverified,
        "The signature of a webhook is invalid or too old. Nothing was started.",
        "Check the secret and the clock.",
        "During a rotation, configure both the old and the new secret."),
    help(Code::Conflict,
        "This key was already used with another payload. The earlier request stays valid, and \
         this one did not run.",
        "Do not retry this request. Use a new key for a new operation. If it should be the same \
         request, find what changes between two attempts: a timestamp, a random id, another \
         token.",
        "`payload` (sidecar: `fingerprint.exclude`) excludes members that change on every \
         attempt. For many conflicts, see [the runbook](../runbooks/SemelMismatchStorm.md)."),
    help(Code::InFlight,
        "A request with this key is running. This one started nothing.",
        "Retry with the same key after `Retry-After`. You get the response of the running \
         request.",
        "The profile and the policy decide whether a duplicate waits, and for how long. If a key \
         stays in this state, use [`semel keys inspect`](../cli.md#keys)."),
    help(Code::TooManyWaiters,
        "The maximum number of requests already waits: 10 for this key, 1,024 in this process or \
         512 of this tenant, by default. This one started nothing.",
        "Retry with the same key after `Retry-After`.",
        "A client may retry without pause, or an effect may hang: see [the \
         runbook](../runbooks/SemelWaitTimeouts.md)."),
    help(Code::InDoubt,
        "An earlier run of this request crashed or got no reply, and must not be repeated, \
         because its policy is `hold`, it has no attempts left, or it reported an unknown \
         outcome. It is unknown whether the request took effect. It does not run again until an \
         operator resolves it.",
        "Do not use a new key, because that could run the operation twice. Ask the operator of \
         the service, or retry later with the same key.",
        "Find out in the downstream system what happened, then use `semel keys resolve \
         --complete` or `--release` ([how](../cli.md#keys), [what it \
         means](../concepts.md#in-doubt))."),
    help(Code::StoreUnavailable,
        "The store did not answer, or the circuit breaker is open. Nothing was started.",
        "Retry with the same key after `Retry-After`.",
        "See [the runbook](../runbooks/SemelStoreUnavailable.md)."),
    help(Code::RecordUnreadable,
        "The record of this key cannot be read, because it is damaged or a newer version wrote \
         it. It is unknown whether an earlier request took effect. Nothing was started, and the \
         key does not run again.",
        "Do not use a new key, because that could run the operation twice. Ask the operator of \
         the service, or retry later with the same key.",
        "The log has the cause. After a downgrade, finish the [upgrade](../upgrades.md). If the \
         record is damaged, find out in the downstream system what happened. Then restore the \
         record from a [backup](../backup.md), or remove it from the store and let the caller \
         retry."),
    help(Code::AnswerErased,
        "This key was used before. What its request left, the stored response or a checkpoint, was \
         erased since: the key that it was encrypted with is destroyed. Nothing was started, and \
         the key does not run again until its record expires.",
        "Do not retry, and do not use a new key for the same operation, because that could run it \
         twice. The response cannot be had any more.",
        "Somebody erased the data of this tenant or subject: the audit trail has `admin.erase_data`. \
         See [erase stored responses](../encryption.md#erase-a-tenant-or-a-person)."),
    help(Code::AnswerExpired,
        "This key was answered before. The stored response was kept for the `answer_retention` of \
         its route, which is over; the record of the key is kept for longer. Nothing was started, \
         and the key does not run again until its record expires.",
        "Do not retry, and do not use a new key for the same operation, because that could run it \
         twice. Ask the service for the result in another way.",
        "Callers retry later than `answer_retention` allows. If they should get the response, set it \
         to a longer time, or leave it out. See [how long answers are \
         kept](../how-to/keep-answers-shorter.md)."),
    help(Code::BodyUnavailable,
        "This key has a stored response. Its body is in a bucket, which does not answer now. \
         Nothing was started.",
        "Retry with the same key after `Retry-After`. You get the first response. Do not use a \
         new key, because that would run the operation twice.",
        "Check whether this node can reach the bucket of `store.body_store` with its \
         credentials. See [choosing a store](../choosing-a-store.md)."),
    help(Code::Late,
        "The claim succeeded so late that its lease could have expired before the effect. \
         Nothing was started.",
        "Retry with the same key.",
        "The store is slow, or the process was paused. A lease of a few seconds is too short for \
         a distant store."),
    help(Code::LeaseLost,
        "This run lost its lease, and another run may have taken over. Its outcome is not the \
         response of the key.",
        "Retry with the same key. You get the response of the current owner.",
        "Renewals failed for a whole lease. Check the latency of the store and pauses of the \
         process. Effects with several steps should check `lease.is_lost()` between them."),
    help(Code::Unrecorded,
        "The effect ran, but its outcome could not be written to the store.",
        "Retry with the same key. Under `takeover` the effect may run again; under `hold` the \
         key is in doubt.",
        "See [the runbook](../runbooks/SemelUnrecorded.md)."),
    help(Code::EffectPanicked,
        "The handler panicked. Under `takeover` the key is free; under `hold` it is in doubt.",
        "Retry with the same key.",
        "The log has the panic."),
    help(Code::AnswerBroken,
        "The body of the response broke off. Under `takeover` the key is free; under `hold` it \
         is in doubt.",
        "Retry with the same key.",
        "The service closes connections within its responses, because of a crash or a timeout."),
    help(Code::ShutDown,
        "The process ended before the request. It is unknown whether the request had started.",
        "Retry with the same key. Another process answers once the lease has expired. Under \
         `takeover` the effect may run again; under `hold` the key is in doubt.",
        ""),
    help(Code::Policy,
        "The settings of the route contradict each other, or a handler needs a lease on a route \
         that the layer does not cover. Nothing was started.",
        "The caller cannot fix this.",
        "The log names the setting. `semel config check` finds errors in the settings of the \
         sidecar."),
    help(Code::AnswerUnreadable,
        "The record of this key has a response that cannot be read, because it has another type \
         or a newer version wrote it. The effect does not run again.",
        "The caller cannot fix this.",
        "Was there a downgrade, or did the type of the response change? [`semel keys inspect \
         --answer`](../cli.md#keys) shows it."),
];
