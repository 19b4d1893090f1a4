//! The inputs of both sides.

use whatwhere_kernels::attention::alibi_slopes;
use whatwhere_random::Random;

use crate::ours::{BUCKETS, HEAD_DIM, HEADS, REACH, Task, What};

/// A named input of both sides.
pub(crate) struct Tensor {
    pub(crate) name: &'static str,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
    /// Whether a gradient is wanted for it.
    pub(crate) learned: bool,
}

/// The inputs of a task, always the same numbers.
pub(crate) fn tensors(task: Task) -> Vec<Tensor> {
    let mut tensors = Vec::new();
    let mut add = |name, learned, shape: &[usize], values: Vec<f32>| {
        tensors.push(Tensor { name, shape: shape.to_vec(), values, learned });
    };
    let heads = [1, HEADS, task.length, HEAD_DIM];
    for (seed, name) in ["q", "k", "v", "d_out"].into_iter().enumerate() {
        add(name, name != "d_out", &heads, normal(seed as u64, heads.iter().product(), 1.0));
    }
    match task.what {
        What::T5 => {
            let shape = [HEADS, BUCKETS.count];
            add("table", true, &shape, normal(10, HEADS * BUCKETS.count, 1.0));
        }
        What::Alibi => add("slopes", true, &[HEADS], alibi_slopes(HEADS)),
        What::Shaw => {
            let shape = [2 * REACH + 1, HEAD_DIM];
            for (seed, name) in [(10, "keys"), (11, "values")] {
                add(name, true, &shape, normal(seed, shape.iter().product(), 0.5));
            }
        }
        What::Polar => {
            // Inside [−2π, 0], where δ learns.
            let delta = normal(10, HEADS * HEAD_DIM, 0.5).iter().map(|x| x - 3.0).collect();
            add("delta", true, &[HEADS, HEAD_DIM], delta);
        }
        What::Additive => {
            add("weight", true, &[HEADS, HEAD_DIM], normal(10, HEADS * HEAD_DIM, 0.3));
        }
        _ => {}
    }
    tensors
}

/// `len` normally distributed numbers around 0, the same on every run.
fn normal(seed: u64, len: usize, deviation: f64) -> Vec<f32> {
    let mut random = Random::new(&[seed]);
    (0..len).map(|_| (deviation * random.normal()) as f32).collect()
}
