//! One entry of the journal: 80 bytes, whatever it says.
//!
//! A fixed size lets a reader find the frame after a broken one, and so tell a tail that was never
//! finished from a file that was damaged.

use crate::key::{Epoch, SeqNo, SessionId, StreamKey};
use crate::marks::{Mark, Progress};
use crate::operation::{StreamOperation, Tenant};

pub(super) const FRAME: usize = 80;

/// Everything but the checksum.
const CONTENT: usize = FRAME - 8;

/// What is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The file's first: its format, and how many entries its snapshot has.
    Head { snapshot: u64 },
    /// Of a snapshot: what is kept of a session.
    Session(Tenant, SessionId, Progress),
    /// An operation was applied. A snapshot's keys are operations without a place.
    Applied(StreamOperation),
    /// Epochs of a session are over.
    Fenced(Tenant, SessionId, Epoch),
    /// A session is over.
    Retired(Tenant, SessionId),
}

/// Which file a frame is in, and where: part of its checksum, so that no frame is taken for
/// another.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramePosition {
    pub(super) generation: u64,
    pub(super) index: u64,
}

const FORMAT: u64 = 1;

// What a frame says, by its first byte; none is 0, so that a hole in a file is no frame.
const HEAD: u8 = 1;
const SESSION: u8 = 2;
const APPLIED: u8 = 3;
const FENCED: u8 = 4;
const RETIRED: u8 = 5;

const HAS_PLACE: u8 = 1;
const HAS_KEY: u8 = 2;

/// The fields of a frame, in their order.
#[derive(Default)]
struct Fields {
    kind: u8,
    flags: u8,
    /// How many frames were surely on disk when this one was written; 48 bits.
    synced: u64,
    tenant: [u8; 16],
    session: [u8; 16],
    first: u64,
    second: u64,
    last: [u8; 16],
}

/// `synced`: how many frames of the file were surely on disk when this was written.
pub(super) fn encode(entry: &Entry, place: FramePosition, synced: u64) -> [u8; FRAME] {
    let mut fields = match *entry {
        Entry::Head { snapshot } => Fields {
            kind: HEAD,
            first: FORMAT,
            second: snapshot,
            ..Fields::default()
        },
        Entry::Session(tenant, session, Progress { mark, fence }) => {
            let mut last = [0; 16];
            last[..8].copy_from_slice(&fence.0.to_le_bytes());
            Fields {
                kind: SESSION,
                last,
                ..Fields::of(tenant, session, mark)
            }
        }
        Entry::Applied(operation) => applied(&operation),
        Entry::Fenced(tenant, session, epoch) => Fields {
            kind: FENCED,
            ..Fields::of(
                tenant,
                session,
                Mark {
                    epoch,
                    seqno: SeqNo(0),
                },
            )
        },
        Entry::Retired(tenant, session) => Fields {
            kind: RETIRED,
            ..Fields::of(tenant, session, Mark::default())
        },
    };
    fields.synced = synced;
    fields.write(place)
}

fn applied(operation: &StreamOperation) -> Fields {
    let none = (SessionId::from_bytes([0; 16]), Mark::default());
    let (session, at) = operation.place().unwrap_or(none);
    let place = if operation.place().is_some() {
        HAS_PLACE
    } else {
        0
    };
    let key = if operation.key().is_some() {
        HAS_KEY
    } else {
        0
    };
    Fields {
        kind: APPLIED,
        flags: place | key,
        last: operation.key().map_or([0; 16], |key| key.0.to_le_bytes()),
        ..Fields::of(operation.tenant(), session, at)
    }
}

/// The entry and its `synced`; none if the bytes are not those of a frame at this place.
pub(super) fn decode(bytes: &[u8], place: FramePosition) -> Option<(Entry, u64)> {
    let fields = Fields::read(bytes, place)?;
    let (tenant, session) = (
        Tenant::from_bytes(fields.tenant),
        SessionId::from_bytes(fields.session),
    );
    let mark = Mark::new(fields.first, fields.second);
    let entry = match fields.kind {
        HEAD if fields.first == FORMAT => Entry::Head {
            snapshot: fields.second,
        },
        SESSION => {
            let fence = Epoch(u64::from_le_bytes(fields.last[..8].try_into().ok()?));
            Entry::Session(tenant, session, Progress { mark, fence })
        }
        APPLIED => {
            let key = StreamKey(u128::from_le_bytes(fields.last));
            let operation = match fields.flags {
                HAS_PLACE => StreamOperation::sequenced(session, mark),
                HAS_KEY => StreamOperation::keyed(key),
                flags if flags == HAS_PLACE | HAS_KEY => {
                    StreamOperation::sequenced(session, mark).with_key(key)
                }
                _ => return None,
            };
            Entry::Applied(operation.with_tenant(tenant))
        }
        FENCED => Entry::Fenced(tenant, session, mark.epoch),
        RETIRED => Entry::Retired(tenant, session),
        _ => return None,
    };
    Some((entry, fields.synced))
}

impl Fields {
    fn of(tenant: Tenant, session: SessionId, mark: Mark) -> Self {
        Self {
            tenant: tenant.to_bytes(),
            session: *session.as_bytes(),
            first: mark.epoch.0,
            second: mark.seqno.0,
            ..Self::default()
        }
    }

    fn write(&self, place: FramePosition) -> [u8; FRAME] {
        let mut bytes = [0; FRAME];
        bytes[0] = self.kind;
        bytes[1] = self.flags;
        bytes[2..8].copy_from_slice(&self.synced.to_le_bytes()[..6]);
        bytes[8..24].copy_from_slice(&self.tenant);
        bytes[24..40].copy_from_slice(&self.session);
        bytes[40..48].copy_from_slice(&self.first.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.second.to_le_bytes());
        bytes[56..72].copy_from_slice(&self.last);
        let sum = checksum(&bytes[..CONTENT], place);
        bytes[CONTENT..].copy_from_slice(&sum);
        bytes
    }

    fn read(bytes: &[u8], place: FramePosition) -> Option<Self> {
        let bytes: &[u8; FRAME] = bytes.try_into().ok()?;
        if bytes[CONTENT..] != checksum(&bytes[..CONTENT], place) {
            return None;
        }
        let number = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
        Some(Self {
            kind: bytes[0],
            flags: bytes[1],
            synced: number(0)? >> 16,
            tenant: bytes[8..24].try_into().ok()?,
            session: bytes[24..40].try_into().ok()?,
            first: number(40)?,
            second: number(48)?,
            last: bytes[56..72].try_into().ok()?,
        })
    }
}

/// Eight bytes of BLAKE3: it is here already, and 64 bits are enough against accidents.
fn checksum(content: &[u8], place: FramePosition) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&place.generation.to_le_bytes());
    hasher.update(&place.index.to_le_bytes());
    hasher.update(content);
    let mut sum = [0; 8];
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry> {
        let (tenant, session) = (Tenant::named("acme"), SessionId::named("a"));
        let mark = Mark::new(3, u64::MAX);
        let (place, key) = (
            StreamOperation::sequenced(session, mark),
            StreamKey(u128::MAX - 1),
        );
        let progress = Progress {
            mark,
            fence: Epoch(9),
        };
        vec![
            Entry::Head { snapshot: 17 },
            Entry::Session(tenant, session, progress),
            Entry::Applied(place.with_tenant(tenant)),
            Entry::Applied(place.with_key(key)),
            Entry::Applied(StreamOperation::keyed(key).with_tenant(tenant)),
            Entry::Fenced(tenant, session, Epoch(7)),
            Entry::Retired(tenant, session),
        ]
    }

    #[test]
    fn what_is_written_is_read_and_only_in_its_place() {
        let place = FramePosition {
            generation: 4,
            index: 2,
        };
        for entry in entries() {
            let bytes = encode(&entry, place, 1 << 40);
            assert_eq!(decode(&bytes, place), Some((entry, 1 << 40)));
            assert_eq!(decode(&bytes, FramePosition { index: 3, ..place }), None);
            assert_eq!(
                decode(
                    &bytes,
                    FramePosition {
                        generation: 5,
                        ..place
                    }
                ),
                None
            );
        }
    }

    #[test]
    fn any_changed_bit_is_noticed() {
        let place = FramePosition {
            generation: 1,
            index: 1,
        };
        for entry in entries() {
            let bytes = encode(&entry, place, 5);
            for bit in 0..FRAME * 8 {
                let mut changed = bytes;
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(&changed, place), None);
            }
        }
        assert_eq!(decode(&[0; FRAME], place), None);
        assert_eq!(decode(&[0; FRAME - 1], place), None);
    }
}
