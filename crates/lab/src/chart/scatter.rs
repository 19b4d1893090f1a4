//! Scatter: named dots, such as quality against cost.

use super::{
    axis::{Axis, Ends, said},
    frame::Frame,
    labels::Area,
    marker::{color, mark},
    svg::{Anchor, line, shortened, width_of},
};

/// Dots with their names beside them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scatter {
    /// What the chart shows.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The dots.
    pub points: Vec<Dot>,
}

/// A named dot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dot {
    /// What it is called in the picture.
    pub name: String,
    /// Across.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// Low and high of `y`.
    pub spread: Option<(f64, f64)>,
}

const NAME: usize = 32; // characters of a name that are shown
const TEXT: f64 = 13.0; // height of a name
const STEPS: [f64; 3] = [9.0, 17.0, 28.0]; // how far a name may stand from its dot

impl Scatter {
    /// The chart as an `<svg>` element.
    pub fn svg(&self) -> String {
        let spreads = self.points.iter().filter_map(|dot| dot.spread);
        let y = self.points.iter().map(|dot| dot.y).chain(spreads.flat_map(|(l, h)| [l, h]));
        let x = (&self.x, self.points.iter().map(|dot| dot.x));
        let frame = Frame::new(&self.title, x, (&self.y, y), Ends::Room, (24.0, 0.0));
        let mut svg = frame.open();
        let placed: Vec<(usize, (f64, f64))> = (self.points.iter().enumerate())
            .filter_map(|(i, dot)| Some((i, frame.at((dot.x, dot.y))?)))
            .filter(|(_, place)| frame.holds(*place))
            .collect();
        if placed.is_empty() {
            frame.say_empty(&mut svg);
            return svg.finish();
        }
        let corner = (frame.left, frame.top);
        svg.clipped(corner, (frame.width, frame.height), |svg| {
            for (i, _) in &placed {
                let dot = &self.points[*i];
                let ends = dot.spread.map(|(l, h)| [l, h].map(|y| frame.within((dot.x, y))));
                if let Some([Some(low), Some(high)]) = ends {
                    svg.path(&format!("spread {}", color(*i)), &line([low, high]), "");
                }
            }
        });
        let (right, bottom) = frame.end();
        let plot = Area { left: frame.left, top: frame.top, right: right + 20.0, bottom };
        let mut taken: Vec<Area> = placed.iter().map(|(_, p)| Area::around(*p, 6.0)).collect();
        for (i, place) in &placed {
            let dot = &self.points[*i];
            svg.path(&format!("mark {}", color(*i)), &mark(*i, *place), &hint(dot));
            let name = shortened(&dot.name, NAME);
            let (area, anchor, far) = name_place(&name, *place, &taken, &plot);
            let start = if anchor == Anchor::End { area.right } else { area.left };
            if far {
                let x = place.0.clamp(area.left, area.right);
                let y = place.1.clamp(area.top, area.bottom);
                svg.path(&format!("lead {}", color(*i)), &line([*place, (x, y)]), "");
            }
            svg.text("name", (start, area.bottom - 3.0), anchor, &name);
            taken.push(area);
        }
        svg.finish()
    }
}

/// The free place for a name nearest to its dot, or the least covered one; and whether it needs a line to the dot.
fn name_place(name: &str, (x, y): (f64, f64), taken: &[Area], plot: &Area) -> (Area, Anchor, bool) {
    let width = width_of(name);
    let candidates = STEPS.iter().flat_map(|step| {
        let heights = [0.0, -1.0, 1.0, -0.6, 0.6];
        heights.into_iter().flat_map(move |up| {
            let side = if f64::abs(up) == 1.0 { 0.0 } else { *step };
            let top = y + up * step - TEXT / 2.0;
            let area = |left: f64| Area { left, top, right: left + width, bottom: top + TEXT };
            let far = *step > STEPS[0];
            [
                (area(x + side), Anchor::Start, far),
                (area(x - side - width), Anchor::End, far),
                (area(x - width / 2.0), Anchor::Start, far || up.abs() != 1.0),
            ]
            .into_iter()
            .filter(move |(area, _, _)| Area::around((x, y), 4.0).overlap(area) == 0.0)
        })
    });
    let cost = |area: &Area| {
        taken.iter().map(|other| area.overlap(other)).sum::<f64>() + 4.0 * area.outside(plot)
    };
    let mut best: Option<(f64, (Area, Anchor, bool))> = None;
    for candidate in candidates {
        let cost = cost(&candidate.0);
        if best.as_ref().is_none_or(|(least, _)| cost + 0.01 < *least) {
            best = Some((cost, candidate));
        }
    }
    best.expect("there are places to the right and left of every dot").1
}

fn hint(dot: &Dot) -> String {
    let mut hint = format!("{}: {} at {}", dot.name, said(dot.y), said(dot.x));
    if let Some((low, high)) = dot.spread {
        hint.push_str(&format!(" ({} to {})", said(low), said(high)));
    }
    hint
}
