//! Conversion of route settings to the types of the library.

use semel::core::KeyForm;
use semel::http::Profile;
use semel::{CrashPolicy, OnBusy, Policy, StoreDown};

use super::route::{self, RouteSettings};
use super::units::Span;

impl RouteSettings {
    /// The policy of the route, without the rules of its profile.
    pub(crate) fn policy(&self) -> Policy {
        let policy = Policy::default();
        let policy = match self.answer_retention {
            Some(Span(kept)) => policy.with_answer_retention(kept),
            None => policy,
        };
        policy
            .with_lease(self.lease.0)
            .with_retention(self.retention.0)
            .with_crash(match self.crash {
                route::Crash::Takeover => CrashPolicy::Takeover,
                route::Crash::Hold => CrashPolicy::Hold,
            })
            .with_max_attempts(self.max_attempts)
            .with_on_busy(match (self.on_busy, self.http_profile().terms().waits) {
                (Some(route::OnBusy::Wait), _) | (None, true) => OnBusy::Wait(self.wait.0),
                (Some(route::OnBusy::Refuse), _) | (None, false) => OnBusy::Refuse,
            })
            .with_max_waiters_per_key(self.max_waiters)
            .with_max_answer_bytes(self.max_answer.bytes())
            .with_store_down(match self.store_down {
                route::StoreDown::Closed => StoreDown::Closed,
                route::StoreDown::Open => StoreDown::Open,
            })
            .with_mode(match self.mode {
                route::Mode::Enforce => semel::Mode::Enforce,
                route::Mode::Observe => semel::Mode::Observe,
                route::Mode::Off => semel::Mode::Off,
            })
    }

    /// The profile of the route, as the HTTP layer has it.
    pub(crate) const fn http_profile(&self) -> Profile {
        match self.profile {
            route::Profile::Ietf => Profile::Ietf,
            route::Profile::Stripe => Profile::Stripe,
            route::Profile::Intake => Profile::Intake,
            route::Profile::Acp => Profile::Acp,
            route::Profile::Iceberg => Profile::Iceberg,
            route::Profile::Repeatable => Profile::Repeatable,
        }
    }
}

impl From<route::KeyShape> for KeyForm {
    fn from(shape: route::KeyShape) -> Self {
        match shape {
            route::KeyShape::Any => Self::Any,
            route::KeyShape::Uuid => Self::Uuid,
            route::KeyShape::UuidV7 => Self::UuidV7,
            route::KeyShape::Ulid => Self::Ulid,
        }
    }
}

impl From<CrashPolicy> for route::Crash {
    fn from(policy: CrashPolicy) -> Self {
        match policy {
            CrashPolicy::Takeover => Self::Takeover,
            CrashPolicy::Hold => Self::Hold,
        }
    }
}
