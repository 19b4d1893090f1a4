//! `show overview`: every pattern and every position encoding in one picture.

use whatwhere_attention::{Pattern, Position};

use super::{Page, Picture, Section, pattern, position::Drawn};
use crate::{
    Error,
    chart::{Content, Panel, Panels},
};

const LENGTH: usize = 448; // positions of a map
const CELLS: usize = 56; // of a map, across and down
const FARTHEST: usize = 64; // distance at either end of the curves

const TITLE: &str = "Who sees whom under every pattern, and how position alone changes a score";
const PATTERNS: &str = "Where may a query look?";
const POSITIONS: &str = "What does position do to a score?";

/// Draws all patterns and encodings with their default settings, as they are before training.
pub fn overview() -> Result<Page, Error> {
    let maps = Pattern::NAMES.iter().map(|name| map(name)).collect::<Result<_, _>>()?;
    let curves = Position::NAMES.iter().map(|name| curves(name)).collect::<Result<_, _>>()?;
    let patterns = Panels {
        title: PATTERNS.into(),
        note: format!(
            "{LENGTH} queries downwards, {LENGTH} keys across; filled: seen; beside the name: the share of pairs"
        ),
        columns: 7,
        panels: maps,
    };
    let positions = Panels {
        title: POSITIONS.into(),
        note: format!(
            "query in the middle, keys up to {FARTHEST} positions to either side, all of the same content; one curve for each head that differs"
        ),
        columns: 5,
        panels: curves,
    };
    let svg = Panels::svg(TITLE, &[patterns, positions]);
    let pictures = vec![Picture::new("overview", svg, "Default settings, before training.")];
    let section =
        Section { heading: "Patterns and positions".into(), pictures, ..Default::default() };
    Ok(Page { title: TITLE.into(), sections: vec![section], ..Page::default() })
}

fn map(name: &str) -> Result<Panel, Error> {
    let shares = pattern::shares(&pattern::settings(name, &[])?, LENGTH, CELLS)?;
    let seen: f64 = shares.iter().flatten().sum();
    let note = format!("{:.0} %", 100.0 * seen / (CELLS * CELLS) as f64);
    Ok(Panel { name: name.into(), note, content: Content::Map(shares) })
}

fn curves(name: &str) -> Result<Panel, Error> {
    let series = Drawn::new(name, &[], Some(FARTHEST))?.similarity()?;
    let content = Content::Curves(series.into_iter().map(|series| series.points).collect());
    Ok(Panel { name: name.into(), note: String::new(), content })
}
