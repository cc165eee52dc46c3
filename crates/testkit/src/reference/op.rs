//! One step of a random sequence, and how a seed becomes a sequence.
//!
//! A step names keys, owners and moments by role ("this owner's older lease", "one microsecond
//! before that lease ends"), so that every sequence, and every part of one, can be applied.

use semel_core::State;

/// How many keys a sequence uses.
pub(super) const KEYS: usize = 3;
/// How many owners there are.
pub(super) const OWNERS: usize = 3;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A claim.
    Claim {
        /// Of which key.
        key: usize,
        /// By whom.
        owner: usize,
        /// With the token of this owner's last claim of the key.
        again: bool,
        /// With which payload.
        payload: usize,
        /// On which terms.
        terms: usize,
    },
    /// A renewal.
    Renew {
        /// Of which key.
        key: usize,
        /// By whom.
        owner: usize,
        /// With which of the owner's leases.
        lease: LeaseChoice,
        /// With which checkpoint, if any.
        checkpoint: Option<usize>,
    },
    /// A settlement.
    Settle {
        /// Of which key.
        key: usize,
        /// By whom.
        owner: usize,
        /// With which of the owner's leases.
        lease: LeaseChoice,
        /// To what end.
        settlement: usize,
    },
    /// An operator's resolution.
    Resolve {
        /// Of which key.
        key: usize,
        /// Under which fence.
        fence: Named,
        /// To what end.
        resolution: usize,
    },
    /// A look at the record.
    Read {
        /// Of which key.
        key: usize,
    },
    /// A deletion.
    Delete {
        /// Of which key.
        key: usize,
    },
    /// What was last deleted comes back.
    Restore {
        /// Of which key.
        key: usize,
    },
    /// A sweep of everything that has expired.
    Sweep,
    /// A listing, page by page.
    List {
        /// Of records that stand so.
        state: Option<State>,
        /// Of this tenant's records only.
        tenant: Option<usize>,
        /// So many a page.
        limit: usize,
    },
    /// Time passes.
    Advance(Moment),
}

/// Which lease an owner shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChoice {
    /// The last one it won, or where it won none, the key's.
    Last,
    /// The one before.
    Older,
    /// The last one, with a fence that nobody gave it.
    WrongFence,
    /// The last one, with another's token.
    WrongToken,
}

/// Which fence a resolution names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// The one of the record.
    Current,
    /// A smaller one.
    Earlier,
    /// A larger one.
    Later,
}

/// How far time moves on. Where the moment has passed already, by a millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// To the end of a key's lease, so many microseconds before (negative) or after.
    LeaseEnd {
        /// Of which key.
        key: usize,
        /// Microseconds after.
        after: i8,
    },
    /// To the expiry of a key's record, so many microseconds before (negative) or after.
    Expiry {
        /// Of which key.
        key: usize,
        /// Microseconds after.
        after: i8,
    },
    /// By so many microseconds.
    By(u64),
}

/// Takes choices off a number, so that smaller numbers make plainer steps: what shrinks the number,
/// shrinks the step.
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: usize) -> usize {
        let limit = limit as u64;
        let choice = self.0 % limit;
        self.0 /= limit;
        usize::try_from(choice).expect("below a usize")
    }

    /// `common` in all cases but one in `in_cases`.
    fn rarely<T>(&mut self, in_cases: usize, common: T, rare: T) -> T {
        if self.below(in_cases) + 1 == in_cases {
            rare
        } else {
            common
        }
    }

    fn lease(&mut self) -> LeaseChoice {
        match self.below(10) {
            0..=6 => LeaseChoice::Last,
            7 => LeaseChoice::Older,
            8 => LeaseChoice::WrongFence,
            _ => LeaseChoice::WrongToken,
        }
    }

    fn moment(&mut self) -> Moment {
        let (kind, key) = (self.below(8), self.below(KEYS));
        let after = [0, -1, 1][self.below(3)];
        match kind {
            0..=4 => Moment::LeaseEnd { key, after },
            5 => Moment::Expiry { key, after },
            6 => Moment::By(1),
            _ => Moment::By(3_000 * (1 + self.below(4) as u64)),
        }
    }
}

impl Op {
    /// The step that a number stands for. Every number stands for one.
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        let mut choose = Choices(number);
        let kind = choose.below(72);
        // Most steps meet on the first key.
        let key = [0, 0, 0, 1, 1, 2][choose.below(6)];
        let owner = choose.below(OWNERS);
        match kind {
            0..=20 => Self::Claim {
                key,
                owner,
                again: choose.rarely(5, false, true),
                payload: choose.rarely(8, 0, 1),
                terms: choose.below(12),
            },
            21..=34 => {
                let (lease, settlement) = (choose.lease(), choose.below(6));
                Self::Settle {
                    key,
                    owner,
                    lease,
                    settlement,
                }
            }
            35..=41 => {
                let (lease, checkpoint) = (choose.lease(), choose.below(4).checked_sub(1));
                Self::Renew {
                    key,
                    owner,
                    lease,
                    checkpoint,
                }
            }
            42..=54 => Self::Advance(choose.moment()),
            55..=58 => {
                let fence = [Named::Current, Named::Current, Named::Earlier, Named::Later];
                let (fence, resolution) = (fence[choose.below(4)], choose.below(4));
                Self::Resolve {
                    key,
                    fence,
                    resolution,
                }
            }
            59 => Self::Read { key },
            60..=63 => Self::Delete { key },
            64 => Self::Sweep,
            65..=69 => Self::Restore { key },
            _ => {
                let states = [
                    None,
                    Some(State::InDoubt),
                    Some(State::Running),
                    Some(State::Completed),
                ];
                let (state, tenant) = (states[choose.below(4)], choose.below(4).checked_sub(2));
                Self::List {
                    state,
                    tenant,
                    limit: choose.below(3),
                }
            }
        }
    }
}

/// The sequence of a seed: 10 to 30 steps.
#[must_use]
pub fn generate(seed: u64) -> Vec<Op> {
    let mut state = seed;
    let mut next = || {
        // SplitMix64: consecutive seeds give unrelated sequences, and it costs a few instructions.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let length = 10 + next() % 21;
    (0..length).map(|_| Op::from_number(next())).collect()
}
