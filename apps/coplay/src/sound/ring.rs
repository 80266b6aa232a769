//! Lock-free queue of samples from one thread to another. Neither thread ever blocks.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Ring buffer of sample pairs with one writer and one reader.
#[derive(Debug)]
pub(super) struct SampleRing {
    /// Sample pairs: left in the low 16 bits, right in the high 16 bits.
    pairs: Box<[AtomicU32]>,
    /// Total number of pairs written, wrapping.
    put: AtomicUsize,
    /// Total number of pairs read, wrapping.
    taken: AtomicUsize,
}

impl SampleRing {
    /// Creates a ring for this number of pairs, rounded up to a power of two.
    pub(super) fn new(pairs: usize) -> Self {
        let size = pairs.next_power_of_two();
        let pairs = (0..size).map(|_| AtomicU32::new(0)).collect();
        Self { pairs, put: AtomicUsize::new(0), taken: AtomicUsize::new(0) }
    }

    /// Returns the number of pairs in the queue.
    pub(super) fn len(&self) -> usize {
        self.put.load(Ordering::Acquire).wrapping_sub(self.taken.load(Ordering::Acquire))
    }

    /// Returns the largest number of pairs that the queue can hold.
    pub(super) fn capacity(&self) -> usize {
        self.pairs.len()
    }

    /// Appends a pair. Drops it and returns `false` if the ring is full. Only the writer may call this.
    pub(super) fn put(&self, [left, right]: [i16; 2]) -> bool {
        let put = self.put.load(Ordering::Relaxed);
        if put.wrapping_sub(self.taken.load(Ordering::Acquire)) == self.pairs.len() {
            return false;
        }
        let pair = u32::from(left as u16) | u32::from(right as u16) << 16;
        self.pairs[put % self.pairs.len()].store(pair, Ordering::Relaxed);
        self.put.store(put.wrapping_add(1), Ordering::Release);
        true
    }

    /// Removes the oldest pair; `None` if the ring is empty. Only the reader may call this.
    pub(super) fn take(&self) -> Option<[i16; 2]> {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken == self.put.load(Ordering::Acquire) {
            return None;
        }
        let pair = self.pairs[taken % self.pairs.len()].load(Ordering::Relaxed);
        self.taken.store(taken.wrapping_add(1), Ordering::Release);
        Some([pair as u16 as i16, (pair >> 16) as u16 as i16])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_is_fifo_and_bounded() {
        let ring = SampleRing::new(100);
        assert_eq!((ring.capacity(), ring.take()), (128, None));
        for round in 0..5i16 {
            let taken = (0..128).filter(|n| ring.put([*n, -round])).count();
            assert_eq!((taken, ring.put([0, 0]), ring.len()), (128, false, 128));
            assert!((0..128).all(|n| ring.take() == Some([n, -round])));
        }
        assert_eq!(ring.take(), None);
    }

    #[test]
    fn ring_is_consistent_across_two_threads() {
        let ring = SampleRing::new(64);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut next = 0;
                while next < 20_000 {
                    if ring.put([next, -next]) { next += 1 } else { std::thread::yield_now() }
                }
            });
            let mut next = 0;
            while next < 20_000 {
                match ring.take() {
                    Some(pair) => {
                        assert_eq!(pair, [next, -next]);
                        next += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
    }
}
