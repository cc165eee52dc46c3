//! I16: the calls for a key can be put in one order, each at a moment between its sending and its
//! answer, in which [`semel_core::protocol`] gives exactly these answers. In other words: its
//! history is linearizable.
//!
//! The search is the one of Wing and Gong, with the memory of Lowe: a set of calls that led to the
//! same record is tried once.

mod happening;
mod key;
mod search;
mod state;

use super::view::View;
use super::violation::Violation;
use search::{CHAINS, Found, Search, Stuck};

/// How the calls for a key can be explained.
#[derive(Debug)]
pub(super) enum Order {
    /// As they are.
    Sound,
    /// By one that lost writes, at one of the moments at which that may have happened.
    Lossy,
    /// Not at all.
    Impossible(Box<Violation>),
}

/// Looks for an order of the calls of `view`. Between each of `losses`, in ticks, the store may
/// have gone back to an earlier record.
pub(super) fn explain(view: &View<'_>, losses: &[(u64, u64)]) -> Order {
    // Most histories need no chain, or a short one; long ones cost much.
    let found = |losses: &[(u64, u64)]| {
        let mut stuck = Stuck::default();
        for longest in CHAINS {
            match Search::new(view, losses, longest).run() {
                Found::Order => return Found::Order,
                Found::Nothing(so_far) => stuck = so_far,
            }
        }
        Found::Nothing(stuck)
    };
    let Found::Nothing(stuck) = found(&[]) else {
        return Order::Sound;
    };
    if !losses.is_empty() && found(losses) == Found::Order {
        return Order::Lossy;
    }
    let sentence = if stuck.is_undecided {
        "the search for an order of the calls was given up".to_owned()
    } else {
        "no order of the calls explains this answer".to_owned()
    };
    let calls: Vec<_> = stuck.calls.iter().map(|index| view.calls[*index]).collect();
    Order::Impossible(Box::new(view.violation("I16", sentence, &calls)))
}
