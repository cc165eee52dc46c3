//! I1, I4, I13, I17: when an effect may begin, and which effects may overlap.

use std::collections::BTreeMap;

use super::super::event::{CallReply, CallRequest, EffectRecord, KeyEnding};
use super::super::view::{Endings, View, Win, may_have_happened};
use super::super::violation::Violation;

/// I1: an effect runs under a lease that was won before, and a lease runs one effect.
pub(super) fn effects_need_a_lease(view: &View<'_>, _: &Endings<'_>, found: &mut Vec<Violation>) {
    let mut ran = BTreeMap::new();
    for effect in &view.effects {
        let of = |win: &&Win<'_>| win.fence == effect.fence;
        let won = view.wins.iter().filter(of);
        let won_before = won
            .clone()
            .any(|win| win.call.end.is_some_and(|end| end < effect.start));
        let calls: Vec<_> = won.map(|win| win.call).collect();
        let first = ran.insert(effect.fence, *effect);
        let (sentence, effects) = match first {
            _ if !won_before => (
                "an effect ran that had won no lease",
                vec![(*effect).clone()],
            ),
            Some(first) => (
                "one lease ran two effects",
                vec![first.clone(), (*effect).clone()],
            ),
            None => continue,
        };
        let violation = view.violation("I1", sentence.to_owned(), &calls);
        found.push(Violation {
            effects,
            ..violation
        });
    }
}

/// I13: under `hold`, whoever began its effect doesn't give the key back. An operator may: that is
/// an unlock.
pub(super) fn releases_are_legal(view: &View<'_>, _: &Endings<'_>, found: &mut Vec<Violation>) {
    let state = |fence| {
        let mut lives = view.wins.iter().filter(|win| win.fence == fence);
        lives.any(|win| win.hold && win.attempt == 1)
    };
    for end in view
        .ends()
        .filter(|end| end.ending == KeyEnding::Released && end.token.is_some())
        .filter(|end| !end.call.is_operators())
    {
        let began = view
            .effects
            .iter()
            .find(|effect| effect.fence == end.fence && effect.start < end.call.start);
        let Some(effect) = began.filter(|_| state(end.fence) && may_have_happened(end.call)) else {
            continue;
        };
        let sentence = "a key under hold was released after its effect had begun".to_owned();
        let violation = view.violation("I13", sentence, &[end.call]);
        found.push(Violation {
            effects: vec![(*effect).clone()],
            ..violation
        });
    }
}

/// I4: an effect begins within the lease, counted from when its claim or its last renewal was sent.
pub(super) fn effects_begin_in_time(view: &View<'_>, _: &Endings<'_>, found: &mut Vec<Violation>) {
    let leases = view.leases();
    for effect in &view.effects {
        let Some(lease) = leases.iter().find(|win| win.fence == effect.fence) else {
            continue;
        };
        let renewed = view.calls.iter().filter(|call| {
            let is_held =
                call.reply == CallReply::Held && call.end.is_some_and(|end| end < effect.start);
            is_held && matches!(call.ask, CallRequest::Renew { fence, .. } if fence == effect.fence)
        });
        let renewed = renewed.map(|call| call.began);
        let sent = renewed.fold(view.first_sent(lease), u64::max);
        let deadline = sent.saturating_add(lease.lease).saturating_add(view.slack);
        if effect.began > deadline {
            let late = effect.began - deadline;
            let sentence = format!("an effect began {late} µs after its lease had ended");
            found.push(Violation {
                effects: vec![(*effect).clone()],
                ..view.violation("I4", sentence, &[lease.call])
            });
        }
    }
}

/// I17: two effects are at work at the same time only where the first one's lease had lapsed, or
/// its record was gone, when the second lease was won, or an operator had unlocked it. That the
/// first owner gave the key away itself is no reason: its effect was not over.
pub(super) fn effects_do_not_overlap(view: &View<'_>, _: &Endings<'_>, found: &mut Vec<Violation>) {
    let leases = view.leases();
    let lease_of = |effect: &EffectRecord| leases.iter().find(|win| win.fence == effect.fence);
    let mut effects = view.effects.clone();
    effects.sort_by_key(|effect| effect.fence);
    for (index, first) in effects.iter().enumerate() {
        for second in &effects[index + 1..] {
            let (Some(earlier), Some(later)) = (lease_of(first), lease_of(second)) else {
                continue;
            };
            let is_explained = view.may_be_deleted(earlier.call, later.call)
                || view.may_be_expired(earlier, later.call)
                || view.may_be_lapsed(earlier, later.call)
                || view.may_be_unlocked(earlier, later.call);
            if first.fence != second.fence && overlap(first, second) && !is_explained {
                let sentence = format!(
                    "fences {} and {} were at work at the same time",
                    first.fence, second.fence
                );
                found.push(Violation {
                    effects: vec![(*first).clone(), (*second).clone()],
                    ..view.violation("I17", sentence, &[later.call])
                });
            }
        }
    }
}

/// Whether both were surely at work at one moment. When one that never ended was cut short is not
/// known.
fn overlap(first: &EffectRecord, second: &EffectRecord) -> bool {
    let begins_within = |one: &EffectRecord, other: &EffectRecord| {
        one.start <= other.start && one.end.is_some_and(|end| other.start < end)
    };
    begins_within(first, second) || begins_within(second, first)
}
