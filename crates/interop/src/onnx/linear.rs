//! Mixing without scores as operators: weights of every pair of places, which a state of constant size would sum up.

use whatwhere_attention::{
    Mixing,
    mixing::{Linear, LinearFeatures, Retention},
};

use super::{
    attention::{Attention, Places, over_root},
    graph::{Attribute, Graph, Kind, Value},
    pattern,
};
use crate::{Error, error::Result};

/// Keeps the sum of linear mixing from being zero, and stands under the root of a head's norm.
const EPSILON: f32 = 1e-6;

/// What is mixed for each query.
pub(super) fn mixed(
    graph: &mut Graph,
    attention: &Attention,
    mixing: &Mixing,
    qkv: [&Value; 3],
    places: &Places,
) -> Result<Value> {
    match mixing {
        Mixing::Linear(linear) => of_features(graph, attention, linear, qkv, places),
        Mixing::Retention(retention) => fading(graph, attention, retention, qkv, places),
        other => Err(Error::Refused(format!(
            "attention.mixing = {}: its gates follow content, and a graph keeps keys and values of earlier tokens, not their gates",
            other.name()
        ))),
    }
}

/// `φ(q) φ(k)ᵀ`, turned by positions, divided by the sum of what is not turned or times a scale.
fn of_features(
    graph: &mut Graph,
    attention: &Attention,
    linear: &Linear,
    [q, k, v]: [&Value; 3],
    places: &Places,
) -> Result<Value> {
    let [q, k] = [q, k].map(|x| features(graph, linear.feature_map, x));
    let [turned_q, turned_k] = attention.turned(graph, &q, &k, places)?;
    let weights = products(graph, attention, &turned_q, &turned_k, places)?;
    let mixed = graph.op("MatMul", &[&weights, v]);
    if let Some(scale) = linear.scale {
        return Ok(graph.scaled(&mixed, scale));
    }
    let weights = products(graph, attention, &q, &k, places)?;
    let (sum, epsilon) = (graph.reduce("ReduceSum", &weights), graph.float(EPSILON));
    let sum = graph.op("Add", &[&sum, &epsilon]);
    Ok(graph.op("Div", &[&mixed, &sum]))
}

/// `q kᵀ γ^(query − key)`.
fn fading(
    graph: &mut Graph,
    attention: &Attention,
    retention: &Retention,
    [q, k, v]: [&Value; 3],
    places: &Places,
) -> Result<Value> {
    let [q, k] = attention.turned(graph, q, k, places)?;
    let weights = products(graph, attention, &q, &k, places)?;
    let (heads, group) = (attention.sizes.heads, attention.sizes.heads / attention.sizes.kv_heads);
    let decays = (0..heads).map(|head| Retention::decay(head / group) as f32);
    let decays = graph.floats(&decays.collect::<Vec<f32>>(), &[1, heads, 1, 1]);
    // Later keys are hidden, and nothing may grow beyond all bounds there.
    let distance = places.distance(graph);
    let (distance, zero) = (graph.cast(&distance, Kind::Float), graph.float(0.0));
    let back = graph.op("Min", &[&distance, &zero]);
    let back = graph.op("Neg", &[&back]);
    let exponent = graph.op("Mul", &[&decays, &back]);
    let remains = graph.op("Exp", &[&exponent]);
    let weights = graph.op("Mul", &[&weights, &remains]);
    let mixed = graph.op("MatMul", &[&weights, v]);
    let mixed = graph.scaled(&mixed, (attention.sizes.head_dim as f32).sqrt().recip());
    Ok(match retention.norm {
        true => over_root(graph, &mixed, f64::from(EPSILON)),
        false => mixed,
    })
}

/// The product of every pair that is visible, 0 for others.
fn products(
    graph: &mut Graph,
    attention: &Attention,
    q: &Value,
    k: &Value,
    places: &Places,
) -> Result<Value> {
    let k = graph.transpose(k, &[0, 1, 3, 2]);
    let products = graph.op("MatMul", &[q, &k]);
    let (own, context) = (&attention.settings.pattern, attention.context());
    match pattern::visible(graph, own, places, &context)? {
        None => Ok(products),
        Some(visible) => {
            let visible = graph.cast(&visible, Kind::Float);
            Ok(graph.op("Mul", &[&products, &visible]))
        }
    }
}

/// What a feature map makes of queries or keys.
fn features(graph: &mut Graph, map: LinearFeatures, x: &Value) -> Value {
    match map {
        LinearFeatures::Elu => {
            let (elu, one) = (graph.op("Elu", &[x]), graph.float(1.0));
            graph.op("Add", &[&elu, &one])
        }
        LinearFeatures::Relu => graph.op("Relu", &[x]),
        LinearFeatures::Exp => graph.op("Exp", &[x]),
        LinearFeatures::Softmax => graph.op_with("Softmax", &[x], &[("axis", Attribute::Int(-1))]),
        LinearFeatures::Identity => x.clone(),
    }
}
