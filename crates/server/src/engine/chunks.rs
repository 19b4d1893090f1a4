//! Where prompts are cut.
//!
//! A chunk is read in one pass, and sums of many rows depend on how many there are. So the cuts follow from a token's place
//! alone: what was read of one prompt up to a cut has the bits it would have in any other prompt that begins alike.

/// Tokens of a prompt that are read in one turn at the most.
const MOST: usize = 256;
/// The first cut; up to [`MOST`] each is twice the one before, so that short prompts have some, too.
const FIRST: usize = 64;

/// The first cut after a place.
pub(super) fn next(place: usize) -> usize {
    match place {
        0..FIRST => FIRST,
        FIRST..MOST => (place + 1).next_power_of_two(),
        _ => (place / MOST + 1) * MOST,
    }
}

/// The last cut at or before a place, or 0.
pub(super) fn last(place: usize) -> usize {
    match place {
        0..FIRST => 0,
        FIRST..MOST => 1 << place.ilog2(),
        _ => place / MOST * MOST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_follow_each_other_and_no_chunk_is_too_large() {
        let cuts: Vec<usize> =
            std::iter::successors(Some(0), |cut| Some(next(*cut))).take(7).collect();
        assert_eq!(cuts, [0, 64, 128, 256, 512, 768, 1024]);
        for place in 0..2000 {
            let (before, after) = (last(place), next(place));
            assert!(before <= place && place < after && after - before <= MOST, "{place}");
            assert_eq!((next(before), last(after)), (after, after), "{place}");
        }
    }
}
