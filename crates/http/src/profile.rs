//! [`Profile`]: presets for the conventions on which APIs differ.

use std::time::Duration;

use http::StatusCode;

/// Whose conventions a route follows.
///
/// | | `Ietf` | `Stripe` | `Intake` | `Acp` |
/// |---|---|---|---|---|
/// | key with another payload | 422 | 400 | 409 | 422 |
/// | still running | wait, then 409 | 409 at once | wait, then 503 | 409 at once |
/// | replayed status | the original | the original | 200 for any success | the original |
/// | 5xx | not stored | stored | not stored | not stored |
/// | no key | passes | passes | passes | 400 |
/// | store down | retry after 1 s | 1 s | 5 s | 1 s |
/// | errors | problem details | and an `error` member | and `ok`, an `error` member | and a `message`, with ACP's `type` |
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
    replays_as_ok: false,
    keeps_5xx: false,
    requires_key: false,
    echoes_key: false,
    errors: ErrorShape::Problem,
    unavailable_pause: Duration::from_secs(1),
};

/// One row per profile.
pub const PROFILES: [ProfileTerms; 4] = [
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
            401 | 407 | 408 | 409 | 425 | 429 => Meaning::NothingHappened,
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
            assert_eq!(of(status), [Meaning::Done; 4]);
        }
        for status in [400, 402, 403, 404, 422] {
            assert_eq!(of(status), [Meaning::Failed; 4]);
        }
        for status in [101, 401, 407, 408, 409, 425, 429] {
            assert_eq!(of(status), [Meaning::NothingHappened; 4]);
        }
        use Meaning::{Failed, Unclear};
        assert_eq!(of(500), [Unclear, Failed, Unclear, Unclear]);
        assert_eq!(of(503), [Unclear, Failed, Unclear, Unclear]);
    }
}
