//! The steps of the copier and of the rollout.

use semel_core::State;
use semel_stores::compose::copy::{CopyMode, CopyOutcome};

use super::super::breaks::Break;
use super::Moving;
use super::faults::Fault;
use super::reach::Event;
use super::store::is_over;
use super::world::{Listed, Run, Stray, Uses, World};

impl Moving {
    /// Begins a run, or the next pass, or goes on after a death: lists the record and the time.
    pub(super) fn copier_lists(&self, world: &mut World) {
        let begun = world.clients.iter().map(|client| client.uses).min();
        let mut run = world.copier.run.take().unwrap_or_else(|| {
            world.copier.runs -= 1;
            Run {
                begun: begun.unwrap_or(Uses::Old),
                pass: CopyMode::Copying,
                dead: false,
                at: None,
            }
        });
        run.dead = false;
        let listed = self.live(world, 0).filter(|row| {
            let skipped = self.has(Break::CopyAnswersOnly) && !is_over(row.state);
            !skipped
        });
        match listed {
            Some(row) => {
                let (when, heard) = (world.now, Vec::new());
                run.at = Some(Listed { row, when, heard });
                world.copier.run = Some(run);
            }
            // A page without a record.
            None => self.passed(world, run, None),
        }
    }

    pub(super) fn copier_arrives(&self, world: &mut World) -> Option<()> {
        let sent = self.brought(world.copier.run.as_ref()?)?.err()?;
        let said = self.arrive(world, sent);
        let run = world.copier.run.as_mut()?;
        run.at.as_mut()?.heard.push(said);
        if let Ok(became) = self.brought(run)? {
            let run = world.copier.run.take()?;
            self.passed(world, run, became.ok());
        }
        Some(())
    }

    /// The copier has gone through all records.
    fn passed(&self, world: &mut World, mut run: Run, became: Option<CopyOutcome>) {
        run.at = None;
        self.require(
            world,
            became != Some(CopyOutcome::Conflict),
            Fault::Conflict,
        );
        self.event_if(became == Some(CopyOutcome::Repaired), Event::Mended);
        self.event_if(
            became == Some(CopyOutcome::Running),
            Event::RunningElsewhere,
        );
        if run.pass == CopyMode::Copying {
            run.pass = CopyMode::Comparing;
            world.copier.run = Some(run);
        } else if !matches!(became, Some(CopyOutcome::Conflict | CopyOutcome::Running)) {
            // Where it says that some run now under a lease of the old store alone, it is to be run
            // again.
            world.copier.done = world.copier.done.max(Some(run.begun));
        }
    }

    /// Killed. The same command goes on with the same page.
    pub(super) fn copier_dies(&self, world: &mut World, flying: bool) -> Option<()> {
        let run = world.copier.run.as_mut()?;
        let sent = self.brought(run)?.err();
        run.at = None;
        run.dead = true;
        world.crashes -= 1;
        self.event(Event::CopierDied);
        if flying {
            world.stray = Stray::Flying(sent?);
        }
        Some(())
    }

    pub(super) fn roll_out(&self, world: &mut World, client: usize) -> Option<()> {
        let next = self.next_setting(world, client)?;
        world.clients[client].uses = next;
        let moved = world.clients.iter().all(|client| client.uses == Uses::New);
        self.event_if(moved, Event::Moved);
        let doubt = world.rows[1].is_some_and(|row| row.state == State::InDoubt);
        self.event_if(moved && doubt, Event::DoubtMoved);
        self.event_if(moved && world.ghost.given != 0, Event::AnswerMoved);
        Some(())
    }

    /// The setting after this one.
    pub(super) fn after(&self, uses: Uses) -> Option<Uses> {
        match uses {
            Uses::Old if self.has(Break::StepLeftOut) => Some(Uses::NewAndOld),
            _ => uses.next(),
        }
    }

    /// Whether a broken rule leaves the copier's run at this step out.
    pub(super) fn skips_copy(&self, uses: Uses) -> bool {
        self.has(Break::LastCopyLeftOut) && uses == Uses::NewAndOld || self.has(Break::CopyLeftOut)
    }
}
