//! Angles of places, in 64 bits until they lie within one turn, so that far places are as exact as near ones.

use std::f64::consts::{FRAC_PI_2, TAU};

use whatwhere_attention::{
    Scaling,
    position::{Sinusoidal, SinusoidalLayout},
};

use super::graph::{Graph, Kind, Value};

/// Frequencies of channels or pairs, which may follow the length.
pub(super) struct Frequencies {
    form: Form,
    /// Places in a row of the grid: the first half of the frequencies is for rows, the second for columns.
    grid: Option<usize>,
    /// Factor on cosine and sine.
    amplitude: f64,
}

enum Form {
    Fixed(Vec<f64>),
    /// One list up to a length, another beyond it.
    Either {
        up_to: usize,
        near: Vec<f64>,
        far: Vec<f64>,
    },
    /// `base · (factor · max(l, trained) / trained − (factor − 1))^grows`, to the power of each exponent.
    Dynamic {
        base: f64,
        factor: f64,
        trained: usize,
        grows: f64,
        exponents: Vec<f64>,
    },
}

impl Frequencies {
    pub(super) fn plain(list: Vec<f64>) -> Self {
        Self { form: Form::Fixed(list), grid: None, amplitude: 1.0 }
    }

    /// The same on a grid, if there is one.
    pub(super) fn on_grid(self, grid: Option<usize>) -> Self {
        Self { grid, ..self }
    }

    /// Rotary's, for pairs of `width` channels.
    pub(super) fn scaled(scaling: &Scaling, base: f64, width: usize) -> Self {
        let (list, amplitude) = scaling.frequencies(base, width, 1);
        let form = match scaling {
            Scaling::DynamicNtk { factor, length } => {
                let d = width as f64;
                let exponents = (0..width / 2).map(|i| -2.0 * i as f64 / d).collect();
                let grows = d / (d - 2.0).max(1.0);
                Form::Dynamic { base, factor: *factor, trained: *length, grows, exponents }
            }
            Scaling::Longrope { length, .. } if scaling.follows_length() => {
                let (far, _) = scaling.frequencies(base, width, length + 1);
                Form::Either { up_to: *length, near: list, far }
            }
            _ => Form::Fixed(list),
        };
        Self { form, grid: None, amplitude }
    }

    /// The frequencies in a text that ends before `end`.
    fn listed(&self, graph: &mut Graph, end: &Value) -> Value {
        match &self.form {
            Form::Fixed(list) => graph.doubles(list, &[list.len()]),
            Form::Either { up_to, near, far } => {
                let [near, far] = [near, far].map(|list| graph.doubles(list, &[list.len()]));
                let bound = graph.int(*up_to as i64);
                let beyond = graph.op("Greater", &[end, &bound]);
                graph.op("Where", &[&beyond, &far, &near])
            }
            Form::Dynamic { base, factor, trained, grows, exponents } => {
                let trained_length = graph.int(*trained as i64);
                let length = graph.op("Max", &[end, &trained_length]);
                let length = graph.cast(&length, Kind::Double);
                let constants = [*factor / *trained as f64, factor - 1.0, *grows, *base];
                let [by, less, grows, base] = constants.map(|value| graph.doubles(&[value], &[]));
                let grown = graph.op("Mul", &[&length, &by]);
                let grown = graph.op("Sub", &[&grown, &less]);
                let grown = graph.op("Pow", &[&grown, &grows]);
                let base = graph.op("Mul", &[&base, &grown]);
                let exponents = graph.doubles(exponents, &[exponents.len()]);
                graph.op("Pow", &[&base, &exponents])
            }
        }
    }

    /// Cosines and sines of places, `[places, frequencies]` each, in a text that ends before `end`.
    pub(super) fn waves(&self, graph: &mut Graph, places: &Value, end: &Value) -> (Value, Value) {
        let angles = match (self.grid, &self.form) {
            (Some(grid), Form::Fixed(list)) => on_grid(graph, places, list, grid),
            _ => {
                let frequencies = self.listed(graph, end);
                turned(graph, places, &frequencies, None)
            }
        };
        let [cos, sin] = ["Cos", "Sin"].map(|wave| graph.op(wave, &[&angles]));
        let amplitude = self.amplitude as f32;
        (graph.scaled(&cos, amplitude), graph.scaled(&sin, amplitude))
    }
}

/// Rows and columns of places on a grid.
pub(super) fn grid_places(graph: &mut Graph, places: &Value, grid: usize) -> [Value; 2] {
    let grid = graph.int(grid as i64);
    ["Div", "Mod"].map(|part| graph.op(part, &[places, &grid]))
}

/// Angles on a grid: where a frequency is for columns, rows turn by 0, and the other way round.
fn on_grid(graph: &mut Graph, places: &Value, list: &[f64], grid: usize) -> Value {
    let half = list.len() / 2;
    let [mut by_row, mut by_column] = [list.to_vec(), list.to_vec()];
    by_row[half..].fill(0.0);
    by_column[..half].fill(0.0);
    let [rows, columns] = grid_places(graph, places, grid);
    let [rows, columns] = [(rows, by_row), (columns, by_column)].map(|(places, by)| {
        let by = graph.doubles(&by, &[by.len()]);
        turned(graph, &places, &by, None)
    });
    graph.op("Add", &[&rows, &columns])
}

/// `place · frequency + phase` within one turn, `[places, frequencies]`.
fn turned(graph: &mut Graph, places: &Value, frequencies: &Value, phases: Option<&Value>) -> Value {
    let places = graph.unsqueeze(places, &[1]);
    let places = graph.cast(&places, Kind::Double);
    let mut angles = graph.op("Mul", &[&places, frequencies]);
    if let Some(phases) = phases {
        angles = graph.op("Add", &[&angles, phases]);
    }
    let turn = graph.doubles(&[TAU], &[]);
    let turns = graph.op("Div", &[&angles, &turn]);
    let turns = graph.op("Floor", &[&turns]);
    let whole = graph.op("Mul", &[&turns, &turn]);
    let angles = graph.op("Sub", &[&angles, &whole]);
    graph.cast(&angles, Kind::Float)
}

/// Rows of the sinusoidal encoding for places, `[places, width]`.
pub(super) fn sinusoids(
    graph: &mut Graph,
    waves: &Sinusoidal,
    places: &Value,
    width: usize,
) -> Value {
    let half = width / 2;
    let (mut frequencies, mut phases) = (Vec::with_capacity(width), Vec::with_capacity(width));
    for channel in 0..width {
        let (wave, is_sine) = match waves.layout {
            SinusoidalLayout::Interleaved => (channel / 2, channel.is_multiple_of(2)),
            SinusoidalLayout::Concatenated | SinusoidalLayout::Tensor2tensor => {
                (channel % half, channel < half)
            }
        };
        let power = match waves.layout {
            SinusoidalLayout::Tensor2tensor => wave as f64 / (half - 1).max(1) as f64,
            SinusoidalLayout::Interleaved | SinusoidalLayout::Concatenated => {
                2.0 * wave as f64 / width as f64
            }
        };
        frequencies.push(waves.base.powf(-power));
        // A cosine is a sine a quarter of a turn later.
        phases.push(if is_sine { 0.0 } else { FRAC_PI_2 });
    }
    let [frequencies, phases] = [frequencies, phases].map(|list| graph.doubles(&list, &[width]));
    let angles = turned(graph, places, &frequencies, Some(&phases));
    graph.op("Sin", &[&angles])
}
