//! `show position`: an encoding as it is before training.
//!
//! Encodings of embeddings are drawn as the vectors they add; all others by the terms they give a call: scores against
//! distance of contents that are all alike, biases, relative vectors, and angles.

use std::{f64::consts::TAU, sync::Arc};

use burn::tensor::{Device, Tensor, TensorData};
use whatwhere_attention::{
    CallView, Heads, Position,
    call::{Bias, Call, Feature, value},
    position::{PositionLayer, PositionModule},
    slot::Terms,
};
use whatwhere_kernels::attention::{
    Angles, Score, Shape,
    pattern::{Full, Pattern},
    reference,
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

pub(super) const WIDTH: usize = 128;
const HEADS: usize = 4;
/// Distance up to which an encoding is drawn.
const FARTHEST: usize = 256;
/// Columns of a grid that is drawn whole.
const LARGEST: usize = 64;
/// Entries of a table that can be drawn.
const MOST: usize = 1 << 16;
/// Tables that learn are drawn as they start, from this seed.
const SEED: u64 = 0;

/// Draws an encoding by its name, changed by `key=value` pairs, or all of them if there is no name. Distances reach `length`
/// positions to either side, 256 unless given; for one that clips distances earlier, a little beyond its reach.
pub fn position(
    name: Option<&str>,
    changes: &[String],
    length: Option<usize>,
) -> Result<Page, Error> {
    if length == Some(0) {
        return Err(Error::Request("length = 0: expected at least 1 position".into()));
    }
    let names = match name {
        Some(name) => vec![name],
        None if changes.is_empty() => Position::NAMES.to_vec(),
        None => {
            let reason = "changes are those of one encoding; name it";
            return Err(Error::Request(format!("--set {}: {reason}", changes[0])));
        }
    };
    let title = match name {
        Some(name) => format!("Position: {name}"),
        None => "Positions".to_owned(),
    };
    let sections = names.iter().map(|name| section(name, changes, length));
    Ok(Page { title, sections: sections.collect::<Result<_, _>>()?, ..Page::default() })
}

fn section(name: &str, changes: &[String], length: Option<usize>) -> Result<Section, Error> {
    let drawn = Drawn::new(name, changes, length)?;
    let about = choices::<Position>().into_iter().find(|about| about.name == name);
    let words = about.map(|about| about.summary.join(" ")).into_iter().collect();
    let pictures =
        if drawn.position.embeds() { drawn.embedding()? } else { drawn.call_pictures()? };
    Ok(Section { heading: name.to_owned(), words, pictures, ..Default::default() })
}

/// An encoding being drawn.
pub(super) struct Drawn {
    pub(super) name: String,
    pub(super) position: Position,
    pub(super) layer: PositionModule,
    heads: Heads,
    pub(super) length: usize,
    pub(super) device: Device,
}

impl Drawn {
    pub(super) fn new(
        name: &str,
        changes: &[String],
        length: Option<usize>,
    ) -> Result<Self, Error> {
        let common = format!("width = {WIDTH}\nheads = {HEADS}\npattern = 'full'");
        let settings = named("position", Position::NAMES, name, changes, &common)?;
        let (position, heads) = (settings.position[0].clone(), settings.sizes()?);
        let entries = position.entries();
        if entries > MOST {
            let reason =
                format!("a table of {entries} entries, expected at most {MOST} to draw it");
            return Err(Error::Request(format!("position {name}: {reason}")));
        }
        let device = Device::flex();
        let layer = drawing(|| -> Result<_, Error> {
            device.seed(SEED);
            let layer = position.build(&heads, &device)?;
            // Parameters are drawn when they are first looked at, which a copy does.
            Ok(layer.clone())
        })?;
        let own = match (position.reach(), position.grid()) {
            (Some(reach), _) => (3 * reach).clamp(1, FARTHEST),
            // From the middle of a square to its ends.
            (None, Some(grid)) if grid <= LARGEST => (grid / 2 * grid + grid / 2).max(1),
            (None, _) => FARTHEST,
        };
        let length = length.unwrap_or(own);
        Ok(Self { name: name.to_owned(), position, layer, heads, length, device })
    }

    /// How alike two positions are by their distance, one curve for each head that differs.
    pub(super) fn similarity(&self) -> Result<Vec<Series>, Error> {
        match self.position.embeds() {
            true => self.similarity_of_embeddings(self.table()?),
            false => self.by_head(&self.call()?, false),
        }
    }

    /// A call of one query in the middle, and keys as far as asked on both sides.
    pub(super) fn call(&self) -> Result<Call, Error> {
        self.call_of(&self.position, &self.layer)
    }

    pub(super) fn call_of(
        &self,
        position: &Position,
        layer: &PositionModule,
    ) -> Result<Call, Error> {
        let keys = 2 * self.length + 1;
        let shape =
            Shape { queries: 1, ..Shape::square(1, self.heads.heads, keys, self.heads.head_dim) };
        let mut terms = Terms::new(shape, ());
        terms.first_query = self.length;
        position.add_terms(&mut terms)?;
        let full: Arc<dyn Pattern> = Arc::new(Full);
        Ok(terms.map(full, |slot| {
            let array = layer.array(slot.array, &terms).expect("an array of the layer");
            value(slot, array, shape.heads)
        }))
    }

    /// Another encoding for the same heads.
    pub(super) fn built(&self, position: &Position) -> Result<PositionModule, Error> {
        Ok(position.build(&self.heads, &self.device)?)
    }

    /// Pictures of the terms an encoding adds to a call.
    fn call_pictures(&self) -> Result<Vec<Picture>, Error> {
        let call = self.call()?;
        let mut pictures = vec![self.lines(
            "similarity",
            "score against distance",
            ("distance (key − query)", "score"),
            self.by_head(&call, false)?,
            "The score of a query and keys that all hold ones: only the distance tells them apart.",
        )];
        pictures.extend(self.map_on_grid(&self.by_head(&call, false)?[0].points));
        if !call.biases.is_empty() {
            pictures.push(self.lines(
                "bias",
                "what is added to a score",
                ("distance (key − query)", "bias"),
                self.by_head(&call, true)?,
                "The part of the score that does not come from comparing query and key.",
            ));
        }
        for bias in &call.biases {
            if let Bias::Relative { vectors, .. } = bias {
                let (count, width) = (vectors.count(), self.heads.head_dim);
                let head = floats(vectors.table.clone().narrow(0, 0, count * width));
                pictures.push(self.vectors(&head, (count, width), vectors.left));
            }
        }
        let unscaled = match self.position.unscaled() {
            Some(position) => self.call_of(&position, &self.built(&position)?)?.features,
            None => Vec::new(),
        };
        for (i, feature) in call.features.iter().enumerate() {
            pictures.extend([self.wavelengths(feature, unscaled.get(i)), self.turns(feature)]);
        }
        Ok(pictures)
    }

    /// Scores of contents that are all ones, or only what is added to them, one curve for each head that differs.
    pub(super) fn by_head(&self, call: &Call, bias_only: bool) -> Result<Vec<Series>, Error> {
        let (heads, dim, keys) = (self.heads.heads, self.heads.head_dim, 2 * self.length + 1);
        let ones = |length: usize| Tensor::<4>::ones([1, heads, length, dim], &self.device);
        let look = CallView::new(call, ones(1), ones(keys), ones(keys));
        let mut call = look.call();
        if bias_only {
            call.score = Score::Dot { scale: 0.0 };
        }
        let scores = reference::scores(&call, &look.inputs()).map_err(kernels)?;
        let curves: Vec<&[f64]> = scores.chunks_exact(keys).collect();
        let alike = curves.iter().all(|curve| *curve == curves[0]);
        let shown = if alike { 1 } else { curves.len() };
        let series = curves.iter().take(shown).enumerate().map(|(head, curve)| Series {
            name: if alike { String::new() } else { format!("head {head}") },
            points: curve
                .iter()
                .enumerate()
                .map(|(key, score)| (key as f64 - self.length as f64, *score))
                .collect(),
            ..Default::default()
        });
        Ok(series.collect())
    }

    /// Scores against distance, laid out on the grid of an encoding that has one.
    pub(super) fn map_on_grid(&self, scores: &[(f64, f64)]) -> Option<Picture> {
        let grid = self.position.grid().filter(|grid| *grid <= LARGEST)?;
        let query = scores.iter().position(|(distance, _)| *distance == 0.0)?;
        let map = Heat {
            title: format!(
                "{}: from row {}, column {}, head 0",
                self.name,
                query / grid,
                query % grid
            ),
            x: "column".into(),
            y: "row".into(),
            columns: (0..grid).map(|column| column.to_string()).collect(),
            rows: (0..scores.len() / grid).map(|row| row.to_string()).collect(),
            values: scores
                .chunks_exact(grid)
                .map(|row| row.iter().map(|at| at.1).collect())
                .collect(),
            diverging: true,
            ..Default::default()
        };
        let caption = "The same scores where their keys stand on the grid.";
        Some(Picture::new(format!("{}-grid", self.name), map.svg(), caption))
    }

    /// Relative vectors of one head.
    fn vectors(&self, table: &[f32], (count, width): (usize, usize), left: usize) -> Picture {
        // A map of thousands of rows is a blur: the nearest distances are drawn.
        let near = left.saturating_sub(32)..(left + 33).min(count);
        let row = |entry: usize| {
            table[entry * width..(entry + 1) * width].iter().map(|v| f64::from(*v)).collect()
        };
        let map = Heat {
            title: format!("{}: vectors by distance, head 0", self.name),
            x: "channel".into(),
            y: "distance".into(),
            columns: (0..width).map(|c| c.to_string()).collect(),
            rows: near.clone().map(|entry| (entry as i64 - left as i64).to_string()).collect(),
            values: near.map(row).collect(),
            diverging: true,
            ..Default::default()
        };
        let caption = "What a query is compared with for a distance, before training.";
        Picture::new(format!("{}-vectors", self.name), map.svg(), caption)
    }

    fn wavelengths(&self, feature: &Feature, unscaled: Option<&Feature>) -> Picture {
        let frequencies = feature.angles.frequencies();
        let points = |frequencies: &[f64]| {
            frequencies.iter().enumerate().map(|(i, f)| (i as f64, TAU / f)).collect()
        };
        let mut chart = Lines {
            title: format!("{}: positions in a full turn", self.name),
            x: Axis::linear(match feature.angles.grid() {
                None => "frequency, from the fastest",
                Some(_) => "frequency, from the fastest, of rows and then of columns",
            }),
            y: Axis::log("positions"),
            series: vec![Series { points: points(frequencies), ..Default::default() }],
            marks: frequencies.len() <= 64,
            rule: None,
        };
        if let Some(unscaled) = unscaled {
            chart.series[0].name = "scaled".into();
            chart.series.push(Series {
                name: "unscaled".into(),
                points: points(unscaled.angles.frequencies()),
                dashed: true,
                ..Default::default()
            });
        }
        let caption = "Each pair of channels (rotary) or channel (polar) turns at its own speed.";
        Picture::new(format!("{}-frequencies", self.name), chart.svg(), caption)
    }

    fn turns(&self, feature: &Feature) -> Picture {
        let frequencies = feature.angles.frequencies();
        let positions = 0..self.length + 1;
        let (grid, amplitude) = (feature.angles.grid(), feature.angles.amplitude());
        let angles = Angles::on_grid(frequencies, grid, positions, amplitude);
        let count = frequencies.len();
        let mut chosen = vec![0, count / 8, count / 4, count / 2, count - 1];
        // Single angle has one speed for all.
        chosen.dedup_by_key(|i| frequencies[*i].to_bits());
        let series = chosen.into_iter().map(|i| Series {
            name: format!("frequency {i}"),
            points: (0..=self.length)
                .map(|position| (position as f64, f64::from(angles.at(position).0[i])))
                .collect(),
            ..Default::default()
        });
        self.lines(
            "turns",
            "cosine of the angle along the positions",
            ("position", "cosine"),
            series.collect(),
            "One curve for each of some frequencies.",
        )
    }

    pub(super) fn lines(
        &self,
        kind: &str,
        title: &str,
        (x, y): (&str, &str),
        series: Vec<Series>,
        caption: &str,
    ) -> Picture {
        let chart = Lines {
            title: format!("{}: {title}", self.name),
            x: Axis::linear(x),
            y: Axis::linear(y),
            series,
            marks: false,
            rule: None,
        };
        Picture::new(format!("{}-{kind}", self.name), chart.svg(), caption)
    }
}

/// What the kernels refuse, as an attention layer says it.
pub(super) fn kernels(error: whatwhere_kernels::Error) -> Error {
    Error::Attention(error.into())
}

pub(super) fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let data: TensorData = tensor.into_data();
    data.try_into_vec().expect("f32 as everywhere")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(page: &Page) -> Vec<String> {
        let pictures = page.sections.iter().flat_map(|section| &section.pictures);
        pictures.map(|picture| picture.name.clone()).collect()
    }

    #[test]
    fn every_encoding_is_drawn_with_its_similarity() {
        let page = position(None, &[], Some(24)).unwrap();
        assert_eq!(page.sections.len(), Position::NAMES.len());
        let names = names(&page);
        for name in Position::NAMES {
            assert!(names.contains(&format!("{name}-similarity")), "{name}");
        }
        for name in ["alibi-bias", "t5-bias", "shaw-bias", "shaw-vectors", "sinusoidal-dimensions"]
        {
            assert!(names.contains(&name.to_owned()), "{name}");
        }
        for name in ["rotary-frequencies", "polar-frequencies", "sinusoidal-waves"] {
            assert!(names.contains(&name.to_owned()), "{name}");
        }
        assert!(!page.html().contains("NaN"));
    }

    #[test]
    fn on_a_grid_scores_are_drawn_by_rows_and_columns() {
        for name in ["rotary", "polar", "learned"] {
            let page = position(Some(name), &["grid=8".into()], None).unwrap();
            assert!(names(&page).contains(&format!("{name}-grid")), "{name}");
            assert!(!page.html().contains("NaN"));
        }
        let drawn = Drawn::new("rotary", &["grid=9".into()], None).unwrap();
        // The query stands in the middle, row 4 and column 4; one row up is as far as one column to the left.
        let scores = &drawn.similarity().unwrap()[0].points;
        assert_eq!(scores[40].0, 0.0);
        assert!((scores[40 - 9].1 - scores[40 - 1].1).abs() < 1e-6);
        assert!((scores[40 - 9].1 - scores[40 - 2].1).abs() > 1e-3);
    }

    #[test]
    fn settings_change_the_picture_and_wrong_ones_are_refused() {
        let drawn = |changes: &[&str]| {
            let changes: Vec<String> = changes.iter().map(|change| (*change).into()).collect();
            position(Some("rotary"), &changes, Some(16))
        };
        assert_ne!(drawn(&[]).unwrap(), drawn(&["base=500"]).unwrap());
        let scaled = drawn(&["scaling={ kind = 'linear', factor = 4.0 }"]).unwrap();
        assert!(scaled.html().contains("unscaled"));
        assert!(drawn(&["bas=500"]).unwrap_err().to_string().contains("unknown field `bas`"));
        let error = position(None, &["base=500".into()], None).unwrap_err().to_string();
        assert!(error.contains("name it"), "{error}");
        assert!(position(Some("rotary"), &[], Some(0)).is_err());
        let error = position(Some("shaw"), &["reach=1000000000000".into()], None).unwrap_err();
        assert!(error.to_string().contains("expected at most 65536"), "{error}");
    }

    #[test]
    fn curves_are_those_of_the_formulas() {
        let curves = |name: &str| Drawn::new(name, &[], Some(64)).unwrap().similarity().unwrap();
        let [none, alibi, rotary] = ["none", "alibi", "rotary"].map(curves);
        assert_eq!((none.len(), alibi.len()), (1, HEADS));
        for (head, sloped) in alibi.iter().enumerate() {
            let slope = 0.25f64.powi(head as i32 + 1);
            for ((distance, plain), (_, sloped)) in none[0].points.iter().zip(&sloped.points) {
                assert!((plain - slope * distance.abs() - sloped).abs() < 1e-9);
            }
        }
        assert_eq!(none[0].points[64].0, 0.0);
        assert!((none[0].points[64].1 - rotary[0].points[64].1).abs() < 1e-6, "no turn at 0");
    }

    #[test]
    fn a_short_learned_table_is_drawn_as_far_as_it_reaches() {
        let page = position(Some("learned"), &["length=5".into()], Some(64)).unwrap();
        assert!(names(&page).contains(&"learned-similarity".to_owned()));
    }
}
