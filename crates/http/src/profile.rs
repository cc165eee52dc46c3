//! [`Profile`]: presets for the conventions on which APIs differ.

use std::time::Duration;

use http::{Method, StatusCode};
use semel_core::KeyForm;

/// Whose conventions a route follows.
///
/// | | `Ietf` | `Stripe` | `Intake` | `Acp` | `Iceberg` | `Repeatable` |
/// |---|---|---|---|---|---|---|
/// | the key | a header | a header | a header | a header | a UUIDv7 | a UUID and the time of the first attempt |
/// | methods | POST, PATCH | POST, PATCH | POST, PATCH | POST, PATCH | POST, DELETE | POST, PATCH |
/// | key with another payload | 422 | 400 | 409 | 422 | 422 | 400 |
/// | still running | wait, then 409 | 409 at once | wait, then 503 | 409 at once | wait, then 503 | 409 at once |
/// | in doubt | 409 | 409 | 409 | 409 | 500 | 409 |
/// | replayed status | the original | the original | 200 for any success | the original | the original | the original |
/// | 409 | not stored | not stored | not stored | not stored | stored | not stored |
/// | 5xx | not stored | stored | not stored | not stored | not stored | not stored |
/// | no key | passes | passes | passes | 400 | passes | passes |
/// | store down | retry after 1 s | 1 s | 5 s | 1 s | 1 s | 1 s |
/// | errors | problem details | and an `error` member | and `ok`, an `error` member | and a `message`, with ACP's `type` | and an `error` member | and `Repeatability-Result` |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// The IETF draft on the Idempotency-Key header.
    #[default]
    Ietf,
    /// The behaviour of Stripe's API.
    Stripe,
    /// Intake forms for agents: replays answer 200.
    Intake,
    /// The Agentic Commerce Protocol.
    Acp,
    /// The REST catalog of Apache Iceberg.
    Iceberg,
    /// Repeatable Requests 1.0 (OASIS), as Azure's services have it.
    Repeatable,
}

/// The table above as data: one row per profile.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ProfileTerms {
    /// The profile of this row.
    pub profile: Profile,
    /// The name in configuration and logs.
    pub name: &'static str,
    /// The status for a key with another payload.
    pub mismatch: u16,
    /// Whether a duplicate waits for the running request, by default.
    pub waits: bool,
    /// The status for a duplicate that does not wait.
    pub in_flight: u16,
    /// The status for a duplicate that waited too long.
    pub waited_too_long: u16,
    /// The status for a key in doubt.
    pub in_doubt: u16,
    /// Statuses that say "not now" or "not you": they free the key.
    pub frees: &'static [u16],
    /// The covered methods, by default.
    pub methods: &'static [Method],
    /// The form of keys, by default.
    pub key_form: KeyForm,
    /// Whether the time of a key is in `Repeatability-First-Sent`, and the key in
    /// `Repeatability-Request-ID`.
    pub first_sent: bool,
    /// Whether responses announce the lifetime of keys, by default.
    pub announces: bool,
    /// Whether replays of a success answer 200 instead of the original status.
    pub replays_as_ok: bool,
    /// Whether 5xx responses are stored and replayed.
    pub keeps_5xx: bool,
    /// Whether a request without a key is refused, by default.
    pub requires_key: bool,
    /// Whether responses repeat the caller's key.
    pub echoes_key: bool,
    /// The shape of error documents.
    pub errors: ErrorShape,
    /// The shortest pause before a retry while the store is down.
    pub unavailable_pause: Duration,
}

/// The shape of error documents, in addition to the members of problem details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorShape {
    /// Problem details only.
    Problem,
    /// A `message` at the top level and a `type` of three values: Agentic Commerce Protocol.
    Flat,
    /// An `error` object with message, type and the status as code: Iceberg's `ErrorModel`.
    Catalog,
    /// `ok`, and an `error` object with type, code, message, retryable, retryAfterMs.
    Nested,
    /// An `error` object with Stripe's types.
    Stripe,
}

const IETF: ProfileTerms = ProfileTerms {
    profile: Profile::Ietf,
    name: "ietf",
    mismatch: 422,
    waits: true,
    in_flight: 409,
    waited_too_long: 409,
    in_doubt: 409,
    frees: &[401, 407, 408, 409, 425, 429],
    methods: &[Method::POST, Method::PATCH],
    key_form: KeyForm::Any,
    first_sent: false,
    announces: false,
    replays_as_ok: false,
    keeps_5xx: false,
    requires_key: false,
    echoes_key: false,
    errors: ErrorShape::Problem,
    unavailable_pause: Duration::from_secs(1),
};

/// One row per profile.
pub const PROFILES: [ProfileTerms; 6] = [
    IETF,
    ProfileTerms {
        profile: Profile::Stripe,
        name: "stripe",
        mismatch: 400,
        waits: false,
        keeps_5xx: true,
        errors: ErrorShape::Stripe,
        ..IETF
    },
    ProfileTerms {
        profile: Profile::Intake,
        name: "intake",
        mismatch: 409,
        waited_too_long: 503,
        replays_as_ok: true,
        errors: ErrorShape::Nested,
        unavailable_pause: Duration::from_secs(5),
        ..IETF
    },
    ProfileTerms {
        profile: Profile::Acp,
        name: "acp",
        waits: false,
        requires_key: true,
        echoes_key: true,
        errors: ErrorShape::Flat,
        ..IETF
    },
    ProfileTerms {
        profile: Profile::Iceberg,
        name: "iceberg",
        // To its clients 409 says that a commit failed, after which they clean up and commit again.
        in_flight: 503,
        waited_too_long: 503,
        in_doubt: 500,
        frees: &[401, 407, 408, 419, 425, 429],
        methods: &[Method::POST, Method::DELETE],
        key_form: KeyForm::UuidV7,
        announces: true,
        errors: ErrorShape::Catalog,
        ..IETF
    },
    ProfileTerms {
        profile: Profile::Repeatable,
        name: "repeatable",
        mismatch: 400,
        waits: false,
        key_form: KeyForm::Uuid,
        first_sent: true,
        ..IETF
    },
];

impl Profile {
    /// The row of this profile.
    #[must_use]
    pub fn terms(self) -> &'static ProfileTerms {
        let found = PROFILES.iter().find(|terms| terms.profile == self);
        found.unwrap_or(&PROFILES[0])
    }

    /// The profile of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let found = PROFILES.iter().find(|terms| terms.name == name);
        found.map(|terms| terms.profile)
    }
}

/// What the status of a response says about the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It happened: store the response.
    Done,
    /// It failed permanently: store the response.
    Failed,
    /// It was refused before anything happened: free the key.
    NothingHappened,
    /// It may have happened in part: the crash policy decides.
    Unclear,
}

impl ProfileTerms {
    /// 2xx, 3xx and 4xx are stored, except those that mean "not now" or "not you".
    pub(crate) fn meaning(&self, status: StatusCode) -> Meaning {
        match status.as_u16() {
            status if self.frees.contains(&status) => Meaning::NothingHappened,
            // The connection switches to another protocol, which can't be replayed.
            100..=199 => Meaning::NothingHappened,
            400..=499 => Meaning::Failed,
            500.. if self.keeps_5xx => Meaning::Failed,
            500.. => Meaning::Unclear,
            _ => Meaning::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_has_its_own_row_and_name() {
        for profile in [
            Profile::Ietf,
            Profile::Stripe,
            Profile::Intake,
            Profile::Acp,
            Profile::Iceberg,
            Profile::Repeatable,
        ] {
            let terms = profile.terms();
            assert_eq!(terms.profile, profile);
            assert_eq!(Profile::named(terms.name), Some(profile));
        }
        assert_eq!(Profile::named("none"), None);
    }

    #[test]
    fn stored_statuses_match_the_table() {
        let of = |status| {
            let status = StatusCode::from_u16(status).unwrap();
            PROFILES.map(|terms| terms.meaning(status))
        };
        for status in [200, 201, 204, 303] {
            assert_eq!(of(status), [Meaning::Done; 6]);
        }
        for status in [400, 402, 403, 404, 422] {
            assert_eq!(of(status), [Meaning::Failed; 6]);
        }
        for status in [101, 401, 407, 408, 425, 429] {
            assert_eq!(of(status), [Meaning::NothingHappened; 6]);
        }
        use Meaning::{Failed, NothingHappened as Nothing, Unclear};
        let most = [Unclear, Failed, Unclear, Unclear, Unclear, Unclear];
        assert_eq!((of(500), of(503)), (most, most));
        let free = [Nothing, Nothing, Nothing, Nothing, Failed, Nothing];
        assert_eq!(of(409), free);
        let timeout = [Failed, Failed, Failed, Failed, Nothing, Failed];
        assert_eq!(of(419), timeout);
    }
}
