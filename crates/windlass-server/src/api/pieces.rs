//! How much is taken from the store at once. Stores count tasks and not bytes, and a
//! task may be megabytes, so the size of the last piece says how many the next one
//! has. The first is small because nothing is known yet.

/// A piece should not have more bytes.
const PIECE_BYTES: usize = 1024 * 1024;
const FIRST: usize = 8;

#[derive(Debug)]
pub(super) struct Pieces {
    next: usize,
    most: usize,
}

impl Pieces {
    /// Pieces of at most so many.
    pub(super) fn of(most: usize) -> Pieces {
        Pieces { next: FIRST.min(most), most }
    }

    /// How many to take when so many are wanted.
    pub(super) fn next(&self, wanted: usize) -> usize {
        self.next.min(wanted).max(1)
    }

    pub(super) fn took(&mut self, sizes: impl Iterator<Item = usize>) -> usize {
        let (count, bytes) = sizes.fold((0, 0), |(count, all), size| (count + 1, all + size));
        // Where nothing matched, nothing large was held.
        let each = bytes / count.max(1);
        self.next = (PIECE_BYTES / each.max(1)).clamp(1, self.most);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_things_come_in_small_pieces() {
        let mut pieces = Pieces::of(25);
        assert_eq!((pieces.next(50), pieces.next(3)), (FIRST, 3));
        assert_eq!(pieces.took([100; 8].into_iter()), 800);
        assert_eq!(pieces.next(50), 25);
        pieces.took([300 * 1024; 25].into_iter());
        assert_eq!(pieces.next(50), 3);
        pieces.took([5 * PIECE_BYTES; 3].into_iter());
        assert_eq!(pieces.next(50), 1);
        pieces.took(std::iter::empty());
        assert_eq!(pieces.next(50), 25);
    }
}
