//! Labels that do not cover each other.

/// A rectangle by its left, top, right and bottom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Area {
    pub(super) fn around((x, y): (f64, f64), radius: f64) -> Self {
        Self { left: x - radius, top: y - radius, right: x + radius, bottom: y + radius }
    }

    /// How much of another area this one covers.
    pub(super) fn overlap(&self, other: &Self) -> f64 {
        let width = self.right.min(other.right) - self.left.max(other.left);
        let height = self.bottom.min(other.bottom) - self.top.max(other.top);
        width.max(0.0) * height.max(0.0)
    }

    /// How much of this area lies outside of another.
    pub(super) fn outside(&self, other: &Self) -> f64 {
        (self.right - self.left) * (self.bottom - self.top) - self.overlap(other)
    }
}

/// Moves heights apart until they differ by `gap`, each as little as possible, inside of `low..=high` if there is room.
/// The order is kept.
pub(super) fn spread(heights: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by(|a, b| heights[*a].total_cmp(&heights[*b]));
    // Groups of labels that touch, each centered on the mean of where its labels want to be.
    let inside = |center: f64, count: usize| {
        let half = gap * (count - 1) as f64 / 2.0;
        center.min(high - half).max(low + half)
    };
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for &index in &order {
        groups.push((inside(heights[index], 1), 1));
        while let [.., (above, many), (below, few)] = groups[..] {
            let count = many + few;
            if below - above >= gap * count as f64 / 2.0 {
                break;
            }
            let center = (above * many as f64 + below * few as f64) / count as f64;
            groups.truncate(groups.len() - 2);
            groups.push((inside(center, count), count));
        }
    }
    let mut places = vec![0.0; heights.len()];
    let mut next = order.into_iter();
    for (center, count) in groups {
        let start = center - gap * (count - 1) as f64 / 2.0;
        for (i, index) in next.by_ref().take(count).enumerate() {
            places[index] = start + gap * i as f64;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_labels_keep_their_order_and_distance() {
        let wanted = [50.0, 52.0, 10.0, 99.0, 98.0, 51.0];
        let places = spread(&wanted, 12.0, 0.0, 100.0);
        for (i, a) in wanted.iter().enumerate() {
            for (j, b) in wanted.iter().enumerate() {
                if a < b {
                    assert!(places[j] - places[i] > 11.999, "{places:?}");
                }
            }
        }
        assert_eq!(places[2], 10.0);
        assert!(places.iter().all(|place| (0.0..=100.0).contains(place)));
        assert_eq!(spread(&[], 12.0, 0.0, 1.0), Vec::<f64>::new());
    }
}
