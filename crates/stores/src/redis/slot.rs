//! The cluster slot of a key.

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// CRC-16 (XMODEM) of the key, modulo the number of slots. Our keys have no braces in them.
pub(super) fn slot(key: &[u8]) -> u16 {
    let step = |crc: u16, byte: &u8| {
        let index = usize::from((crc >> 8) ^ u16::from(*byte));
        (crc << 8) ^ TABLE[index]
    };
    key.iter().fold(0, step) % SLOTS
}

const TABLE: [u16; 256] = table();

#[expect(clippy::cast_possible_truncation, reason = "the index is below 256")]
const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first is the check value of the cluster's specification; the others are what a server
    /// answers to `CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_those_of_the_servers() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b""), 0);
    }
}
