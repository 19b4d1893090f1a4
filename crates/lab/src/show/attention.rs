//! `show attention`: the heads of a trained model over a text of any length.
//!
//! Short texts are drawn token by token. For long ones weights are recomputed tile by tile and pooled into a map of fixed
//! size, so memory grows with the length and not with its square.

use whatwhere_kernels::attention::{Inspection, Pooling};
use whatwhere_transformer::{AttentionInput, Site};

use super::{Page, Picture, Reading, Section};
use crate::{
    Error,
    chart::{Axis, Heat, Lines, Series},
};

const SHORT: usize = 128; // tokens that are drawn one by one
const PANEL: usize = 48; // tokens whose names can be read in a small picture
const BINS: usize = 128; // points of a curve over a long text
const STRONG: usize = 98; // percent of the cells of a pooled map that are below full color
const STRONGEST: usize = 3; // keys named for each query

/// Which layers and heads are drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heads {
    /// From 0; all if empty.
    pub layers: Vec<usize>,
    /// From 0; all if empty.
    pub heads: Vec<usize>,
}

impl Heads {
    /// Whether a layer is drawn.
    pub(super) fn has_layer(&self, layer: usize) -> bool {
        self.layers.is_empty() || self.layers.contains(&layer)
    }

    /// The heads drawn of so many.
    pub(super) fn of(&self, count: usize) -> Vec<usize> {
        let all = || (0..count).collect();
        if self.heads.is_empty() { all() } else { self.heads.clone() }
    }

    /// Refuses layers and heads that the model does not have.
    pub(super) fn check(&self, reading: &Reading) -> Result<(), Error> {
        let seen = reading.seen();
        let layers = seen.iter().map(|seen| seen.layer + 1).max().unwrap_or(0);
        let heads = seen.iter().map(|seen| reading.attention(seen).settings().heads).min();
        let inside = |what: &str, asked: &[usize], count: usize| match asked
            .iter()
            .find(|index| **index >= count)
        {
            Some(index) => {
                let last = count.saturating_sub(1);
                Err(Error::Request(format!("found {what} {index}, expected 0 to {last}")))
            }
            None => Ok(()),
        };
        inside("layer", &self.layers, layers)?;
        inside("head", &self.heads, heads.unwrap_or(0))
    }
}

/// Draws the heads of a run over a text it has read.
pub fn attention(reading: &Reading, heads: &Heads) -> Result<Page, Error> {
    heads.check(reading)?;
    let chosen = reading.seen().iter().filter(|seen| heads.has_layer(seen.layer));
    let sections = chosen.map(|seen| layer(reading, seen, heads));
    let sections = sections.collect::<Result<Vec<_>, _>>()?;
    let tokens = reading.seen().first().map_or(0, |seen| reading.queries(seen.site).len());
    let title = format!("Attention over {tokens} tokens");
    Ok(Page { title, words: reading.about(), text: reading.text().into(), sections })
}

fn layer(reading: &Reading, seen: &AttentionInput, heads: &Heads) -> Result<Section, Error> {
    let attention = reading.attention(seen);
    let (queries, keys) = (reading.queries(seen.site).len(), reading.keys(seen.site).len());
    let look = attention.look(seen.input.clone())?;
    let (call, inputs) = (look.call(), look.inputs());
    let kernels = |error: whatwhere_kernels::Error| Error::Attention(error.into());
    let made = call.forward(&inputs).map_err(kernels)?;
    let inspection = call.inspect(&inputs, &made).map_err(kernels)?;
    let chosen = heads.of(call.shape.heads);
    let is_short = queries <= SHORT && keys <= SHORT;
    let cells = if chosen.len() == 1 { 160 } else { 64 };
    let mut drawn = Drawn { reading, seen, inspection, pictures: Vec::new() };
    for head in &chosen {
        if is_short { drawn.tokens(*head) } else { drawn.pooled(*head, cells) }.map_err(kernels)?;
    }
    drawn.spread(&chosen).map_err(kernels)?;
    let table = match chosen[..] {
        [head] if is_short => drawn.strongest(head).map_err(kernels)?,
        _ => Vec::new(),
    };
    let settings = attention.settings();
    let positions: Vec<&str> = settings.position.iter().map(|position| position.name()).collect();
    let mut words = vec![format!(
        "Score {}, pattern {}, position {}.",
        settings.score.name(),
        settings.pattern.name(),
        match positions[..] {
            [] => "none in the layer".to_owned(),
            _ => positions.join(" and "),
        }
    )];
    if !is_short {
        words.push(format!(
            "{queries} queries and {keys} keys. A cell shows the strongest weight among the tokens it stands for; the strongest \
             {} % of the cells have full color.",
            100 - STRONG
        ));
    }
    let (heading, pictures) = (heading(seen), drawn.pictures);
    let is_small = !is_short || queries.max(keys) <= PANEL;
    let side_by_side = chosen.len() > 1 && is_small;
    Ok(Section { heading, words, pictures, side_by_side, table })
}

/// Where an attention stands, in words.
pub(super) fn heading(seen: &AttentionInput) -> String {
    format!("{} layer {}", seen.site.name(), seen.layer)
}

/// The same as the beginning of a file's name.
pub(super) fn stem(seen: &AttentionInput) -> String {
    let site = match seen.site {
        Site::Encoder => "encoder",
        Site::Decoder => "decoder",
        Site::Cross => "cross",
    };
    format!("{site}-layer{}", seen.layer)
}

/// One attention being drawn.
struct Drawn<'a> {
    reading: &'a Reading<'a>,
    seen: &'a AttentionInput,
    inspection: Inspection<'a>,
    pictures: Vec<Picture>,
}

impl Drawn<'_> {
    fn words(&self) -> (Vec<String>, Vec<String>) {
        let site = self.seen.site;
        let words = |tokens: &[u32]| self.reading.words(tokens);
        (words(self.reading.queries(site)), words(self.reading.keys(site)))
    }

    /// Every weight of a head.
    fn tokens(&mut self, head: usize) -> Result<(), whatwhere_kernels::Error> {
        let (rows, columns) = self.words();
        let map = self.inspection.tile(0, head, 0..rows.len(), 0..columns.len())?;
        let values = map.chunks_exact(columns.len()).map(floats).collect();
        self.map(head, (rows, columns), values, None);
        Ok(())
    }

    /// The map of a head in cells.
    fn pooled(&mut self, head: usize, cells: usize) -> Result<(), whatwhere_kernels::Error> {
        let site = self.seen.site;
        let (queries, keys) = (self.reading.queries(site).len(), self.reading.keys(site).len());
        let (rows, columns) = (queries.min(cells), keys.min(cells));
        let map = self.inspection.pooled(0, head, rows, columns, Pooling::Max)?;
        let starts = |cells: usize, length: usize| {
            (0..cells).map(|cell| (cell * length).div_ceil(cells).to_string()).collect()
        };
        let values = map.chunks_exact(columns).map(floats).collect();
        // The first queries see few keys and have large weights, beside which all others would be pale.
        let mut seen: Vec<f32> = map.into_iter().filter(|weight| *weight > 0.0).collect();
        seen.sort_by(f32::total_cmp);
        let strong = seen.get(seen.len() * STRONG / 100).map(|weight| (0.0, f64::from(*weight)));
        self.map(head, (starts(rows, queries), starts(columns, keys)), values, strong);
        Ok(())
    }

    fn map(
        &mut self,
        head: usize,
        (rows, columns): (Vec<String>, Vec<String>),
        values: Vec<Vec<f64>>,
        range: Option<(f64, f64)>,
    ) {
        let chart = Heat {
            title: format!("{}, head {head}", heading(self.seen)),
            x: "key".into(),
            y: "query".into(),
            columns,
            rows,
            values,
            range,
            diverging: false,
        };
        let name = format!("{}-head{head}", stem(self.seen));
        self.pictures.push(Picture::new(name, chart.svg(), ""));
    }

    /// Among how many keys each query shares its weight.
    fn spread(&mut self, heads: &[usize]) -> Result<(), whatwhere_kernels::Error> {
        let entropy = self.inspection.entropy()?;
        let queries = self.reading.queries(self.seen.site).len();
        let bins = queries.min(BINS);
        let series = heads.iter().map(|head| {
            let values = &entropy[head * queries..(head + 1) * queries];
            let points = (0..bins).map(|bin| {
                let range = bin * queries / bins..(bin + 1) * queries / bins;
                let keys = values[range.clone()].iter().map(|e| f64::from(*e).exp());
                (range.start as f64, keys.sum::<f64>() / range.len() as f64)
            });
            Series { name: format!("head {head}"), points: points.collect(), ..Default::default() }
        });
        let series: Vec<Series> = series.collect();
        let most = series.iter().flat_map(|series| &series.points).map(|point| point.1);
        let most = most.fold(1.0, f64::max);
        let chart = Lines {
            title: format!("{}: keys that share a query's weight", heading(self.seen)),
            x: Axis::linear("position of the query"),
            y: Axis::linear("keys (e to the entropy)").with_range(0.0, 1.05 * most),
            series,
            marks: false,
            rule: None,
        };
        let name = format!("{}-spread", stem(self.seen));
        let caption = "1: one key has all of it. As many as are visible: all have the same.";
        self.pictures.push(Picture::new(name, chart.svg(), caption));
        Ok(())
    }

    /// The strongest keys of each query.
    fn strongest(&self, head: usize) -> Result<Vec<Vec<String>>, whatwhere_kernels::Error> {
        let (queries, keys) = self.words();
        let best = self.inspection.top(0, head, 0..queries.len(), STRONGEST)?;
        let mut table = vec![vec!["query".to_owned(), "attends most to".to_owned()]];
        for (position, (query, best)) in queries.iter().zip(best).enumerate() {
            let named = best.iter().map(|(key, w)| format!("{key} {} ({w:.2})", keys[*key]));
            let named: Vec<String> = named.collect();
            table.push(vec![format!("{position} {query}"), named.join(", ")]);
        }
        Ok(table)
    }
}

/// Weights of a row; 0, which no visible pair has, stays blank.
fn floats(row: &[f32]) -> Vec<f64> {
    row.iter().map(|weight| if *weight == 0.0 { f64::NAN } else { f64::from(*weight) }).collect()
}
