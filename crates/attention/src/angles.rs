//! Tables of angles, kept: all layers and steps of a model ask for the same, and a table of sines costs more than turning
//! keys by it.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use whatwhere_kernels::Angles;

/// Tables kept at most; a model has one for each encoding and size of head.
const KEPT: usize = 8;
/// Places at the end of a table are rounded up to a multiple of these, so that writing token by token makes one seldom.
const STEP: usize = 64;

/// The most recently used last.
static TABLES: Mutex<Vec<Table>> = Mutex::new(Vec::new());

struct Table {
    frequencies: Vec<f64>,
    amplitude: f64,
    places: Range<usize>,
    angles: Arc<Angles>,
}

/// The table for these places, and perhaps for more.
pub(crate) fn of(frequencies: &[f64], places: Range<usize>, amplitude: f64) -> Arc<Angles> {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let same =
        |table: &Table| table.amplitude == amplitude && table.frequencies.as_slice() == frequencies;
    let covers = |table: &Table| {
        table.places.start <= places.start && places.end <= table.places.end && same(table)
    };
    if let Some(at) = tables.iter().rposition(covers) {
        let found = tables.remove(at);
        let angles = found.angles.clone();
        tables.push(found);
        return angles;
    }
    let places = places.start..places.end.next_multiple_of(STEP);
    let angles = Arc::new(Angles::new(frequencies, places.clone(), amplitude));
    // A longer table of the same angles takes the place of the shorter.
    tables.retain(|table| {
        !(same(table) && places.start <= table.places.start && table.places.end <= places.end)
    });
    if tables.len() == KEPT {
        tables.remove(0);
    }
    tables.push(Table {
        frequencies: frequencies.to_vec(),
        amplitude,
        places,
        angles: angles.clone(),
    });
    angles
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
            for (places, amplitude) in asked.clone() {
                let found = of(frequencies, places.clone(), amplitude);
                let expected = Angles::new(frequencies, places.clone(), amplitude);
                for place in places {
                    assert_eq!(found.at(place), expected.at(place));
                }
            }
        }
        assert!(TABLES.lock().unwrap().len() <= KEPT);
    }
}
