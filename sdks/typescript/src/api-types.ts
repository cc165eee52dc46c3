// Made by tools/generate.mjs from spec/openapi.json.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export type components = {
    schemas: {
        /**
         * @description An answer to keep and replay. It has at most one of `body`, `body_base64` and
         *     `body_omitted_bytes`.
         */
        AnswerInput: {
            /** @description The body as JSON, which is kept byte for byte. */
            body?: unknown;
            /** @description The body as base64. */
            body_base64?: string;
            /**
             * Format: int64
             * @description The size of a body that is too large to send. Replays report that it was not kept.
             */
            body_omitted_bytes?: number;
            /** @description The headers to keep, if the answer is an HTTP response. */
            headers?: components["schemas"]["Header"][];
            /**
             * Format: int64
             * @description The HTTP status, if the answer is an HTTP response.
             */
            status?: number;
        };
        /** @description An answer from a record. It has at most one of `body`, `body_base64` and `body_omitted_bytes`. */
        AnswerView: {
            /** @description The body, if it is JSON, byte for byte as it was given. */
            body?: unknown;
            /** @description The body as base64, if it is not JSON. */
            body_base64?: string;
            /**
             * Format: int64
             * @description The size of a body that was too large to keep or was a stream; 0 if the size is unknown.
             */
            body_omitted_bytes?: number;
            /** @description The headers that were kept. */
            headers?: components["schemas"]["Header"][];
            /**
             * Format: int32
             * @description The HTTP status, if the answer is an HTTP response.
             */
            status?: number;
        };
        /**
         * @description What a request does while another request with the same key is running.
         * @enum {string}
         */
        Busy: "wait" | "refuse";
        /** @description The key to claim, with its scope and tenant. */
        ClaimRequest: {
            /** @description The caller's name, for the audit trail only. */
            actor?: string;
            /** @description Names of downstream keys to return with the lease. */
            derive?: components["schemas"]["Name"][];
            /** @description A digest of the payload, instead of the payload. */
            fingerprint?: string;
            /** @description The idempotency key, which is the same for every retry. */
            key: string;
            /** @description The payload of the operation, as any JSON. The same key with another payload is refused. */
            payload?: unknown;
            /** @description Overrides of the policy. */
            policy?: components["schemas"]["Overrides"];
            /** @description Whether this is a retry. It saves the store a write that would fail. */
            retry?: boolean;
            /** @description The kind of operation, such as `charge`. */
            scope: string;
            /** @description The tenant. Default: the tenant of the token. */
            tenant?: string;
            /**
             * @description 128 random bits. If the response to a claim is lost, the same claim with the same token gets
             *     the same lease.
             */
            token?: string;
        };
        /** @description A claim. */
        ClaimView: {
            /** @description The answer, if `status` is `completed` or `failed`. */
            answer?: components["schemas"]["AnswerView"];
            /**
             * Format: int32
             * @description The number of runs since the key was last free.
             */
            attempt?: number;
            /**
             * Format: int64
             * @description The fence of the current or last lease.
             */
            fence?: number;
            /** @description The id of the claim: a hash of the key. */
            id: string;
            /** @description The lease, if `status` is `claimed`. */
            lease?: components["schemas"]["LeaseView"];
            /** @description When the key was first claimed, by the store's clock. */
            original_time?: string;
            /**
             * Format: int32
             * @description The 1-based number of this replay by this server; absent if replays are not counted.
             */
            replay_number?: number;
            /** @description Whether the answer is that of an earlier run. */
            replayed: boolean;
            /** @description When the answer was stored, by the store's clock. */
            settled_time?: string;
            /** @description The state of the claim. */
            status: components["schemas"]["Status"];
            /**
             * Format: int64
             * @description How long the server processed this request. The lease counts from the time of sending plus
             *     this.
             */
            took_ms: number;
        };
        /**
         * @description What happens to a key if the process that runs its request crashes.
         * @enum {string}
         */
        Crash: "takeover" | "hold";
        /** @description A header. */
        Header: {
            /** @description Its name. */
            name: string;
            /** @description Its value. */
            value: string;
        };
        /** @description A request for downstream keys. */
        KeysRequest: {
            /** @description One name for each downstream step, such as `psp`. */
            names: components["schemas"]["Name"][];
        };
        /** @description Idempotency keys for downstream systems. */
        KeysView: {
            /** @description The id of the claim. */
            id: string;
            /** @description The keys, by name. */
            keys: {
                [key: string]: string;
            };
        };
        /** @description The exclusive right to run, until its expiry. */
        LeaseView: {
            /**
             * Format: int32
             * @description The attempt number: 1, or more if earlier owners crashed.
             */
            attempt: number;
            /** @description The checkpoint of the last owner, if it crashed. */
            checkpoint?: unknown;
            /** @description The checkpoint as base64, if it is not JSON. */
            checkpoint_base64?: string;
            /** @description The stored crash policy, which may differ from the requested one. */
            crash: components["schemas"]["Crash"];
            /**
             * @description Idempotency keys for downstream systems, by requested name. They are the same on every
             *     attempt.
             */
            downstream_keys?: {
                [key: string]: string;
            };
            /**
             * Format: int64
             * @description How long the owner may start further steps, counted from the response. It includes a safety
             *     margin.
             */
            expires_in_ms: number;
            /**
             * Format: int64
             * @description A number that is larger than the fence of any earlier lease of the key.
             */
            fence: number;
            /**
             * Format: int64
             * @description The interval for renewals.
             */
            renew_every_ms: number;
            /** @description The secret that identifies the owner. */
            token: string;
        };
        /** @description The key to look up. It is in the body, because URLs end up in logs. */
        LookupRequest: {
            /** @description A digest of the payload, instead of the payload. */
            fingerprint?: string;
            /** @description The idempotency key. */
            key: string;
            /** @description The payload. If it is set, a record with another payload is not shown. */
            payload?: unknown;
            /** @description The kind of operation, such as `charge`. */
            scope: string;
            /** @description The tenant. Default: the tenant of the token. */
            tenant?: string;
        };
        /** @description The name of a downstream key, such as `psp`. */
        Name: string;
        /**
         * @description The outcome of the effect.
         * @enum {string}
         */
        Outcome: "complete" | "fail" | "release" | "retry" | "doubt";
        /** @description Overrides of the policy for one claim, within the limits of the server. */
        Overrides: {
            /**
             * @description The crash policy, which the first claim of a key sets. `takeover` is refused if the server
             *     sets `hold`.
             */
            crash?: components["schemas"]["Crash"];
            /**
             * Format: int64
             * @description How long the owner may be silent before it counts as crashed.
             */
            lease_ms?: number;
            /** @description What the claim does while the key is running. */
            on_busy?: components["schemas"]["Busy"];
            /**
             * Format: int64
             * @description How long the record is kept after its last change.
             */
            retention_ms?: number;
            /**
             * Format: int64
             * @description The maximum wait. The server may wait less.
             */
            wait_ms?: number;
        };
        /** @description A problem document (RFC 9457). */
        ProblemDocument: {
            /** @description The id of the claim that the problem is about. */
            claimId?: string;
            /** @description The stable error code. */
            code: string;
            /** @description What happened, and what to do. */
            detail: string;
            /**
             * Format: int64
             * @description How long to wait before a retry, in milliseconds.
             */
            retryAfterMs?: number;
            /** @description Whether the same request can succeed later. */
            retryable: boolean;
            /**
             * Format: int32
             * @description The HTTP status of the response.
             */
            status: number;
            /** @description A short summary of the problem. */
            title: string;
            /** @description `urn:semel:problem:` and the code. */
            type: string;
        };
        /** @description Renews a lease, optionally with a checkpoint. */
        RenewRequest: {
            /** @description Progress for the next owner, if this one crashes: any JSON of at most 64 KiB. */
            checkpoint?: unknown;
            /**
             * Format: int64
             * @description The lease's fence.
             */
            fence: number;
            /** @description The lease's token. */
            token: string;
        };
        /** @description A renewed lease. */
        RenewView: {
            /**
             * Format: int64
             * @description How long the owner may start further steps, counted from the response of the server.
             */
            expires_in_ms: number;
            /** @description The id of the claim. */
            id: string;
            /** @description `running`. */
            status: components["schemas"]["Status"];
            /**
             * Format: int64
             * @description How long the server processed this request.
             */
            took_ms: number;
        };
        /** @description Settles a lease. */
        SettleRequest: {
            /** @description The answer to keep, for `complete` and `fail`. */
            answer?: components["schemas"]["AnswerInput"];
            /**
             * Format: int64
             * @description The lease's fence.
             */
            fence: number;
            /** @description The outcome of the effect. */
            outcome: components["schemas"]["Outcome"];
            /** @description The lease's token. */
            token: string;
        };
        /** @description A settled claim. */
        SettleView: {
            /**
             * Format: int32
             * @description The attempt number: 1, or more if earlier owners crashed.
             */
            attempt: number;
            /**
             * Format: int64
             * @description The fence of the lease.
             */
            fence: number;
            /** @description The id of the claim. */
            id: string;
            /**
             * @description The state of the record. It is `running` if a release could not be recorded; then the lease
             *     expires.
             */
            status: components["schemas"]["Status"];
        };
        /**
         * @description The state of a claim.
         * @enum {string}
         */
        Status: "claimed" | "unprotected" | "running" | "completed" | "failed" | "in_doubt" | "released";
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
};
export type $defs = Record<string, never>;
export type operations = Record<string, never>;

export type AnswerInput = components["schemas"]["AnswerInput"];
export type AnswerView = components["schemas"]["AnswerView"];
export type Busy = components["schemas"]["Busy"];
export type ClaimRequest = components["schemas"]["ClaimRequest"];
export type ClaimView = components["schemas"]["ClaimView"];
export type Crash = components["schemas"]["Crash"];
export type Header = components["schemas"]["Header"];
export type KeysRequest = components["schemas"]["KeysRequest"];
export type KeysView = components["schemas"]["KeysView"];
export type LeaseView = components["schemas"]["LeaseView"];
export type LookupRequest = components["schemas"]["LookupRequest"];
export type Name = components["schemas"]["Name"];
export type Outcome = components["schemas"]["Outcome"];
export type Overrides = components["schemas"]["Overrides"];
export type ProblemDocument = components["schemas"]["ProblemDocument"];
export type RenewRequest = components["schemas"]["RenewRequest"];
export type RenewView = components["schemas"]["RenewView"];
export type SettleRequest = components["schemas"]["SettleRequest"];
export type SettleView = components["schemas"]["SettleView"];
export type Status = components["schemas"]["Status"];
