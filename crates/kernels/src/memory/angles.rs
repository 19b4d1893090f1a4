//! Tables of angles, kept: all layers and steps of a model ask for the same, and a table of sines costs more than turning
//! keys by it.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use crate::attention::Angles;

/// Tables kept at most; a model has one for each encoding and size of head.
const KEPT: usize = 8;

/// The most recently used last.
static TABLES: Mutex<Vec<Arc<Angles>>> = Mutex::new(Vec::new());

impl Angles {
    /// [`Self::on_grid`] for these positions and perhaps for more, from a few tables that are kept.
    pub fn cached(
        frequencies: &[f64],
        grid: Option<usize>,
        positions: Range<usize>,
        amplitude: f64,
    ) -> Arc<Self> {
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |table: &Self| {
            let alike = table.amplitude() == amplitude && table.grid() == grid;
            alike && table.frequencies() == frequencies
        };
        let within = |inner: &Range<usize>, outer: &Range<usize>| {
            outer.start <= inner.start && inner.end <= outer.end
        };
        let serves = |table: &Arc<Self>| same(table) && within(&positions, table.positions());
        if let Some(at) = tables.iter().rposition(serves) {
            let found = tables.remove(at);
            tables.push(found.clone());
            return found;
        }
        // Decoding asks for one more position each time.
        let count = positions.len().checked_next_power_of_two().unwrap_or(positions.len());
        let positions = positions.start..positions.start.saturating_add(count);
        let angles = Arc::new(Self::on_grid(frequencies, grid, positions.clone(), amplitude));
        tables.retain(|table| !(same(table) && within(table.positions(), &positions)));
        if tables.len() == KEPT {
            tables.remove(0);
        }
        tables.push(angles.clone());
        angles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_angles_asked_for_whichever_were_asked_for_before() {
        let (slow, fast) = (Angles::rotary_frequencies(8, 1e4), Angles::polar_frequencies(4, 10.0));
        let asked =
            [(0..5, 1.0), (3..70, 1.0), (69..80, 1.0), (0..5, 2.0), (200..900, 1.0), (7..8, 1.0)];
        for frequencies in [&slow, &fast, &slow] {
            for ((positions, amplitude), grid) in asked.iter().zip([None, Some(3), None, Some(5)]) {
                let found = Angles::cached(frequencies, grid, positions.clone(), *amplitude);
                let expected = Angles::on_grid(frequencies, grid, positions.clone(), *amplitude);
                for position in positions.clone() {
                    assert_eq!(found.at(position), expected.at(position));
                }
            }
            for (positions, amplitude) in asked.clone() {
                let found = Angles::cached(frequencies, None, positions.clone(), amplitude);
                let expected = Angles::new(frequencies, positions.clone(), amplitude);
                for position in positions {
                    assert_eq!(found.at(position), expected.at(position));
                }
            }
        }
        assert!(TABLES.lock().unwrap().len() <= KEPT);
    }

    #[test]
    fn a_table_is_made_once() {
        // Frequencies that no other test asks for.
        let first = Angles::cached(&[0.123], None, 0..100, 1.0);
        assert!(Arc::ptr_eq(&first, &Angles::cached(&[0.123], None, 7..128, 1.0)));
        assert!(!Arc::ptr_eq(&first, &Angles::cached(&[0.123], None, 0..129, 1.0)));
        assert!(!Arc::ptr_eq(&first, &Angles::cached(&[0.123], None, 0..100, 2.0)));
        assert!(!Arc::ptr_eq(&first, &Angles::cached(&[0.123], Some(4), 0..100, 1.0)));
    }
}
