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

    use whatwhere_attention::{AttentionSettings, Pattern, Position, Score};

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
