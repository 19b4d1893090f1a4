//! The kernels for Python: the native half of the package `whatwhere`.
//!
//! Python hands in the words of a call as JSON ([`settings`]), NumPy arrays, and for each learned thing an array that the
//! words name by its index. [`call`] checks shapes, builds the kernels' call ([`pattern`], [`terms`]) and computes it
//! without the interpreter's lock. The package in `python/whatwhere` adds what needs NumPy or torch: broadcasting of masks,
//! projections, and autograd.

mod arrays;
mod call;
mod error;
mod linear;
mod mask;
#[cfg(feature = "models")]
mod models;
mod pattern;
mod settings;
mod terms;

use error::Error;
use pyo3::prelude::*;

/// The native half of `whatwhere`; its functions expect contiguous arrays, which the package sees to.
#[pymodule]
mod _native {
    use std::collections::BTreeMap;

    use pyo3::prelude::*;

    use whatwhere_attention::{AttentionSettings, Pattern, Position, Score, slot::Terms};
    use whatwhere_kernels::attention::Shape;

    #[pymodule_export]
    use super::call::Call;
    #[cfg(feature = "models")]
    #[pymodule_export]
    use super::models::Model;

    /// The names of all choices.
    #[pyfunction]
    fn names() -> BTreeMap<&'static str, Vec<&'static str>> {
        BTreeMap::from([
            ("score", Score::NAMES.to_vec()),
            ("pattern", Pattern::NAMES.to_vec()),
            ("position", [Position::NAMES, &["table"]].concat()),
        ])
    }

    /// The JSON Schema of the choices, from which the package's types are written.
    #[pyfunction]
    fn schema() -> String {
        whatwhere_settings::schema::of_file::<AttentionSettings>().to_string()
    }

    /// The arrays that scores and encodings take: by the name of a choice, each one's name and what to know of it.
    #[pyfunction]
    fn arrays() -> PyResult<BTreeMap<&'static str, Vec<(&'static str, String)>>> {
        let call = || Terms::new(Shape::square(1, 1, 1, 2), ());
        let mut all = BTreeMap::new();
        for score in Score::all() {
            let call = Terms { score: score.compare(&call().shape), ..call() };
            all.insert(score.name(), described(&call));
        }
        for position in Position::all() {
            let mut call = call();
            position.add_terms(&mut call).map_err(crate::Error::from)?;
            all.insert(position.name(), described(&call));
        }
        Ok(all)
    }

    fn described(call: &Terms) -> Vec<(&'static str, String)> {
        let about = |names: &str, note: &str| match note {
            "" => names.to_owned(),
            _ => format!("{names}, {note}"),
        };
        let slots = call.values().into_iter();
        slots.map(|slot| (slot.array, about(slot.names, slot.note))).collect()
    }

    /// Encodings that a call refuses, and settings of encodings that it does: `"sinusoidal"`, `"alibi.learned"`.
    #[pyfunction]
    fn only_of_layers() -> Vec<String> {
        let all = Position::all().into_iter().flat_map(|position| {
            let settings = position.only_of_layers().iter();
            let settings = settings.map(|setting| format!("{}.{setting}", position.name()));
            let is_refused = position.embeds() || position.asks_keys();
            settings.chain(is_refused.then(|| position.name().to_owned())).collect::<Vec<_>>()
        });
        all.collect()
    }

    /// The version of the package.
    #[pyfunction]
    fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    /// ALiBi's slopes for any number of heads.
    #[pyfunction]
    fn alibi_slopes<'py>(py: Python<'py>, heads: usize) -> Bound<'py, numpy::PyArray1<f32>> {
        numpy::PyArray1::from_vec(py, whatwhere_kernels::attention::alibi_slopes(heads))
    }

    /// The instruction set the kernels run on.
    #[pyfunction]
    fn instruction_set() -> &'static str {
        whatwhere_kernels::Simd::detect().name()
    }
}
