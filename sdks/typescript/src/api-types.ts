// Made by tools/generate.mjs from spec/openapi.json.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export type components = {
    schemas: {
        /** @description An answer, to be kept and replayed. One of `body`, `body_base64` and `body_omitted_bytes`, or none. */
        AnswerInput: {
            /** @description The body, as JSON. Kept as it is written, byte for byte. */
            body?: unknown;
            /** @description The body, as bytes in base64. */
            body_base64?: string;
            /**
             * Format: int64
             * @description The body is too large to send: how many bytes it has. Replays say that it was not kept.
             */
            body_omitted_bytes?: number;
            /** @description Headers to keep, where the answer is one of HTTP. */
            headers?: components["schemas"]["Header"][];
            /**
             * Format: int64
             * @description An HTTP status, where the answer is one of HTTP.
             */
            status?: number;
        };
        /** @description An answer from a record. At most one of `body`, `body_base64` and `body_omitted_bytes`. */
        AnswerView: {
            /** @description The body, where it is JSON: as it was first given, byte for byte. */
            body?: unknown;
            /** @description The body in base64, where it isn't JSON. */
            body_base64?: string;
            /**
             * Format: int64
             * @description The body was too large to keep, or a stream: how long it was; 0 where that isn't known.
             */
            body_omitted_bytes?: number;
            /** @description The headers that were kept. */
            headers?: components["schemas"]["Header"][];
            /**
             * Format: int32
             * @description The HTTP status, where the answer is one of HTTP.
             */
            status?: number;
        };
        /**
         * @description What to do while another runs the same key.
         * @enum {string}
         */
        Busy: "wait" | "refuse";
        /** @description Which key, in which scope, of which tenant. */
        ClaimRequest: {
            /** @description Who asks, for the audit trail alone. */
            actor?: string;
            /** @description Names of keys for systems further down the road, to be given with the lease. */
            derive?: components["schemas"]["Name"][];
            /** @description In place of the payload: a digest of it, made by the caller. */
            fingerprint?: string;
            /** @description The caller's key: the same for every retry. */
            key: string;
            /** @description What is asked for: any JSON. The same key with another payload is refused. */
            payload?: unknown;
            /** @description Changes to the policy. */
            policy?: components["schemas"]["Overrides"];
            /** @description Whether the caller has asked before with this key: spares the store a write that would lose. */
            retry?: boolean;
            /** @description What is done, such as `charge`. */
            scope: string;
            /** @description The tenant. Left out, it is the token's own. */
            tenant?: string;
            /**
             * @description 128 random bits of the caller's: a claim that is sent again with the same token after a lost reply gets
             *     the same lease.
             */
            token?: string;
        };
        /** @description A claim, as its answer or a look shows it. */
        ClaimView: {
            /** @description The answer, where `status` is `completed` or `failed`. */
            answer?: components["schemas"]["AnswerView"];
            /**
             * Format: int32
             * @description Runs begun since the key was last free.
             */
            attempt?: number;
            /**
             * Format: int64
             * @description The fence of the current or last lease.
             */
            fence?: number;
            /** @description The key's hash: what to name the claim by from here on. */
            id: string;
            /** @description The lease, where `status` is `claimed`. */
            lease?: components["schemas"]["LeaseView"];
            /** @description When the key was first claimed, on the store's clock. */
            original_time?: string;
            /**
             * Format: int32
             * @description The how-manieth replay by this server; absent where none is counted.
             */
            replay_number?: number;
            /** @description Whether an earlier run answered. */
            replayed: boolean;
            /** @description When the answer was stored, on the store's clock. */
            settled_time?: string;
            /** @description Where it stands. */
            status: components["schemas"]["Status"];
            /**
             * Format: int64
             * @description How long the server held this request. A deadline counts from when the request was sent, plus this.
             */
            took_ms: number;
        };
        /**
         * @description What becomes of the key should its owner vanish.
         * @enum {string}
         */
        Crash: "takeover" | "hold";
        /** @description One header. */
        Header: {
            /** @description Its name. */
            name: string;
            /** @description Its value. */
            value: string;
        };
        /** @description Asks for keys of systems further down the road. */
        KeysRequest: {
            /** @description One name for each step, such as `psp`. */
            names: components["schemas"]["Name"][];
        };
        /** @description Keys for systems further down the road. */
        KeysView: {
            /** @description Of the claim. */
            id: string;
            /** @description The keys, by name. */
            keys: {
                [key: string]: string;
            };
        };
        /** @description The right to run, until a time. */
        LeaseView: {
            /**
             * Format: int32
             * @description 1, or more where earlier owners vanished.
             */
            attempt: number;
            /** @description What the last owner kept, where it vanished after that. */
            checkpoint?: unknown;
            /** @description The same in base64, where it isn't JSON. */
            checkpoint_base64?: string;
            /** @description The stored crash policy, which may be another than the one asked for. */
            crash: components["schemas"]["Crash"];
            /** @description Keys for systems further down the road, by the names asked for: the same on every attempt. */
            downstream_keys?: {
                [key: string]: string;
            };
            /**
             * Format: int64
             * @description How long you may still start things, from when the server answered; a margin is taken off already.
             */
            expires_in_ms: number;
            /**
             * Format: int64
             * @description Larger than that of any earlier lease of the key.
             */
            fence: number;
            /**
             * Format: int64
             * @description How often to renew.
             */
            renew_every_ms: number;
            /** @description The mark of the owner: a secret between you and the server. */
            token: string;
        };
        /** @description Which key to look up. The key goes in the body: addresses end up in logs. */
        LookupRequest: {
            /** @description The same, as the caller's own digest. */
            fingerprint?: string;
            /** @description The caller's key. */
            key: string;
            /** @description Where given, the record is shown only if it is of this payload. */
            payload?: unknown;
            /** @description What is done, such as `charge`. */
            scope: string;
            /** @description The tenant. Left out, it is the token's own. */
            tenant?: string;
        };
        /** @description A name of a downstream key, such as `psp`. */
        Name: string;
        /**
         * @description What became of the effect.
         * @enum {string}
         */
        Outcome: "complete" | "fail" | "release" | "retry" | "doubt";
        /** @description Changes to the policy for one claim, within what the server allows. What is left out is the server's choice. */
        Overrides: {
            /** @description Decided by the first claim, and stored. `takeover` is refused where the server says `hold`. */
            crash?: components["schemas"]["Crash"];
            /**
             * Format: int64
             * @description How long the owner may be silent before it counts as gone.
             */
            lease_ms?: number;
            /** @description What to do while another runs the same key. */
            on_busy?: components["schemas"]["Busy"];
            /**
             * Format: int64
             * @description How long the record lives after it was last written.
             */
            retention_ms?: number;
            /**
             * Format: int64
             * @description How long to wait at most; the server may wait less.
             */
            wait_ms?: number;
        };
        /** @description A problem document (RFC 9457). */
        ProblemDocument: {
            /** @description Of the claim that it is about. */
            claimId?: string;
            /** @description A stable word for it. */
            code: string;
            /** @description What happened, and what to do. */
            detail: string;
            /**
             * Format: int64
             * @description When asking again is worth it, in milliseconds.
             */
            retryAfterMs?: number;
            /** @description Whether the same request may get an answer later. */
            retryable: boolean;
            /**
             * Format: int32
             * @description The status of the answer.
             */
            status: number;
            /** @description What it is, in a few words. */
            title: string;
            /** @description `urn:semel:problem:` and the code. */
            type: string;
        };
        /** @description Keeps the lease, and a checkpoint with it. */
        RenewRequest: {
            /** @description Progress to keep for whoever runs next, should this owner vanish: any JSON, at most 64 KiB. */
            checkpoint?: unknown;
            /**
             * Format: int64
             * @description The lease's fence.
             */
            fence: number;
            /** @description The lease's token. */
            token: string;
        };
        /** @description A lease that was renewed. */
        RenewView: {
            /**
             * Format: int64
             * @description How long the owner may still start things, from when the server answered.
             */
            expires_in_ms: number;
            /** @description Of the claim. */
            id: string;
            /** @description `running`. */
            status: components["schemas"]["Status"];
            /**
             * Format: int64
             * @description How long the server held this request.
             */
            took_ms: number;
        };
        /** @description Ends the lease. */
        SettleRequest: {
            /** @description The answer to keep, with `complete` and `fail`. */
            answer?: components["schemas"]["AnswerInput"];
            /**
             * Format: int64
             * @description The lease's fence.
             */
            fence: number;
            /** @description What became of the effect. */
            outcome: components["schemas"]["Outcome"];
            /** @description The lease's token. */
            token: string;
        };
        /** @description A claim that was settled. */
        SettleView: {
            /**
             * Format: int32
             * @description 1, or more where earlier owners vanished.
             */
            attempt: number;
            /**
             * Format: int64
             * @description Of the lease.
             */
            fence: number;
            /** @description Of the claim. */
            id: string;
            /** @description What the record says now. `running` where a release could not be recorded: the lease lapses by itself. */
            status: components["schemas"]["Status"];
        };
        /**
         * @description Where a claim stands.
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
