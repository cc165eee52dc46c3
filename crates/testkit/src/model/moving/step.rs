//! The possible next steps.

use super::super::breaks::Break;
use super::super::world::Verdict;
use super::Moving;
use super::world::{Call, Client, Harm, Phase, Place, Sent, Stray, Uses, World};

/// One step of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Step {
    /// A tick passes, for everybody.
    Tick,
    /// A store removes an expired record.
    Sweep { store: usize },
    /// A request comes to a node, or one that waited asks again.
    Ask { client: usize },
    /// The next call of a node arrives, and is answered.
    Arrive { client: usize },
    /// It isn't answered.
    Fail { client: usize, trouble: Trouble },
    /// A winner starts its effect, if there is time.
    Start { client: usize },
    /// An owner renews its lease.
    Renew { client: usize },
    /// The effect ends.
    End { client: usize, verdict: Verdict },
    /// A node dies.
    Crash { client: usize, flying: bool },
    /// A node gets the next setting.
    RollOut { client: usize },
    /// A call that nobody waits for arrives.
    StrayArrives,
    /// The copier begins, or goes on, and lists what the old store has.
    CopierLists,
    /// The next call of the copier arrives, and is answered.
    CopierArrives,
    /// The copier is killed.
    CopierDies { flying: bool },
    /// All bodies are lost, or changed.
    Harm { harm: Harm },
}

/// Why a call isn't answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Trouble {
    /// It was done, and the reply is lost.
    ReplyLost,
    /// It may arrive later.
    Delayed,
    /// It is refused, and nothing was changed.
    Refused,
}

impl Moving {
    /// Everything that can happen next.
    pub(in super::super) fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        if world.ghost.faults != 0 && self.wanted.is_none() {
            // What follows a broken rule shows nothing more.
            return;
        }
        if let Some(client) = world.clients.iter().position(is_urgent) {
            self.call_steps(world, client, steps);
            return;
        }
        if world.now < self.config.horizon {
            steps.push(Step::Tick);
        }
        for store in 0..world.rows.len() {
            if world.rows[store].is_some() && self.live(world, store).is_none() {
                steps.push(Step::Sweep { store });
            }
        }
        for client in 0..world.clients.len() {
            self.client_steps(world, client, steps);
            self.call_steps(world, client, steps);
        }
        if matches!(world.stray, Stray::Flying(_)) {
            steps.push(Step::StrayArrives);
        }
        self.copier_steps(world, steps);
        if self.config.harm && world.shelf.written != 0 && world.shelf.harm.is_none() {
            steps.extend([Harm::Gone, Harm::Changed].map(|harm| Step::Harm { harm }));
        }
    }

    /// What a node does of its own accord, and what is done to it.
    fn client_steps(&self, world: &World, client: usize, steps: &mut Vec<Step>) {
        let at = &world.clients[client];
        match at.phase {
            Phase::Idle | Phase::Over => {
                if world.asks > 0 {
                    steps.push(Step::Ask { client });
                }
                if self.next_setting(world, client).is_some() {
                    steps.push(Step::RollOut { client });
                }
                return;
            }
            Phase::Waiting { .. } if world.retries > 0 => steps.push(Step::Ask { client }),
            Phase::Won { .. } => steps.push(Step::Start { client }),
            Phase::Working { .. } if at.heard.is_none() => {
                let ends = self.config.verdicts.iter();
                steps.extend(ends.map(|&verdict| Step::End { client, verdict }));
                if self.config.renewals {
                    steps.push(Step::Renew { client });
                }
            }
            _ => {}
        }
        if world.crashes > 0 {
            let flying = false;
            steps.push(Step::Crash { client, flying });
            if at.heard.is_some() && world.stray == Stray::None {
                let flying = true;
                steps.push(Step::Crash { client, flying });
            }
        }
    }

    /// What becomes of the call that a node has under way.
    fn call_steps(&self, world: &World, client: usize, steps: &mut Vec<Step>) {
        let at = &world.clients[client];
        let Some(sent) = at.heard.as_ref().and_then(|_| self.ended(at).err()) else {
            return;
        };
        steps.push(Step::Arrive { client });
        if world.losses == 0 {
            return;
        }
        let mut fails = |trouble| steps.push(Step::Fail { client, trouble });
        if !matches!(sent.call, Call::Read | Call::Get { .. }) {
            fails(Trouble::ReplyLost);
            if world.stray == Stray::None {
                fails(Trouble::Delayed);
            }
        }
        if may_be_refused(sent) {
            fails(Trouble::Refused);
        }
    }

    fn copier_steps(&self, world: &World, steps: &mut Vec<Step>) {
        let copier = &world.copier;
        let Some(run) = &copier.run else {
            if copier.runs > 0 {
                steps.push(Step::CopierLists);
            }
            return;
        };
        if run.at.is_none() {
            steps.push(Step::CopierLists);
            return;
        }
        steps.push(Step::CopierArrives);
        if world.crashes > 0 {
            steps.push(Step::CopierDies { flying: false });
            if world.stray == Stray::None {
                steps.push(Step::CopierDies { flying: true });
            }
        }
    }

    /// The documented order: a rollout is finished before the next, and the copier has run before
    /// those after it.
    pub(in super::super) fn next_setting(&self, world: &World, client: usize) -> Option<Uses> {
        let uses = world.clients[client].uses;
        let next = self.after(uses)?;
        let overlaps = self.has(Break::RolloutsOverlap);
        let all_there = world
            .clients
            .iter()
            .all(|other| other.uses == uses || other.uses == next || overlaps);
        let copied = match uses {
            Uses::OldAndNew | Uses::NewAndOld => {
                world.copier.done >= Some(uses) || self.skips_copy(uses) || overlaps
            }
            _ => true,
        };
        (all_there && copied).then_some(next)
    }
}

/// Renewals and settlements are sent at once: one sent later is an effect that takes longer.
fn is_urgent(client: &Client) -> bool {
    let counts_time = matches!(
        client.phase,
        Phase::Claiming { .. } | Phase::Renewing { .. }
    );
    client.heard.as_ref().is_some_and(Vec::is_empty) && !counts_time
}

/// A refusal of the first call is as good as none. Reading may fail, too: that changes nothing
/// either way.
fn may_be_refused(sent: Sent) -> bool {
    matches!(
        (sent.to, sent.call),
        (Place::Bodies, _) | (_, Call::Claim { .. } | Call::Read)
    )
}
