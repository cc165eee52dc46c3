//! I6: a repeated call gets the same answer, unless the record has moved on.

use semel_core::{Settlement, State};

use super::Protocol;
use super::audit::says;
use super::codec::{self, settlement};
use super::faults::Fault;
use super::world::{Before, FenceNo, Message, OPERATORS_ANSWER, Reply, Resolve, Row, World};

impl Protocol {
    pub(super) fn audit_resend(
        &self,
        world: &mut World,
        found: Option<Row>,
        message: Message,
        before: Before,
        reply: Reply,
    ) {
        let row = found.filter(|row| !self.codec.is_expired(row, world.now));
        let mine = row.filter(|row| row.token == message.token());
        let same = match (before, message) {
            (Before::Won, Message::Claim { .. }) => {
                let still = mine.filter(|row| row.state == State::Running);
                still.is_none_or(|row| {
                    world.row == found
                        && matches!(reply, Reply::Won { fence, .. } if fence == row.fence)
                })
            }
            (Before::Held, Message::Renew { fence, .. }) => {
                let still = mine.filter(|row| row.fence == fence && row.state == State::Running);
                still.is_none() || reply == Reply::Held
            }
            (
                Before::Done,
                Message::Settle {
                    fence,
                    crash,
                    verdict,
                    ..
                },
            ) => {
                let sent = settlement(verdict, crash, fence);
                let still = mine.filter(|row| row.fence == fence && says(row, &sent, fence));
                still.is_none() || world.row == found && matches!(reply, Reply::Done { .. })
            }
            // Who has lost a lease never gets it back.
            (Before::Lost, _) => matches!(reply, Reply::RenewLost | Reply::SettleLost),
            _ => true,
        };
        world.ghost.require(same, Fault::Resend);
    }

    pub(super) fn audit_resolve_again(
        &self,
        world: &mut World,
        found: Option<Row>,
        (fence, resolve): (FenceNo, Resolve),
        before: bool,
        done: bool,
    ) {
        let sent = Settlement::from(codec::resolution(resolve));
        let row = found.filter(|row| !self.codec.is_expired(row, world.now));
        let still = row.filter(|row| row.fence == fence && says(row, &sent, OPERATORS_ANSWER));
        let same = !before || still.is_none() || done && world.row == found;
        world.ghost.require(same, Fault::Resend);
    }
}
