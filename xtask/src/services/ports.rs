//! Free loopback ports.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use anyhow::{Result, bail};

/// Below the range from which the kernel takes the ports of outgoing connections: a port from
/// there could be lent to somebody while its server is being restarted.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Whether nobody listens there now.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// A port that nobody listens on and that is not in `taken`.
///
/// The search starts at a place that depends on the folder, so two clones rarely meet.
pub(crate) fn free(folder: &Path, taken: &[u16]) -> Result<u16> {
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    let span = u64::from(RANGE.end - RANGE.start);
    let first = RANGE.start + u16::try_from(hasher.finish() % span)?;
    let found = (first..RANGE.end)
        .chain(RANGE.start..first)
        .find(|p| !taken.contains(p) && is_free(*p));
    match found {
        Some(port) => Ok(port),
        None => bail!("no free port between {} and {}", RANGE.start, RANGE.end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_a_taken_nor_a_listened_port_is_given() {
        let folder = Path::new("somewhere");
        let first = free(folder, &[]).unwrap();
        let second = free(folder, &[first]).unwrap();
        assert_ne!(first, second);

        let _held = TcpListener::bind((Ipv4Addr::LOCALHOST, second)).unwrap();
        let third = free(folder, &[first]).unwrap();
        assert!(third != first && third != second);
    }
}
