//! Durability levels: how many replicas or disks must have a write before its answer is given
//! (`WAIT`, `WAITAOF`).
//!
//! Above the server's own level, this applies to every answer that a caller may act on, not only to
//! the writes of this call: a replay of a record that another process has just settled must survive
//! a failover. A server waits for the writes of the *connection*, and some don't count reads. So an
//! answer that was only read is confirmed by a small write (see `Inner::confirm`), which is then
//! waited for.

use redis::{Cmd, Value};

/// How long to wait for replicas before the outcome counts as unknown.
const WAIT_MILLIS: u64 = 1_000;
/// The same for disks, which many servers write to once a second.
const DISK_MILLIS: u64 = 3_000;

/// A level of durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// The server's own level.
    Server,
    /// This many replicas have received it.
    Replicas(u32),
    /// It is on the server's own disk (if `local`), and on the disks of this many replicas.
    Disks { local: bool, replicas: u32 },
}

impl Durability {
    /// `wait:N` or `waitaof:LOCAL:N`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            ["wait", replicas] => {
                let replicas = replicas.parse().ok().filter(|replicas| *replicas > 0)?;
                Some(Self::Replicas(replicas))
            }
            ["waitaof", local, replicas] => {
                let local = match local {
                    "0" => false,
                    "1" => true,
                    _ => return None,
                };
                let replicas = replicas.parse().ok()?;
                (local || replicas > 0).then_some(Self::Disks { local, replicas })
            }
            _ => None,
        }
    }

    /// The command that waits; `None` if nothing is to be waited for.
    pub(super) fn wait(self) -> Option<Cmd> {
        match self {
            Self::Server => None,
            Self::Replicas(replicas) => {
                let mut cmd = redis::cmd("WAIT");
                cmd.arg(replicas).arg(WAIT_MILLIS);
                Some(cmd)
            }
            Self::Disks { local, replicas } => {
                let mut cmd = redis::cmd("WAITAOF");
                cmd.arg(u8::from(local)).arg(replicas).arg(DISK_MILLIS);
                Some(cmd)
            }
        }
    }

    /// Whether this many replicas are enough for the level.
    pub(super) fn is_within(self, replicas: usize) -> bool {
        match self {
            Self::Server => true,
            Self::Replicas(wanted)
            | Self::Disks {
                replicas: wanted, ..
            } => usize::try_from(wanted).is_ok_and(|wanted| wanted <= replicas),
        }
    }

    /// The same command for no replica and no time, to test whether the server supports it.
    pub(super) fn probe(self) -> Option<Cmd> {
        let words: &[u32] = match self {
            Self::Server => return None,
            Self::Replicas(_) => &[0, 1],
            Self::Disks { local: true, .. } => &[1, 0, 1],
            Self::Disks { local: false, .. } => &[0, 0, 1],
        };
        let name = if matches!(self, Self::Replicas(_)) {
            "WAIT"
        } else {
            "WAITAOF"
        };
        let mut cmd = redis::cmd(name);
        cmd.arg(words);
        Some(cmd)
    }

    /// Whether the reply to [`Self::wait`] says that it is done. A wait that ran out of time
    /// answers too, with a smaller number.
    pub(super) fn is_reached(self, reply: &Value) -> bool {
        match (self, reply) {
            (Self::Server, _) => true,
            (Self::Replicas(wanted), Value::Int(count)) => *count >= i64::from(wanted),
            (Self::Disks { local, replicas }, Value::Array(counts)) => match counts[..] {
                [Value::Int(here), Value::Int(there)] => {
                    here >= i64::from(local) && there >= i64::from(replicas)
                }
                _ => false,
            },
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_levels_are_parsed_and_others_rejected() {
        assert_eq!(Durability::parse("wait:2"), Some(Durability::Replicas(2)));
        let disks = |local, replicas| Some(Durability::Disks { local, replicas });
        assert_eq!(Durability::parse("waitaof:1:0"), disks(true, 0));
        assert_eq!(Durability::parse("waitaof:0:1"), disks(false, 1));
        for text in [
            "",
            "wait",
            "wait:0",
            "wait:-1",
            "wait:x",
            "waitaof:0:0",
            "waitaof:2:0",
            "waitaof:1",
        ] {
            assert_eq!(Durability::parse(text), None, "{text}");
        }
    }

    #[test]
    fn too_few_replicas_do_not_reach_the_level() {
        let level = Durability::Replicas(2);
        assert!(!level.is_reached(&Value::Int(1)));
        assert!(level.is_reached(&Value::Int(2)));
        let level = Durability::Disks {
            local: true,
            replicas: 1,
        };
        let counts = |here, there| Value::Array(vec![Value::Int(here), Value::Int(there)]);
        assert!(!level.is_reached(&counts(0, 1)));
        assert!(!level.is_reached(&counts(1, 0)));
        assert!(level.is_reached(&counts(1, 1)));
        assert!(!level.is_reached(&Value::Nil));
    }
}
