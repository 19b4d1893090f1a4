//! Axes: what range they show, and where they have ticks.

/// One axis of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// What is measured, with its unit.
    pub label: String,
    /// How values become distances.
    pub scale: Scale,
    /// The least and the greatest value shown; from the data if absent.
    pub range: Option<(f64, f64)>,
}

/// How values become distances on an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally far apart.
    #[default]
    Linear,
    /// Equal ratios are equally far apart; values of 0 and below are left out.
    Log,
}

impl Axis {
    /// An axis of equal differences.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), ..Self::default() }
    }

    /// An axis of equal ratios.
    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log, range: None }
    }

    /// The same axis with a fixed range.
    pub fn with_range(self, low: f64, high: f64) -> Self {
        Self { range: Some((low, high)), ..self }
    }
}

/// Values beyond this are no measurements, and differences of them would overflow.
const GREATEST: f64 = 1e300;
/// Ticks of a log axis stand at the data's own values if there are no more of them.
const FEW: usize = 10;
/// Share of the data's extent that is left free at an end with room.
const ROOM: f64 = 0.03;
/// Least share of an axis between two ticks of a log axis.
const APART: f64 = 0.07;

/// An axis with its range and ticks decided.
#[derive(Clone, Debug)]
pub(super) struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
    /// Values and their labels.
    pub(super) ticks: Vec<(f64, String)>,
}

/// Where an axis ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// At the least and greatest value.
    Data,
    /// At the next tick beyond them.
    Ticks,
    /// The same with some room, so that no dot stands on the edge.
    Room,
}

impl Ruler {
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>, ends: Ends) -> Self {
        let mut values: Vec<f64> = values.filter(|value| fits(axis.scale, *value)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let fixed = axis
            .range
            .filter(|(low, high)| fits(axis.scale, *low) && fits(axis.scale, *high) && low < high);
        let (low, high) = fixed.unwrap_or_else(|| {
            let (low, high) = range(axis.scale, &values);
            match (ends, axis.scale) {
                (Ends::Room, Scale::Linear) => {
                    // Nothing below 0 is invented.
                    let room = (high - low) * ROOM;
                    (if low >= 0.0 { (low - room).max(0.0) } else { low - room }, high + room)
                }
                (Ends::Room, Scale::Log) => {
                    let room = (high / low).powf(ROOM);
                    (low / room, high * room)
                }
                _ => (low, high),
            }
        });
        match axis.scale {
            Scale::Linear => {
                let step = step(high - low);
                let (low, high) = match (fixed, ends) {
                    (None, Ends::Ticks | Ends::Room) => {
                        ((low / step).floor() * step, (high / step).ceil() * step)
                    }
                    _ => (low, high),
                };
                Self { scale: axis.scale, low, high, ticks: linear_ticks(low, high, step) }
            }
            Scale::Log => {
                let ticks = log_ticks(low, high, &values, ends);
                Self { scale: axis.scale, low, high, ticks }
            }
        }
    }

    /// Where a value stands, 0 at the axis' beginning and 1 at its end; beyond them if it lies outside the range.
    pub(super) fn share(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || self.scale == Scale::Log && value <= 0.0 {
            return None;
        }
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        // Far outside is as good as outside, and keeps coordinates short.
        share.is_finite().then(|| share.clamp(-9.0, 10.0))
    }

    /// The value 0 or, if it is not shown, the axis' beginning.
    pub(super) fn base(&self) -> f64 {
        self.share(0.0).unwrap_or(0.0).clamp(0.0, 1.0)
    }
}

fn fits(scale: Scale, value: f64) -> bool {
    value.is_finite()
        && value.abs() <= GREATEST
        && (scale == Scale::Linear || value >= 1.0 / GREATEST)
}

/// A range with some extent that holds all of the sorted values.
fn range(scale: Scale, values: &[f64]) -> (f64, f64) {
    let (Some(&low), Some(&high)) = (values.first(), values.last()) else {
        return if scale == Scale::Linear { (0.0, 1.0) } else { (1.0, 10.0) };
    };
    match scale {
        Scale::Linear if high - low > 1e-9 * low.abs().max(high.abs()) => (low, high),
        Scale::Linear => {
            let room = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
            (low - room, high + room)
        }
        Scale::Log if high / low > 1.0 + 1e-9 => (low, high),
        Scale::Log => (low / 2.0, high * 2.0),
    }
}

/// A step of 1, 2 or 5 times a power of ten that cuts a range into four to nine parts.
fn step(extent: f64) -> f64 {
    let rough = extent / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let nice = match rough / power {
        r if r < 1.5 => 1.0,
        r if r < 3.5 => 2.0,
        r if r < 7.5 => 5.0,
        _ => 10.0,
    };
    (nice * power).max(f64::MIN_POSITIVE)
}

fn linear_ticks(low: f64, high: f64, step: f64) -> Vec<(f64, String)> {
    let slack = step * 1e-6;
    let first = ((low - slack) / step).ceil();
    (0..16)
        .map(|i| (first + f64::from(i)) * step)
        .take_while(|tick| *tick <= high + slack)
        .map(|tick| (tick, label(tick, step)))
        .collect()
}

fn log_ticks(low: f64, high: f64, values: &[f64], ends: Ends) -> Vec<(f64, String)> {
    let decades = (high / low).log10();
    let own = ends == Ends::Data && !values.is_empty() && values.len() <= FEW;
    let wanted: Vec<f64> = if own {
        values.to_vec()
    } else if decades < 0.8 {
        linear_ticks(low, high, step(high - low)).into_iter().map(|(tick, _)| tick).collect()
    } else {
        let factors: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let stride = (decades / 7.0).ceil().max(1.0) as i32;
        let first = low.log10().floor() as i32;
        let last = high.log10().ceil() as i32;
        (first..=last)
            .filter(|power| power.rem_euclid(stride) == 0)
            .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
            .collect()
    };
    let mut ticks: Vec<(f64, String)> = Vec::new();
    let mut before = f64::NEG_INFINITY;
    for tick in wanted {
        let share = (tick / low).ln() / (high / low).ln();
        if (-1e-6..=1.0 + 1e-6).contains(&share) && share - before >= APART {
            before = share;
            // Not 100000 beside 10⁶.
            let scientific = high >= 1e6 && tick >= 1e4 && !own;
            let label = if scientific { self::scientific(tick) } else { label(tick, tick) };
            ticks.push((tick, label));
        }
    }
    ticks
}

/// A tick's label with as many decimals as steps of this size need.
pub(super) fn label(value: f64, step: f64) -> String {
    let step = step.abs();
    if value == 0.0 || value.abs() < step * 1e-6 {
        return "0".to_owned();
    }
    let text = if value.abs() >= 1e6 || value.abs() < 1e-3 {
        scientific(value)
    } else {
        let decimals = (0..=6).find(|d| {
            let scaled = step * 10f64.powi(*d);
            (scaled - scaled.round()).abs() < 1e-4 * scaled
        });
        format!("{value:.*}", decimals.unwrap_or(3) as usize)
    };
    text.replace('-', "−")
}

/// `2·10⁶`, with as few digits as it takes.
fn scientific(value: f64) -> String {
    let text = format!("{value:.2e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    let power: String = power
        .chars()
        .map(|c| match c {
            '-' => '⁻',
            c => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹']
                [c.to_digit(10).unwrap_or(0) as usize],
        })
        .collect();
    match digits {
        "1" => format!("10{power}"),
        digits => format!("{digits}·10{power}"),
    }
}

/// A value as it is said in a hint: four digits.
pub(super) fn said(value: f64) -> String {
    if !value.is_finite() {
        return "not a number".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = match value.abs() {
        a if !(1e-3..1e6).contains(&a) => scientific(value),
        a => {
            let decimals = (3 - a.log10().floor() as i32).clamp(0, 6) as usize;
            let text = format!("{value:.decimals$}");
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => text,
            }
        }
    };
    text.replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64], ends: Ends) -> Vec<String> {
        let ruler = Ruler::new(axis, values.iter().copied(), ends);
        ruler.ticks.into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_numbers_or_the_datas_own() {
        let linear = Axis::linear("");
        assert_eq!(
            labels(&linear, &[0.0, 1.0], Ends::Data),
            ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]
        );
        assert_eq!(labels(&linear, &[-3.0, 42.0], Ends::Ticks)[..2], ["−10", "0"]);
        let lengths = [256.0, 512.0, 1024.0, 2048.0, 4096.0];
        assert_eq!(
            labels(&Axis::log(""), &lengths, Ends::Data),
            ["256", "512", "1024", "2048", "4096"]
        );
        assert_eq!(labels(&Axis::log(""), &[1e6, 1e9], Ends::Ticks), ["10⁶", "10⁷", "10⁸", "10⁹"]);
    }

    #[test]
    fn every_range_has_extent_and_ticks_inside_it() {
        let cases: [&[f64]; 8] = [
            &[],
            &[0.0],
            &[5.0, 5.0],
            &[f64::NAN, f64::INFINITY],
            &[-1e300, 1e300],
            &[1e-300, 2e-300],
            &[1e16, 1e16 + 2.0],
            &[-3.0, 0.0],
        ];
        for values in cases {
            for scale in [Scale::Linear, Scale::Log] {
                for ends in [Ends::Data, Ends::Ticks, Ends::Room] {
                    let axis = Axis { scale, ..Axis::default() };
                    let ruler = Ruler::new(&axis, values.iter().copied(), ends);
                    assert!(ruler.low < ruler.high, "{values:?} {scale:?}");
                    assert!(!ruler.ticks.is_empty(), "{values:?} {scale:?} {ruler:?}");
                    for (tick, _) in &ruler.ticks {
                        let share = ruler.share(*tick).unwrap();
                        assert!((-1e-3..=1.001).contains(&share), "{values:?} {scale:?} {tick}");
                    }
                }
            }
        }
    }

    #[test]
    fn hints_have_four_digits() {
        assert_eq!(
            [1.23456, 12345.6, 0.00012345, -0.5].map(said),
            ["1.235", "12346", "1.23·10⁻⁴", "−0.5"]
        );
    }
}
