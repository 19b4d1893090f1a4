//! A call on NumPy arrays: settings read once, then forward, backward and weights without the interpreter's lock.

use numpy::{
    PyArray1, PyArray4, PyArrayDyn, PyArrayMethods, PyReadonlyArray3, PyReadonlyArray4,
    PyReadonlyArrayDyn, PyReadwriteArray3, PyReadwriteArray4, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use whatwhere_kernels::attention::{Gradients, Inputs, Output, Shape, pattern::Full};
use whatwhere_settings::Refuses;

use crate::{Error, arrays::Arrays, linear, mask::Mask, pattern, settings::Settings, terms::Terms};

/// Settings that have been read, ready to be computed with.
#[pyclass(frozen, module = "whatwhere._native")]
pub(crate) struct Call {
    pub(crate) settings: Settings,
}

/// What is different from one call to the next.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct CallArgs {
    pub(crate) first_query: usize,
    pub(crate) first_key: usize,
    pub(crate) key_lengths: Option<Vec<usize>>,
    pub(crate) documents: Option<Vec<Vec<usize>>>,
    /// Rate and seed.
    pub(crate) dropout: Option<(f32, u64)>,
    /// Which of the arrays is added to the scores.
    pub(crate) bias: Option<usize>,
    pub(crate) bias_learned: bool,
}

/// What a gradient is made of besides the tensors of the forward pass.
type Gradient<'py> = Option<Bound<'py, PyArrayDyn<f32>>>;

#[pymethods]
impl Call {
    /// Reads settings written as JSON.
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        let settings = serde_json::from_str(text).map_err(|error| {
            let error = error.to_string();
            // The text is ours, not the caller's.
            let message = error.split(" at line ").next().unwrap_or_default();
            Error::unreadable(message)
        })?;
        Ok(Self { settings })
    }

    /// Fills `out` and `rows`: the log-sum-exps, or the denominators of linear mixing.
    #[expect(clippy::too_many_arguments, reason = "a call has that many tensors")]
    fn forward(
        &self,
        py: Python,
        q: PyReadonlyArray4<f32>,
        k: PyReadonlyArray4<f32>,
        v: PyReadonlyArray4<f32>,
        arrays: Vec<PyReadonlyArrayDyn<f32>>,
        mask: Option<PyReadonlyArray4<bool>>,
        args: CallArgs,
        mut out: PyReadwriteArray4<f32>,
        mut rows: PyReadwriteArray3<f32>,
    ) -> PyResult<()> {
        let (shape, inputs) = (shape(&q, &k, &v)?, inputs(&q, &k, &v)?);
        let arrays = Arrays::new(&arrays)?;
        let mask = mask.as_ref().map(|mask| self.mask(mask, &args)).transpose()?;
        let out = out.as_slice_mut().map_err(contiguous)?;
        let rows = rows.as_slice_mut().map_err(contiguous)?;
        py.detach(|| {
            // Memory that several threads touch first costs several times as much.
            out.fill(0.0);
            let resolved = self.settings.resolve(&shape, &arrays)?;
            if !self.settings.mixing.has_scores() {
                let linear = linear::build(self, shape, &args, mask.is_some())?;
                let terms = Terms::new(&self.settings, &resolved, shape, &args, &arrays, &Full)?;
                return linear::forward(linear, &terms.attention(), &inputs, out, rows);
            }
            let pattern = pattern::build(&self.settings, &shape, &args, &arrays, mask)?;
            let terms = Terms::new(&self.settings, &resolved, shape, &args, &arrays, &*pattern)?;
            Ok(terms.attention().forward_into(&inputs, out, rows)?)
        })
        .map_err(|error: Error| error.into())
    }

    /// The gradients of q, k, v and of each array, none for an array that has no gradient.
    #[expect(clippy::too_many_arguments, reason = "a call has that many tensors")]
    fn backward<'py>(
        &self,
        py: Python<'py>,
        q: PyReadonlyArray4<f32>,
        k: PyReadonlyArray4<f32>,
        v: PyReadonlyArray4<f32>,
        arrays: Vec<PyReadonlyArrayDyn<f32>>,
        mask: Option<PyReadonlyArray4<bool>>,
        args: CallArgs,
        out: PyReadonlyArray4<f32>,
        rows: PyReadonlyArray3<f32>,
        d_out: PyReadonlyArray4<f32>,
    ) -> PyResult<([Gradient<'py>; 3], Vec<Gradient<'py>>)> {
        let (shape, inputs) = (shape(&q, &k, &v)?, inputs(&q, &k, &v)?);
        let sizes: Vec<Vec<usize>> = arrays.iter().map(|array| array.shape().to_vec()).collect();
        let arrays = Arrays::new(&arrays)?;
        let mask = mask.as_ref().map(|mask| self.mask(mask, &args)).transpose()?;
        let out = out.as_slice().map_err(contiguous)?;
        let rows = rows.as_slice().map_err(contiguous)?;
        let d_out = d_out.as_slice().map_err(contiguous)?;
        let (main, learned) = py.detach(|| {
            let resolved = self.settings.resolve(&shape, &arrays)?;
            if !self.settings.mixing.has_scores() {
                let linear = linear::build(self, shape, &args, mask.is_some())?;
                let terms = Terms::new(&self.settings, &resolved, shape, &args, &arrays, &Full)?;
                let made =
                    linear::backward(linear, &terms.attention(), &inputs, [out, rows, d_out])?;
                let learned = terms.of_arrays(&made, arrays.len());
                return Ok(([made.q, made.k, made.v], learned));
            }
            let pattern = pattern::build(&self.settings, &shape, &args, &arrays, mask)?;
            let terms = Terms::new(&self.settings, &resolved, shape, &args, &arrays, &*pattern)?;
            let attention = terms.attention();
            let mut gradients = Gradients::zeros(&attention);
            attention.backward_into(&inputs, out, rows, d_out, &mut gradients)?;
            let learned = terms.of_arrays(&gradients, arrays.len());
            Ok::<_, Error>(([gradients.q, gradients.k, gradients.v], learned))
        })?;
        let array = |values: Vec<f32>, sizes: &[usize]| {
            PyArray1::from_vec(py, values).reshape(sizes.to_vec()).map(Some)
        };
        let [d_q, d_k, d_v] = main;
        let main = [array(d_q, q.shape())?, array(d_k, k.shape())?, array(d_v, v.shape())?];
        let learned = learned.into_iter().zip(&sizes).map(|(values, sizes)| match values {
            Some(values) => array(values, sizes),
            None => Ok(None),
        });
        Ok((main, learned.collect::<PyResult<_>>()?))
    }

    /// The weights of chosen queries in every head, `[batch, heads, chosen, keys]`; dropout aside.
    #[expect(clippy::too_many_arguments, reason = "a call has that many tensors")]
    fn weights<'py>(
        &self,
        py: Python<'py>,
        q: PyReadonlyArray4<f32>,
        k: PyReadonlyArray4<f32>,
        v: PyReadonlyArray4<f32>,
        arrays: Vec<PyReadonlyArrayDyn<f32>>,
        mask: Option<PyReadonlyArray4<bool>>,
        args: CallArgs,
        lse: PyReadonlyArray3<f32>,
        chosen: Vec<usize>,
    ) -> PyResult<Bound<'py, PyArray4<f32>>> {
        let (shape, inputs) = (shape(&q, &k, &v)?, inputs(&q, &k, &v)?);
        let arrays = Arrays::new(&arrays)?;
        let mask = mask.as_ref().map(|mask| self.mask(mask, &args)).transpose()?;
        let lse = lse.as_slice().map_err(contiguous)?.to_vec();
        let map = py.detach(|| {
            let resolved = self.settings.resolve(&shape, &arrays)?;
            if !self.settings.mixing.has_scores() {
                let reason = "without scores there are no weights to look at";
                return Err(Error::combination(
                    self.settings.mixing.name(),
                    "return_weights",
                    reason,
                ));
            }
            let pattern = pattern::build(&self.settings, &shape, &args, &arrays, mask)?;
            let terms = Terms::new(&self.settings, &resolved, shape, &args, &arrays, &*pattern)?;
            let (attention, made) = (terms.attention(), Output { out: Vec::new(), lse });
            let inspection = attention.inspect(&inputs, &made)?;
            let mut map = Vec::new();
            for index in 0..shape.batch * shape.heads {
                let (batch, head) = (index / shape.heads, index % shape.heads);
                map.extend(inspection.rows(batch, head, &chosen)?);
            }
            Ok(map)
        })?;
        PyArray1::from_vec(py, map).reshape([shape.batch, shape.heads, chosen.len(), shape.keys])
    }
}

impl Call {
    fn mask<'a>(&self, mask: &'a PyReadonlyArray4<bool>, args: &CallArgs) -> PyResult<Mask<'a>> {
        let values = mask.as_slice().map_err(contiguous)?;
        let mut sizes = [0; 4];
        sizes.copy_from_slice(mask.shape());
        let CallArgs { first_query, first_key, .. } = *args;
        Ok(Mask { values, sizes, first_query, first_key })
    }
}

/// The sizes of a call, once they agree.
fn shape(
    q: &PyReadonlyArray4<f32>,
    k: &PyReadonlyArray4<f32>,
    v: &PyReadonlyArray4<f32>,
) -> Result<Shape, Error> {
    let sizes =
        |array: &PyReadonlyArray4<f32>| <[usize; 4]>::try_from(array.shape()).expect("four sizes");
    let [batch, heads, queries, head_dim] = sizes(q);
    let [_, kv_heads, keys, _] = sizes(k);
    let [_, _, _, value_dim] = sizes(v);
    let expected = [batch, kv_heads, keys, head_dim];
    if sizes(k) != expected {
        let expected = format!("[batch, kv_heads, keys, head_dim] = {expected:?}");
        return Err(Error::Shape { what: "key".into(), found: k.shape().to_vec(), expected });
    }
    let expected = [batch, kv_heads, keys, value_dim];
    if sizes(v) != expected {
        let expected = format!("[batch, kv_heads, keys, value_dim] = {expected:?}");
        return Err(Error::Shape { what: "value".into(), found: v.shape().to_vec(), expected });
    }
    Ok(Shape { batch, heads, kv_heads, queries, keys, head_dim, value_dim })
}

fn inputs<'a>(
    q: &'a PyReadonlyArray4<f32>,
    k: &'a PyReadonlyArray4<f32>,
    v: &'a PyReadonlyArray4<f32>,
) -> PyResult<Inputs<'a>> {
    Ok(Inputs {
        q: q.as_slice().map_err(contiguous)?,
        k: k.as_slice().map_err(contiguous)?,
        v: v.as_slice().map_err(contiguous)?,
    })
}

fn contiguous(_: impl std::fmt::Debug) -> PyErr {
    Error::unreadable("an array is not contiguous").into()
}
