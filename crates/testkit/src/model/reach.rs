//! The states that must be reachable, so that no property holds vacuously.

use semel_core::State;

use super::property::{Property, property};
use super::world::{Call, Done, Doubt, Operator, Phase, Reply, Stray, Verdict, Won, World};

/// The outcomes that must be reached, unless a space says that one lies beyond its bounds.
pub(super) const SOMETIMES: &[Property] = &[
    property("a replay", |_, w| {
        replied(w, |r| matches!(r, Reply::Replay { .. }))
    }),
    property("busy", |_, w| replied(w, |r| r == Reply::Busy)),
    property("a mismatch while running", |_, w| {
        replied(w, |r| r == Reply::Mismatch { settled: false })
    }),
    property("a mismatch when settled", |_, w| {
        replied(w, |r| r == Reply::Mismatch { settled: true })
    }),
    property("a takeover", |_, w| won(w, Won::Takeover)),
    property("a takeover with a checkpoint", |_, w| {
        won(w, Won::TakeoverWithCheckpoint)
    }),
    property("the last takeover", |m, w| {
        w.row
            .is_some_and(|row| row.attempt == m.config.max_attempts)
    }),
    property("in doubt by hold", |_, w| doubted(w, Doubt::Hold)),
    property("in doubt though nothing was started", |_, w| {
        doubted(w, Doubt::Hold) && w.ghost.starts == 0
    }),
    property("in doubt by attempts used up", |_, w| {
        doubted(w, Doubt::Attempts)
    }),
    property("in doubt, and known to be", |_, w| doubted(w, Doubt::Known)),
    property("a settlement after the lapse", |_, w| {
        done(w, Done::AfterLapse)
    }),
    property("a settlement after the doubt", |_, w| {
        done(w, Done::AfterDoubt)
    }),
    property("a settlement lost", |_, w| {
        replied(w, |r| r == Reply::SettleLost)
    }),
    property("a renewal held", |_, w| replied(w, |r| r == Reply::Held)),
    property("a renewal lost", |_, w| {
        replied(w, |r| r == Reply::RenewLost)
    }),
    property("a claim sent again wins the same lease", |_, w| {
        won(w, Won::SameLease)
    }),
    property("a settlement sent again is done", |_, w| {
        done(w, Done::Again)
    }),
    property("won after a release", |_, w| won(w, Won::AfterRelease)),
    property("won after expiry", |_, w| won(w, Won::AfterExpiry)),
    property("a resolution done", |_, w| {
        matches!(w.operator, Operator::Resolved { done: true })
    }),
    property("a resolution refused", |_, w| {
        matches!(w.operator, Operator::Resolved { done: false })
    }),
    property("a resolution sent again is done", |_, w| {
        w.operator == Operator::ResolvedAgain { done: true }
    }),
    property("a settlement lands after its sender's crash", |_, w| {
        w.strays.contains(&Stray::Settled)
    }),
    property("an effect not started because it is too late", |_, w| {
        let late = |phase| {
            matches!(
                phase,
                Phase::Settling {
                    verdict: Verdict::Late,
                    ..
                }
            )
        };
        w.clients.iter().any(|client| late(client.phase))
    }),
    property("a late winner renews and may start", |m, w| {
        w.clients
            .iter()
            .any(|client| match (client.phase, client.call) {
                (
                    Phase::Renewing { since, .. },
                    Call::Replied {
                        reply: Reply::Held, ..
                    },
                ) => m.is_before_deadline(w.now, since),
                _ => false,
            })
    }),
    property("a failure replayed", |_, w| {
        let failed = w.row.is_some_and(|row| row.state == State::Failed);
        failed && replied(w, |r| matches!(r, Reply::Replay { .. }))
    }),
];

fn replied(world: &World, is: impl Fn(Reply) -> bool) -> bool {
    world.clients.iter().any(|client| match client.call {
        Call::Replied { reply, .. } => is(reply),
        _ => false,
    })
}

fn won(world: &World, wanted: Won) -> bool {
    replied(
        world,
        |reply| matches!(reply, Reply::Won { how, .. } if how == wanted),
    )
}

fn done(world: &World, wanted: Done) -> bool {
    replied(
        world,
        |reply| matches!(reply, Reply::Done { how, .. } if how == wanted),
    )
}

fn doubted(world: &World, wanted: Doubt) -> bool {
    replied(world, |reply| reply == Reply::InDoubt { how: wanted })
}
