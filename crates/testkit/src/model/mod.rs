//! The protocol as a Stateright model: every order of events, within bounds, against every
//! invariant.
//!
//! What is checked is what ships. The model's store hands its record to [`semel_core::protocol`]'s
//! `claim`, `renew`, `settle` and `resolve`, and writes what they say. Around it are clients that
//! do what the engine does (claim, wait, start, renew, settle), a network that delays, repeats and
//! loses, crashes, a clock, a sweep and an operator.
//!
//! | file | what is in it |
//! |---|---|
//! | `world` | the state |
//! | `step` | what can happen next |
//! | `client`, `network`, `store` | what it does to the state |
//! | `rules`, `breaks` | the shipped decisions, and how to break them one at a time |
//! | `audit`, `resend`, `faults` | what every step is held to |
//! | `property`, `properties`, `reach` | what must hold at every state, and what must be possible |
//! | `config`, `spaces` | the bounds |
//! | `exhibits` | for every broken rule, the property that notices |
//! | `check`, `explain` | runs, and their counterexamples in words |
//! | `moving` | two stores while records move, and bodies beside a store: a world of its own |
//!
//! `docs/model.md` has the bounds and the figures. `semel-model` runs it.

mod audit;
mod breaks;
mod check;
mod client;
mod codec;
mod config;
mod exhibits;
mod explain;
mod faults;
mod moving;
mod network;
mod properties;
mod property;
mod reach;
mod resend;
mod rules;
mod spaces;
mod step;
mod store;
mod world;

use stateright::{Model, Property};

pub use breaks::{Break, Breaks};
pub use check::{
    Counterexample, ModelOutcome, PropertyOutcome, check, moving_outcomes, rules, violation,
};
pub use config::ModelConfig;
pub use exhibits::{Exhibit, exhibits};
pub use moving::MovingConfig;
pub use spaces::{Space, full, quick};

use codec::Codec;
use properties::Findings;
use rules::Rules;
use step::Step;
use world::{Call, Client, Ghost, Operator, Phase, Stray, World};

/// The model: bounds, rules, and what turns the model's numbers into the values that rules take.
#[derive(Debug)]
struct Protocol {
    config: ModelConfig,
    rules: Rules,
    codec: Codec,
    findings: Findings,
    /// The one rule that counts, where a certain one is to be seen broken.
    wanted: Option<usize>,
}

impl Protocol {
    fn new(config: ModelConfig) -> Self {
        let findings = Findings::default();
        Self {
            config,
            rules: Rules(config.breaks),
            codec: Codec::new(&config),
            findings,
            wanted: None,
        }
    }

    /// Takes a step, in place. `None`: there is no such step here.
    fn take(&self, world: &mut World, step: Step) -> Option<()> {
        match step {
            Step::Tick => self.tick(world),
            Step::Sweep => self.sweep(world),
            Step::Claim { client } => self.send_claim(world, client),
            Step::Arrive { client } => self.arrive_from(world, client)?,
            Step::Swap { client } => self.swap_for(world, client)?,
            Step::Deliver { client } => self.deliver(world, client)?,
            Step::LoseReply { client } => self.lose_reply(world, client)?,
            Step::TimeOut { client } => self.time_out(world, client)?,
            Step::Restart { client } => self.restart(world, client),
            Step::Renew { client, checkpoint } => self.renew_lease(world, client, checkpoint),
            Step::EndEffect { client, verdict } => self.end_effect(world, client, verdict)?,
            Step::StrayArrives { stray } => self.stray_arrives(world, stray)?,
            Step::Look => {
                world.operator = Operator::Saw {
                    fence: world.row?.fence,
                };
            }
            Step::Resolve { resolve, lost } => {
                let Operator::Saw { fence } = world.operator else {
                    return None;
                };
                let done = self.resolve(world, fence, resolve);
                world.operator = if lost {
                    world.losses -= 1;
                    Operator::Unsure {
                        fence,
                        resolve,
                        done,
                    }
                } else {
                    Operator::Resolved { done }
                };
            }
            Step::ResolveAgain => self.resolve_again(world)?,
        }
        Some(())
    }

    fn tick(&self, world: &mut World) {
        world.now += 1;
        let oldest = world.now.saturating_sub(self.config.lease);
        let kept = world.now.saturating_sub(self.config.retention);
        for client in &mut world.clients {
            if let Call::Looked { seen, .. } = &mut client.call {
                seen.written = seen.written.max(kept);
            }
            if let Phase::Claiming { since, .. }
            | Phase::Waiting { since: Some(since) }
            | Phase::Renewing { since, .. } = &mut client.phase
            {
                *since = (*since).max(oldest);
            }
        }
        if let Some(row) = &mut world.row {
            // All that is expired is as expired.
            row.written = row.written.max(kept);
        }
    }

    fn resolve_again(&self, world: &mut World) -> Option<()> {
        let Operator::Unsure {
            fence,
            resolve,
            done: before,
        } = world.operator
        else {
            return None;
        };
        let found = world.row;
        let done = self.resolve(world, fence, resolve);
        self.audit_resolve_again(world, found, (fence, resolve), before, done);
        world.operator = Operator::ResolvedAgain { done };
        Some(())
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            now: 0,
            row: None,
            clients: [Client {
                token: 0,
                phase: Phase::Idle,
                call: Call::None,
            }; world::CLIENTS],
            strays: std::array::from_fn(|at| match at {
                // What is not to fly has arrived already.
                _ if at >= self.config.strays => Stray::Arrived,
                _ => Stray::None,
            }),
            operator: Operator::Away,
            losses: self.config.losses,
            crashes: self.config.crashes,
            ghost: Ghost::default(),
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        self.steps(world, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        self.take(&mut next, step)?;
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(properties::EVERY_RULE, properties::visit)]
    }
}
