//! The network between clients and store: what it delivers, delays, repeats and loses.

use super::Protocol;
use super::world::{Before, Call, Client, Done, Message, Phase, Reply, Stray, World};

impl Protocol {
    /// The message that the client's call is.
    pub(super) fn message(&self, at: &Client) -> Option<Message> {
        let checkpoint = match at.call {
            Call::None => return None,
            Call::Looked { .. } => false,
            Call::Sent { checkpoint, .. } | Call::Replied { checkpoint, .. } => checkpoint,
        };
        let token = at.token;
        match at.phase {
            Phase::Claiming { .. } => Some(Message::Claim { token }),
            Phase::Working { fence, .. } | Phase::Renewing { fence, .. } => Some(Message::Renew {
                token,
                fence,
                checkpoint,
            }),
            Phase::Settling {
                fence,
                crash,
                verdict,
            } => Some(Message::Settle {
                token,
                fence,
                crash,
                verdict,
            }),
            _ => None,
        }
    }

    /// The client's message reaches the store.
    pub(super) fn arrive_from(&self, world: &mut World, client: usize) -> Option<()> {
        let message = self.message(&world.clients[client])?;
        let Call::Sent {
            checkpoint, before, ..
        } = world.clients[client].call
        else {
            return None;
        };
        let found = world.row;
        if let Message::Claim { token } = message
            && let Some(seen) = self.looked_at(world, token)
        {
            let at = world.now;
            world.clients[client].call = Call::Looked { seen, at, before };
            return Some(());
        }
        let reply = self.arrive(world, message);
        self.audit_resend(world, found, message, before, reply);
        world.clients[client].call = Call::Replied { checkpoint, reply };
        Some(())
    }

    /// The second step of a store that looked first. Where the record has changed meanwhile, it
    /// looks again.
    pub(super) fn swap_for(&self, world: &mut World, client: usize) -> Option<()> {
        let Call::Looked { seen, at, before } = world.clients[client].call else {
            return None;
        };
        let checkpoint = false;
        let message = self.message(&world.clients[client])?;
        let found = world.row;
        world.clients[client].call = match self.swap(world, message.token(), (seen, at)) {
            Some(reply) => {
                self.audit_resend(world, found, message, before, reply);
                Call::Replied { checkpoint, reply }
            }
            None => Call::Sent {
                checkpoint,
                again: false,
                before,
            },
        };
        Some(())
    }

    /// A message that nobody waits for reaches the store.
    pub(super) fn stray_arrives(&self, world: &mut World, stray: usize) -> Option<()> {
        let Stray::Flying { message, crashed } = world.strays[stray] else {
            return None;
        };
        let reply = self.arrive(world, message);
        let settled = crashed && matches!(reply, Reply::Done { how, .. } if how != Done::Again);
        world.strays[stray] = if settled {
            Stray::Settled
        } else {
            Stray::Arrived
        };
        // The network keeps no order, so neither does the state.
        world.strays.sort_unstable();
        // Its sender may have the same message on its way again: then this was the first sending.
        for client in 0..self.config.clients.len() {
            let same = self.message(&world.clients[client]) == Some(message);
            if let Call::Sent { before, .. } = &mut world.clients[client].call
                && same
                && *before == Before::Nothing
            {
                *before = as_before(reply);
            }
        }
        Some(())
    }

    /// The reply is lost: the same call again, under the same token.
    pub(super) fn lose_reply(&self, world: &mut World, client: usize) -> Option<()> {
        let at = &mut world.clients[client];
        let Call::Replied { checkpoint, reply } = at.call else {
            return None;
        };
        at.call = Call::Sent {
            checkpoint,
            again: true,
            before: as_before(reply),
        };
        world.losses -= 1;
        self.no_answer(world, client);
        Some(())
    }

    /// The client sends its message again while the first is still on its way.
    pub(super) fn time_out(&self, world: &mut World, client: usize) -> Option<()> {
        let message = self.message(&world.clients[client])?;
        self.let_go(world, message, false);
        if let Call::Sent { again, .. } = &mut world.clients[client].call {
            *again = true;
        }
        self.no_answer(world, client);
        Some(())
    }

    /// The process dies; another is asked the same. What was sent may still arrive.
    pub(super) fn restart(&self, world: &mut World, client: usize) {
        if let Call::Sent { .. } = world.clients[client].call
            && let Some(message) = self.message(&world.clients[client])
        {
            self.let_go(world, message, true);
        }
        world.clients[client] = Client {
            token: 0,
            phase: Phase::Idle,
            call: Call::None,
        };
        world.crashes -= 1;
    }

    /// Leaves a message to the network. Where there is no room for one more, it is lost.
    pub(super) fn let_go(&self, world: &mut World, message: Message, crashed: bool) {
        if let Some(free) = free_stray(world) {
            world.strays[free] = Stray::Flying { message, crashed };
            world.strays.sort_unstable();
        }
    }
}

/// Where there is room for one more message that nobody waits for.
pub(super) fn free_stray(world: &World) -> Option<usize> {
    world.strays.iter().position(|stray| *stray == Stray::None)
}

const fn as_before(reply: Reply) -> Before {
    match reply {
        Reply::Won { .. } => Before::Won,
        Reply::Held => Before::Held,
        Reply::Done { .. } => Before::Done,
        Reply::RenewLost | Reply::SettleLost => Before::Lost,
        _ => Before::Nothing,
    }
}
