//! `show pattern`: who sees whom, and what it costs.

use std::ops::Range;

use burn::tensor::{Device, Distribution, Tensor};
use serde::Serialize;
use whatwhere_attention::{AttentionSettings, CallView, Input, Pattern};
use whatwhere_kernels::attention::pattern::{
    self as kernels, Causal, Full, Tile, computed_pairs, visible_pairs,
};
use whatwhere_settings::reference::choices;

use super::{
    Page, Picture, Section,
    choice::{drawing, named},
};
use crate::{
    Error,
    chart::{Axis, Heat, Lines, Series},
};

const CELLS: usize = 128; // of a map, across and down
const LENGTHS: [usize; 8] = [128, 256, 512, 1024, 2048, 4096, 8192, 16384];
const SEED: u64 = 0;
/// What costs are stated for: one head of this size.
const HEAD_DIM: u64 = 64;
/// One product for the scores and one for the values, a multiplication and an addition each.
const FLOPS: u64 = 4 * HEAD_DIM;

/// Draws a pattern by its name, changed by `key=value` pairs, or all of them if there is no name. The map shows `length`
/// positions, 512 unless given.
pub fn pattern(
    name: Option<&str>,
    changes: &[String],
    length: Option<usize>,
) -> Result<Page, Error> {
    let length = length.unwrap_or(512);
    if length == 0 {
        return Err(Error::Request("length = 0: expected at least 1 position".into()));
    }
    let names = match name {
        Some(name) => vec![name],
        None if changes.is_empty() => Pattern::NAMES.to_vec(),
        None => {
            let reason = "changes are those of one pattern; name it";
            return Err(Error::Request(format!("--set {}: {reason}", changes[0])));
        }
    };
    let title = match name {
        Some(name) => format!("Pattern: {name}"),
        None => "Patterns".to_owned(),
    };
    let sections = names.iter().map(|name| section(name, changes, length));
    Ok(Page { title, sections: sections.collect::<Result<_, _>>()?, ..Page::default() })
}

/// The smallest layer that has the pattern: it is the layer that knows what a pattern may depend on.
pub(super) fn settings(name: &str, changes: &[String]) -> Result<AttentionSettings, Error> {
    let common = "width = 8\nheads = 2\nposition = 'none'";
    named("pattern", Pattern::NAMES, name, changes, common)
}

fn section(name: &str, changes: &[String], length: usize) -> Result<Section, Error> {
    let settings = settings(name, changes)?;
    let about = choices::<Pattern>().into_iter().find(|about| about.name == name);
    let mut words: Vec<String> = about.map(|about| about.summary.join(" ")).into_iter().collect();
    let pattern = &settings.pattern;
    let notes = [
        (pattern.needs_documents(), "Drawn with four documents of equal length."),
        (pattern.needs_tokens(), "Drawn for a text with sixteen tokens of the kind, evenly apart."),
        (pattern.deviation().is_some(), "Drawn for untrained predictions of random content."),
        (pattern.differs_by_head(), "Drawn for the first head; each has its own draws."),
    ];
    words.extend(notes.iter().filter(|(holds, _)| *holds).map(|(_, note)| (*note).into()));
    let map = map(name, &settings, length)?;
    let costs = LENGTHS.iter().map(|length| Cost::of(&settings, *length));
    let costs: Vec<Cost> = costs.collect::<Result<_, _>>()?;
    let pictures = vec![map, cost_chart(name, &costs)];
    let mut table = vec![
        ["length", "visible pairs", "of full", "of causal", "computed pairs", "FLOPs forward"]
            .map(String::from)
            .to_vec(),
    ];
    table.extend(costs.iter().map(Cost::row));
    Ok(Section { heading: name.to_owned(), words, pictures, table, ..Default::default() })
}

/// The call of a layer with this pattern over so many tokens.
fn look(settings: &AttentionSettings, length: usize) -> Result<CallView, Error> {
    drawing(|| drawn(settings, length))
}

fn drawn(settings: &AttentionSettings, length: usize) -> Result<CallView, Error> {
    let device = Device::flex();
    device.seed(SEED);
    let mut settings = settings.clone();
    // Whatever a tokenizer calls them.
    let any = settings.pattern.with_tokens(&|_| Ok(0));
    settings.pattern = any.map_err(whatwhere_attention::Error::from)?;
    let layer = settings.build(&device)?;
    let x = Tensor::random([1, length, settings.width], Distribution::Normal(0.0, 1.0), &device);
    let mut input = Input::new(x);
    let starts = [0, length / 4, length / 2, length * 3 / 4];
    let mut starts = starts.to_vec();
    starts.dedup();
    input.documents = Some(vec![starts]);
    input.tokens = Some(vec![tokens(&settings.pattern, length)]);
    Ok(layer.look(input)?)
}

/// A text with sixteen tokens that the pattern asks for.
fn tokens(pattern: &Pattern, length: usize) -> Vec<u32> {
    let kind: Vec<u32> = pattern.tokens().iter().filter_map(|token| token.id()).collect();
    let other = (0..).find(|id| !kind.contains(id)).unwrap_or_default();
    let apart = length.div_ceil(16);
    let is_of_kind = |at: usize| at % apart == apart / 2;
    let mut of_kind = kind.iter().copied().cycle();
    let token = |at| of_kind.next().filter(|_| is_of_kind(at)).unwrap_or(other);
    (0..length).map(token).collect()
}

/// The share of visible pairs in each of `cells` × `cells` parts of a map.
pub(super) fn shares(
    settings: &AttentionSettings,
    length: usize,
    cells: usize,
) -> Result<Vec<Vec<f64>>, Error> {
    let look = look(settings, length)?;
    let pattern = look.call().pattern;
    let cell = |query: usize, key: usize| {
        let [queries, keys] = [query, key].map(|cell| positions(cell, length, cells));
        let tile = Tile { batch: 0, head: 0, queries, keys };
        let pairs = tile.queries.len() * tile.keys.len();
        visible_pairs(pattern, &tile) as f64 / pairs as f64
    };
    Ok((0..cells).map(|q| (0..cells).map(|k| cell(q, k)).collect()).collect())
}

fn positions(cell: usize, length: usize, cells: usize) -> Range<usize> {
    cell * length / cells..(cell + 1) * length / cells
}

fn map(name: &str, settings: &AttentionSettings, length: usize) -> Result<Picture, Error> {
    let cells = length.min(CELLS);
    let label = |cell: usize| positions(cell, length, cells).start.to_string();
    let chart = Heat {
        title: format!("{name}: who sees whom among {length} positions"),
        x: "key".into(),
        y: "query".into(),
        columns: (0..cells).map(label).collect(),
        rows: (0..cells).map(label).collect(),
        values: shares(settings, length, cells)?,
        range: Some((0.0, 1.0)),
        diverging: false,
    };
    let caption = match cells == length {
        true => "A query sees the keys that are filled in its row.",
        false => {
            "A cell stands for several positions; its strength is the share of pairs that are visible."
        }
    };
    Ok(Picture::new(format!("{name}-map"), chart.svg(), caption))
}

/// Pairs of one head at one length.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Cost {
    length: usize,
    visible: u64,
    computed: u64,
    full: u64,
    causal: u64,
}

impl Cost {
    pub(super) fn of(settings: &AttentionSettings, length: usize) -> Result<Self, Error> {
        let look = look(settings, length)?;
        let pattern = look.call().pattern;
        let tile = Tile { batch: 0, head: 0, queries: 0..length, keys: 0..length };
        let count = |pattern: &dyn kernels::Pattern| visible_pairs(pattern, &tile);
        Ok(Self {
            length,
            visible: count(pattern),
            computed: computed_pairs(pattern, &tile),
            full: count(&Full),
            causal: count(&Causal::upper_left()),
        })
    }

    fn row(&self) -> Vec<String> {
        let share = |of: u64| format!("{:.2} %", 100.0 * self.visible as f64 / of.max(1) as f64);
        vec![
            self.length.to_string(),
            self.visible.to_string(),
            share(self.full),
            share(self.causal),
            self.computed.to_string(),
            format!("{:.2e}", (self.computed * FLOPS) as f64),
        ]
    }
}

fn cost_chart(name: &str, costs: &[Cost]) -> Picture {
    let series = |name: &str, dashed: bool, pairs: fn(&Cost) -> u64| Series {
        name: name.into(),
        points: costs.iter().map(|c| (c.length as f64, (pairs(c) * FLOPS) as f64)).collect(),
        dashed,
        ..Default::default()
    };
    let chart = Lines {
        title: format!("{name}: cost of a forward pass against length"),
        x: Axis::log("length in tokens"),
        y: Axis::log(format!("FLOPs of one head of {HEAD_DIM} channels")),
        series: vec![
            series("computed", false, |cost| cost.computed),
            series("visible", false, |cost| cost.visible),
            series("full", true, |cost| cost.full),
            series("causal", true, |cost| cost.causal),
        ],
        marks: true,
        rule: None,
    };
    let caption = "Computed: what the kernels do, which skip tiles without a visible pair. Visible: the pairs alone.";
    Picture::new(format!("{name}-cost"), chart.svg(), caption)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_drawn_with_its_cost() {
        let page = pattern(None, &[], Some(40)).unwrap();
        assert_eq!(page.sections.len(), Pattern::NAMES.len());
        for (section, name) in page.sections.iter().zip(Pattern::NAMES) {
            assert_eq!(section.pictures[0].name, format!("{name}-map"));
            assert_eq!(section.pictures[1].name, format!("{name}-cost"));
            assert_eq!(section.table.len(), LENGTHS.len() + 1);
        }
        assert!(!page.html().contains("NaN"));
    }

    #[test]
    fn tokens_of_a_kind_are_drawn_where_they_stand() {
        let settings = settings("global", &["tokens=['.', 7]".into()]).unwrap();
        let shown = shares(&settings, 32, 32).unwrap();
        for (query, row) in shown.iter().enumerate() {
            for (key, share) in row.iter().enumerate() {
                let expected = f64::from(u8::from(query % 2 == 1 || key % 2 == 1));
                assert_eq!(*share, expected, "{query} {key}");
            }
        }
        let page = pattern(Some("global"), &["tokens=['.']".into()], Some(40)).unwrap();
        assert!(page.html().contains("sixteen tokens of the kind"));
    }

    #[test]
    fn costs_are_those_of_the_closed_forms() {
        let cost = |name: &str, change: &[String]| {
            let settings = named("pattern", Pattern::NAMES, name, change, "width = 8\nheads = 2");
            Cost::of(&settings.unwrap(), 1024).unwrap()
        };
        let full = cost("full", &[]);
        assert_eq!((full.visible, full.computed), (1024 * 1024, 1024 * 1024));
        let window = cost("window", &["left=9".into()]);
        assert_eq!(window.visible, 10 * 1024 - 45);
        assert!(window.visible < window.computed && window.computed < full.computed / 8);
    }

    #[test]
    fn names_and_lengths_that_make_no_sense_are_refused() {
        let refused = |name, changes: &[&str], length| {
            let changes: Vec<String> = changes.iter().map(|change| (*change).into()).collect();
            pattern(name, &changes, Some(length)).unwrap_err().to_string()
        };
        assert!(refused(Some("widow"), &[], 9).contains("there are full, causal, window"));
        assert!(refused(Some("window"), &["left=0"], 9).contains("pattern.left = 0"));
        assert!(refused(None, &["left=3"], 9).contains("name it"));
        assert!(refused(Some("full"), &[], 0).contains("at least 1"));
    }
}
