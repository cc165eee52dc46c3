//! The possible next steps.

use super::Protocol;
use super::config::Renewals;
use super::network::free_stray;
use super::world::{Call, Client, Operator, Phase, Reply, Resolve, Stray, Verdict, World};

/// One step of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A tick passes, for everybody.
    Tick,
    /// The store removes an expired record.
    Sweep,
    /// A client sends its claim: the first time, or after having waited.
    Claim { client: usize },
    /// A client's message reaches the store, which decides.
    Arrive { client: usize },
    /// The store, which has looked, puts what it decided in the place of what it saw.
    Swap { client: usize },
    /// The store's reply reaches the client, which acts on it: a winner starts its effect, unless
    /// it is past its deadline.
    Deliver { client: usize },
    /// The reply is lost; the client sends the same call again.
    LoseReply { client: usize },
    /// The client gives its message up for lost and sends it again; the first is still on its way.
    TimeOut { client: usize },
    /// The process dies, or its caller asks again. What was sent is still on its way.
    Restart { client: usize },
    /// The owner renews its lease.
    Renew { client: usize, checkpoint: bool },
    /// The effect ends.
    EndEffect { client: usize, verdict: Verdict },
    /// A message that nobody waits for reaches the store.
    StrayArrives { stray: usize },
    /// An operator looks, and remembers the fence it saw.
    Look,
    /// The operator ends what it saw.
    Resolve { resolve: Resolve, lost: bool },
    /// The operator, whose reply was lost, says the same again.
    ResolveAgain,
}

impl Protocol {
    /// Everything that can happen next.
    pub(super) fn steps(&self, world: &World, steps: &mut Vec<Step>) {
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
        if self.can_sweep(world) {
            steps.push(Step::Sweep);
        }
        for client in 0..self.config.clients.len() {
            self.client_steps(world, client, steps);
            self.call_steps(world, client, steps);
        }
        for (stray, at) in world.strays.iter().enumerate() {
            if matches!(at, Stray::Flying { .. }) {
                steps.push(Step::StrayArrives { stray });
            }
        }
        self.operator_steps(world, steps);
    }

    /// What a client does of its own accord.
    fn client_steps(&self, world: &World, client: usize, steps: &mut Vec<Step>) {
        let at = &world.clients[client];
        let is_free = at.call == Call::None;
        match at.phase {
            Phase::Idle | Phase::Waiting { .. } => steps.push(Step::Claim { client }),
            Phase::Working { .. } => {
                let ends = self.config.verdicts.iter();
                steps.extend(ends.map(|&verdict| Step::EndEffect { client, verdict }));
                if is_free {
                    let renewals = self.config.renewals.all();
                    steps.extend(
                        renewals
                            .iter()
                            .map(|&checkpoint| Step::Renew { client, checkpoint }),
                    );
                }
            }
            _ => {}
        }
    }

    /// What the network does with a client's call.
    fn call_steps(&self, world: &World, client: usize, steps: &mut Vec<Step>) {
        let at = &world.clients[client];
        match at.call {
            Call::None => {}
            Call::Sent { .. } => {
                steps.push(Step::Arrive { client });
                if free_stray(world).is_some() {
                    steps.push(Step::TimeOut { client });
                }
            }
            Call::Looked { .. } => steps.push(Step::Swap { client }),
            Call::Replied { .. } => {
                steps.push(Step::Deliver { client });
                if world.losses > 0 {
                    steps.push(Step::LoseReply { client });
                }
            }
        }
        if world.crashes > 0 && !matches!(at.phase, Phase::Idle | Phase::Answered { .. }) {
            steps.push(Step::Restart { client });
        }
    }

    fn operator_steps(&self, world: &World, steps: &mut Vec<Step>) {
        match world.operator {
            Operator::Away
                if self.config.operator
                    && world.row.is_some_and(|row| self.is_doubtful(world, row)) =>
            {
                steps.push(Step::Look);
            }
            Operator::Saw { .. } => {
                let ways = [Resolve::Complete, Resolve::Fail, Resolve::Release];
                steps.extend(ways.map(|resolve| Step::Resolve {
                    resolve,
                    lost: false,
                }));
                if world.losses > 0 {
                    steps.extend(ways.map(|resolve| Step::Resolve {
                        resolve,
                        lost: true,
                    }));
                }
            }
            Operator::Unsure { .. } => steps.push(Step::ResolveAgain),
            _ => {}
        }
    }
}

/// Whether nothing else need happen before the client's next step.
///
/// A renewal or a settlement that is sent later, a reply that is read later, is the same as an
/// effect that takes longer: nobody else can tell. So these go first, which leaves out orders of
/// steps but no outcome. Not so where the sender counts from when it sent: a claim, the renewal of
/// one that is late, and the replies that let it start.
fn is_urgent(client: &Client) -> bool {
    let counts_time = matches!(
        client.phase,
        Phase::Claiming { .. } | Phase::Renewing { .. }
    );
    match client.call {
        Call::None | Call::Looked { .. } => false,
        Call::Sent { again, .. } => !again && !counts_time,
        Call::Replied { reply, .. } => {
            !(counts_time && matches!(reply, Reply::Won { .. } | Reply::Held))
        }
    }
}

impl Renewals {
    /// The renewals, by whether they carry a checkpoint.
    const fn all(self) -> &'static [bool] {
        match self {
            Self::None => &[],
            Self::Plain => &[false],
            Self::Checkpoint => &[true],
            Self::Both => &[false, true],
        }
    }
}
