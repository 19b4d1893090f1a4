//! The kernels for Python: the native half of the package `whatwhere`.
//!
//! Python hands in the words of a call as JSON ([`settings`]), NumPy arrays, and for each learned thing an array that the
//! words name by its index. [`call`] checks shapes, builds the kernels' call ([`pattern`], [`terms`]) and computes it
//! without the interpreter's lock. The package in `python/whatwhere` adds what needs NumPy or torch: broadcasting of masks,
//! projections, and autograd.

mod arrays;
mod call;
mod linear;
mod mask;
#[cfg(feature = "models")]
mod models;
mod pattern;
mod settings;
mod terms;

// Shared with the layers for burn, so that words, formulas and refusals are the same; the crate itself would bring burn.
#[allow(dead_code, unreachable_pub, reason = "public in the crate it is from")]
#[path = "../../attention/src/about.rs"]
mod about;
#[path = "../../attention/src/error.rs"]
mod error;
#[allow(dead_code, unreachable_pub, reason = "public in the crate it is from")]
#[path = "../../attention/src/heads.rs"]
mod heads;
#[expect(dead_code, unreachable_pub, reason = "public in the crate it is from")]
#[path = "../../attention/src/scaling.rs"]
mod scaling;

use error::Error;
use pyo3::{exceptions::PyValueError, prelude::*};

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        PyValueError::new_err(error.to_string())
    }
}

/// The native half of `whatwhere`; its functions expect contiguous arrays, which the package sees to.
#[pymodule]
mod _native {
    use std::collections::BTreeMap;

    use pyo3::prelude::*;

    use crate::settings::{Pattern, Position, Score};

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
            ("position", Position::NAMES.to_vec()),
        ])
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
