//! The invariants that a history can show to be broken.

mod acknowledged;
mod answers;
mod effects;
mod leases;
mod resends;
mod stale;

use super::view::{Endings, View};
use super::violation::Violation;

type Rule = fn(&View<'_>, &Endings<'_>, &mut Vec<Violation>);

/// Every rule.
pub(super) const ALL: &[Rule] = &[
    leases::one_owner_per_fence,
    leases::fences_grow,
    leases::grants_are_the_askers,
    leases::each_lease_follows_from_the_last,
    leases::settled_leases_are_not_given,
    effects::effects_need_a_lease,
    effects::effects_begin_in_time,
    effects::effects_do_not_overlap,
    effects::releases_are_legal,
    leases::records_are_not_forgotten,
    stale::stale_calls_are_lost,
    stale::strangers_are_lost,
    stale::settled_leases_are_lost,
    stale::deleted_leases_are_lost,
    answers::answers_were_given,
    answers::answers_stay,
    answers::leases_end_once,
    acknowledged::acknowledged_answers_are_given,
    answers::payloads_match,
    resends::resent_claims_win_again,
    resends::resent_endings_are_done_again,
];
