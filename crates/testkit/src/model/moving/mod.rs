//! Two stores while records move (P43), and bodies beside a store (P44), as a model of their own.
//!
//! What is checked is what ships: the stores decide by [`semel_core::protocol`], and
//! [`Mirror`](semel_stores::compose::Mirror), [`Spill`](semel_stores::compose::Spill) and
//! [`copy_record`](semel_stores::compose::copy::copy_record), which the copier calls for each
//! record, run as they are. Each of them makes several calls to stores; between any two of these,
//! everything else may happen.
//!
//! | file | what is in it |
//! |---|---|
//! | `world` | the state |
//! | `step` | what can happen next |
//! | `script`, `drive` | how the shipped code is run one call at a time |
//! | `client`, `copier`, `store` | what a step does to the state, and what it is held to |
//! | `properties`, `faults`, `reach` | what must hold, and what must be possible |
//! | `config`, `spaces`, `exhibits` | the bounds, and for every broken rule the property that notices |

mod client;
mod config;
mod copier;
mod drive;
mod exhibits;
mod explain;
mod faults;
mod properties;
mod reach;
mod script;
mod spaces;
mod step;
mod store;
mod world;

use std::sync::Arc;

use stateright::{Model, Property};

pub use config::MovingConfig;
pub(super) use exhibits::exhibits;
pub(super) use explain::explain;
pub(super) use properties::ALWAYS;
pub(super) use reach::SOMETIMES;
pub(super) use spaces::{FULL, QUICK};

use super::breaks::Break;
use super::codec::Codec;
use super::properties::{EVERY_RULE, Findings};
use super::rules::Rules;
use script::Still;
use semel_conformance::clock::FakeClock;
use step::Step;
use world::{Client, Copier, Ghost, Phase, Shelf, Stray, World};

/// The model of a move.
pub(super) struct Moving {
    config: MovingConfig,
    rules: Rules,
    codec: Arc<Codec>,
    still: Arc<Still>,
    pub(super) findings: Findings,
    /// The one rule that counts, where a certain one is to be seen broken.
    pub(super) wanted: Option<usize>,
}

impl Moving {
    pub(super) fn new(config: MovingConfig) -> Self {
        Self {
            config,
            rules: Rules(config.breaks.of_one_store()),
            codec: Arc::new(Codec::new(&config.terms)),
            still: Arc::new(Still(FakeClock::new())),
            findings: Findings::default(),
            wanted: None,
        }
    }

    const fn has(&self, broken: Break) -> bool {
        self.config.breaks.has(broken)
    }

    /// Takes a step, in place. `None`: there is no such step here.
    fn take(&self, world: &mut World, step: Step) -> Option<()> {
        match step {
            Step::Tick => self.tick(world),
            Step::Sweep { store } => world.rows[store] = None,
            Step::Ask { client } => self.ask(world, client),
            Step::Arrive { client } => self.arrive_from(world, client)?,
            Step::Fail { client, trouble } => self.fail(world, client, trouble)?,
            Step::Start { client } => self.start(world, client)?,
            Step::Renew { client } => world.clients[client].heard = Some(Vec::new()),
            Step::End { client, verdict } => self.end(world, client, verdict)?,
            Step::Crash { client, flying } => self.crash(world, client, flying),
            Step::RollOut { client } => self.roll_out(world, client)?,
            Step::StrayArrives => {
                let Stray::Flying(sent) = world.stray else {
                    return None;
                };
                self.arrive(world, sent);
                world.stray = Stray::Never;
                self.event(reach::Event::Stray(sent.call));
            }
            Step::CopierLists => self.copier_lists(world),
            Step::CopierArrives => self.copier_arrives(world)?,
            Step::CopierDies { flying } => self.copier_dies(world, flying)?,
            Step::Harm { harm } => world.shelf.harm = Some(harm),
        }
        Some(())
    }

    fn tick(&self, world: &mut World) {
        world.now += 1;
        let oldest = world.now.saturating_sub(self.config.terms.lease);
        for client in &mut world.clients {
            if let Phase::Claiming { since, .. }
            | Phase::Waiting { since: Some(since) }
            | Phase::Won { since, .. }
            | Phase::Renewing { since, .. } = &mut client.phase
            {
                *since = (*since).max(oldest);
            }
        }
        for store in 0..world.rows.len() {
            let now = self.now(world, store);
            let Some(row) = &mut world.rows[store] else {
                continue;
            };
            if !self.codec.is_expired(row, now) {
                continue;
            }
            // All that is expired is as expired. A life of the key ends when the first store
            // forgets it.
            row.written = now.saturating_sub(self.config.terms.retention);
            let told = store::answered(row) != 0 && store::answered(row) == world.ghost.given;
            if told || row.token == world.ghost.hold_run {
                world.ghost.given = 0;
                world.ghost.hold_run = 0;
            }
            world.ghost.starts = 0;
        }
    }
}

impl Model for Moving {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let client = Client {
            uses: self.config.begins,
            asked: 0,
            token: 0,
            phase: Phase::Idle,
            heard: None,
        };
        vec![World {
            now: 0,
            rows: [None, None],
            shelf: Shelf::default(),
            clients: vec![client; self.config.terms.clients.len()],
            copier: Copier {
                runs: self.config.runs,
                run: None,
                done: None,
            },
            stray: if self.config.strays {
                Stray::None
            } else {
                Stray::Never
            },
            asks: self.config.asks,
            retries: self.config.retries,
            crashes: self.config.crashes,
            losses: self.config.losses,
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
        vec![Property::always(EVERY_RULE, properties::visit)]
    }
}
