//! What all sites of a maze agree on.

/// The maze, and how it is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The maze follows from this.
    pub seed: u64,
    /// Cells on each side of it.
    pub side: u8,
    /// Ticks in a bucket.
    pub bucket: u16,
    /// Ticks that everybody waits.
    pub delay: u16,
}

/// The rules and the layout of states are these.
const VERSION: u8 = 1;

impl Default for Terms {
    /// The paper's bucket and delay, and a maze for a handful of people.
    fn default() -> Self {
        Self { seed: 1, side: 12, bucket: 4, delay: 15 }
    }
}

impl Terms {
    /// As they are told.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.side];
        bytes.extend_from_slice(&self.bucket.to_le_bytes());
        bytes.extend_from_slice(&self.delay.to_le_bytes());
        bytes.extend_from_slice(&self.seed.to_le_bytes());
        bytes
    }

    /// What was told; `None` if it is of another version, or no maze at all.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [VERSION, side, a, b, c, d, seed @ ..] = bytes else { return None };
        let terms = Self {
            seed: u64::from_le_bytes(seed.try_into().ok()?),
            side: *side,
            bucket: u16::from_le_bytes([*a, *b]),
            delay: u16::from_le_bytes([*c, *d]),
        };
        let sane = (4..=128).contains(side) && (1..=100).contains(&terms.bucket) && (1..=100).contains(&terms.delay);
        sane.then_some(terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_back_and_others_are_refused() {
        let terms = Terms { seed: 77, side: 30, bucket: 8, delay: 20 };
        let bytes = terms.to_bytes();
        assert_eq!(Terms::from_bytes(&bytes), Some(terms));
        assert_eq!(Terms::from_bytes(&bytes[..13]), None);
        assert_eq!(Terms::from_bytes(&Terms { side: 3, ..terms }.to_bytes()), None);
        assert_eq!(Terms::from_bytes(&[&[2][..], &bytes[1..]].concat()), None);
    }
}
