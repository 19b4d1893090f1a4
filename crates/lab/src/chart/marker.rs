//! Marks that tell series apart without color.

use super::svg::number;

/// Series beyond this many share colors again.
pub(super) const KINDS: usize = 8;

/// The commands of a series' mark around a point.
pub(super) fn mark(series: usize, (x, y): (f64, f64)) -> String {
    let polygon = |points: &[(f64, f64)]| {
        let mut commands = String::new();
        for (i, (dx, dy)) in points.iter().enumerate() {
            let command = if i == 0 { 'M' } else { 'L' };
            commands.push_str(&format!("{command}{} {}", number(x + dx), number(y + dy)));
        }
        commands + "z"
    };
    match series % KINDS {
        0 => {
            let (x, y) = (number(x - 3.6), number(y));
            format!("M{x} {y}a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0z")
        }
        1 => polygon(&[(-3.2, -3.2), (3.2, -3.2), (3.2, 3.2), (-3.2, 3.2)]),
        2 => polygon(&[(0.0, -4.4), (4.2, 3.2), (-4.2, 3.2)]),
        3 => polygon(&[(0.0, -4.8), (4.8, 0.0), (0.0, 4.8), (-4.8, 0.0)]),
        4 => polygon(&[(0.0, 4.4), (4.2, -3.2), (-4.2, -3.2)]),
        5 => polygon(&[
            (-1.3, -4.4),
            (1.3, -4.4),
            (1.3, -1.3),
            (4.4, -1.3),
            (4.4, 1.3),
            (1.3, 1.3),
            (1.3, 4.4),
            (-1.3, 4.4),
            (-1.3, 1.3),
            (-4.4, 1.3),
            (-4.4, -1.3),
            (-1.3, -1.3),
        ]),
        6 => polygon(&[
            (0.0, -1.8),
            (2.6, -4.4),
            (4.4, -2.6),
            (1.8, 0.0),
            (4.4, 2.6),
            (2.6, 4.4),
            (0.0, 1.8),
            (-2.6, 4.4),
            (-4.4, 2.6),
            (-1.8, 0.0),
            (-4.4, -2.6),
            (-2.6, -4.4),
        ]),
        _ => polygon(&[(-4.4, 0.0), (3.0, -4.2), (3.0, 4.2)]),
    }
}

/// The class of a series' color; with it, the second eight have hollow marks.
pub(super) fn color(series: usize) -> String {
    let hollow = if series / KINDS % 2 == 1 { " hollow" } else { "" };
    format!("s{}{hollow}", series % KINDS)
}
