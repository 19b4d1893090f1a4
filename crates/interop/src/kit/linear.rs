//! Linear mixing in f64: `out_i = Σ_j φ(q_i)·φ(k_j) v_j / (Σ_j φ(q_i)·φ(k_j) + ε)` with `φ = elu + 1`, and its gradients.

use whatwhere_kernels::attention::Shape;

use super::{Case, case::narrow};

/// As the kernels have it.
const EPSILON: f64 = 1e-6;

fn feature(x: f32) -> (f64, f64) {
    let x = f64::from(x);
    if x > 0.0 { (x + 1.0, 1.0) } else { (x.exp(), x.exp()) }
}

/// Puts output and gradients into a case.
pub(super) fn add(
    case: &mut Case,
    shape: Shape,
    causal: bool,
    [q, k, v]: [&[f32]; 3],
    d_out: &[f32],
) {
    let (dim, keys) = (shape.head_dim, shape.keys);
    let wide = |values: &[f32]| -> Vec<f64> { values.iter().map(|v| f64::from(*v)).collect() };
    let (value, d_out) = (wide(v), wide(d_out));
    let mut out = vec![0.0; shape.out_len()];
    let (mut d_q, mut d_k, mut d_v) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
    for batch in 0..shape.batch {
        for head in 0..shape.heads {
            let (own, kv) =
                (shape.q_head(batch, head).start, shape.k_head(batch, shape.kv_head(head)).start);
            for query in 0..shape.queries {
                let row = own + query * dim;
                let last = if causal { query + 1 } else { keys };
                let weight = |key: usize| -> f64 {
                    (0..dim).map(|c| feature(q[row + c]).0 * feature(k[kv + key * dim + c]).0).sum()
                };
                let weights: Vec<f64> = (0..last).map(weight).collect();
                let sum = weights.iter().sum::<f64>() + EPSILON;
                for (key, weight) in weights.iter().enumerate() {
                    for c in 0..dim {
                        out[row + c] += weight / sum * value[kv + key * dim + c];
                    }
                }
                let along: f64 = (0..dim).map(|c| d_out[row + c] * out[row + c]).sum();
                for (key, weight) in weights.iter().enumerate() {
                    let at = kv + key * dim;
                    let asked: f64 = (0..dim).map(|c| d_out[row + c] * value[at + c]).sum();
                    let d_weight = (asked - along) / sum;
                    for c in 0..dim {
                        d_v[at + c] += weight / sum * d_out[row + c];
                        let ((fq, slope_q), (fk, slope_k)) =
                            (feature(q[row + c]), feature(k[at + c]));
                        d_q[row + c] += d_weight * fk * slope_q;
                        d_k[at + c] += d_weight * fq * slope_k;
                    }
                }
            }
        }
    }
    let of_q = [shape.batch, shape.heads, shape.queries, dim];
    let of_k = [shape.batch, shape.kv_heads, keys, dim];
    for (name, sizes, values) in
        [("out", of_q, out), ("d_q", of_q, d_q), ("d_k", of_k, d_k), ("d_v", of_k, d_v)]
    {
        case.put(name, &sizes, narrow(&values));
    }
}
