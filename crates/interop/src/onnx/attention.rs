//! An attention as operators: products, biases and masks computed in the graph from places, for any length and any past.

use whatwhere_attention::{
    AttentionSettings, Heads, Mixing, Pattern, Position, QkNorm, QkNormKind, Score,
    pattern::PatternContext,
};

use super::{
    bias,
    graph::{Attribute, Graph, Kind, Value},
    linear, pattern, position,
};
use crate::error::Result;

/// Stands for −∞ in hidden scores; a row that sees nothing is set to zero afterwards.
const HIDDEN: f32 = -1e30;

/// Places of queries and keys, whole numbers in a row each.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) queries: Value,
    pub(super) keys: Value,
    /// One beyond the last place of both.
    pub(super) end: Value,
}

impl Places {
    /// `[queries, 1]`.
    pub(super) fn query_column(&self, graph: &mut Graph) -> Value {
        graph.unsqueeze(&self.queries, &[1])
    }

    /// Key place − query place, `[queries, keys]`.
    pub(super) fn distance(&self, graph: &mut Graph) -> Value {
        let column = self.query_column(graph);
        graph.op("Sub", &[&self.keys, &column])
    }
}

/// One attention: its settings and where its parameters are.
pub(super) struct Attention<'s> {
    pub(super) settings: &'s AttentionSettings,
    /// Encodings that are not added to embeddings.
    pub(super) positions: Vec<&'s Position>,
    pub(super) sizes: Heads,
    /// What the names of its parameters begin with.
    pub(super) name: String,
    /// The same for its encodings, which may be those of the first layer.
    pub(super) position_name: String,
}

/// Keys and values, `[batch, kv_heads, length, head_dim]` each; keys as they are before features turn them.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) keys: Value,
    pub(super) values: Value,
}

impl Attention<'_> {
    /// Keys and values of `[batch, length, width]`.
    pub(super) fn kept(&self, graph: &mut Graph, x: &Value) -> Result<Kept> {
        let kv_heads = self.sizes.kv_heads;
        let keys = graph.linear(x, &format!("{}.key", self.name))?;
        let keys = self.normed(graph, &keys, "key_norm", kv_heads)?;
        let values = graph.linear(x, &format!("{}.value", self.name))?;
        Ok(Kept {
            keys: self.split(graph, &keys, kv_heads),
            values: self.split(graph, &values, kv_heads),
        })
    }

    /// What is mixed for each query of `x`, projected back, `[batch, length, width]`.
    pub(super) fn forward(
        &self,
        graph: &mut Graph,
        x: &Value,
        kept: &Kept,
        places: &Places,
    ) -> Result<Value> {
        let Heads { heads, head_dim, .. } = self.sizes;
        let q = graph.linear(x, &format!("{}.query", self.name))?;
        let q = self.normed(graph, &q, "query_norm", heads)?;
        let mut q = self.split(graph, &q, heads);
        if let Score::General(_) = self.settings.score {
            let form = graph.within(&format!("{}.score.", self.name), ".weight")?;
            q = graph.op("MatMul", &[&q, &form]);
        }
        let (k, v) = (self.repeated(graph, &kept.keys), self.repeated(graph, &kept.values));
        let mixed = match &self.settings.mixing {
            Mixing::Softmax(_) => self.softmax(graph, x, &q, &k, &v, places)?,
            other => linear::mixed(graph, self, other, [&q, &k, &v], places)?,
        };
        let joined = graph.transpose(&mixed, &[0, 2, 1, 3]);
        let joined = graph.reshape(&joined, &[0, 0, (heads * head_dim) as i64]);
        graph.linear(&joined, &format!("{}.output", self.name))
    }

    fn softmax(
        &self,
        graph: &mut Graph,
        x: &Value,
        q: &Value,
        k: &Value,
        v: &Value,
        places: &Places,
    ) -> Result<Value> {
        let mut scores = self.compare(graph, q, k, places)?;
        if let Some(cap) = self.settings.soft_cap {
            scores = capped(graph, &scores, cap);
        }
        for i in 0..self.positions.len() {
            scores = bias::add_bias(graph, self, i, scores, [q, k], places)?;
        }
        let (visible, focus) = self.visible(graph, x, places)?;
        if let Some(visible) = &visible {
            let hidden = graph.float(HIDDEN);
            scores = graph.op("Where", &[visible, &scores, &hidden]);
        }
        let mut weights = graph.op_with("Softmax", &[&scores], &[("axis", Attribute::Int(-1))]);
        if let Some(visible) = &visible {
            let zero = graph.float(0.0);
            weights = graph.op("Where", &[visible, &weights, &zero]);
        }
        if let Some(focus) = &focus {
            weights = graph.op("Mul", &[&weights, focus]);
        }
        let mut out = graph.op("MatMul", &[&weights, v]);
        for i in 0..self.positions.len() {
            out = bias::add_values(graph, self, i, out, &weights, places)?;
        }
        Ok(out)
    }

    /// Queries and keys, turned by every encoding that does.
    pub(super) fn turned(
        &self,
        graph: &mut Graph,
        q: &Value,
        k: &Value,
        places: &Places,
    ) -> Result<[Value; 2]> {
        let (mut q, mut k) = (q.clone(), k.clone());
        for i in 0..self.positions.len() {
            q = position::turned(graph, self, i, q, &places.queries, &places.end, false)?;
            k = position::turned(graph, self, i, k, &places.keys, &places.end, true)?;
        }
        Ok([q, k])
    }

    /// Which pairs are visible, and what weights are multiplied by where queries predict their places.
    fn visible(
        &self,
        graph: &mut Graph,
        x: &Value,
        places: &Places,
    ) -> Result<(Option<Value>, Option<Value>)> {
        let Pattern::Predicted(predicted) = &self.settings.pattern else {
            let context = self.context();
            let visible = pattern::visible(graph, &self.settings.pattern, places, &context)?;
            return Ok((visible, None));
        };
        let name = format!("{}.pattern", self.name);
        let hidden = graph.linear(x, &format!("{name}.hidden"))?;
        let hidden = graph.op("Tanh", &[&hidden]);
        let share = graph.linear(&hidden, &format!("{name}.center"))?;
        let share = graph.op("Sigmoid", &[&share]); // [batch, queries, heads]
        let share = graph.transpose(&share, &[0, 2, 1]);
        let count = graph.size(&places.keys, 0);
        let count = graph.cast(&count, Kind::Float);
        let center = graph.op("Mul", &[&share, &count]);
        let center = graph.unsqueeze(&center, &[3]); // [batch, heads, queries, 1]
        let keys = graph.cast(&places.keys, Kind::Float);
        let far = graph.op("Sub", &[&keys, &center]);
        // Bounds are rounded as the span of whole places is.
        let radius = graph.float(predicted.radius as f32);
        let (least, most) =
            (graph.op("Sub", &[&center, &radius]), graph.op("Add", &[&center, &radius]));
        let (least, most) = (graph.op("Ceil", &[&least]), graph.op("Floor", &[&most]));
        let after = graph.op("GreaterOrEqual", &[&keys, &least]);
        let before = graph.op("LessOrEqual", &[&keys, &most]);
        let visible = graph.op("And", &[&after, &before]);
        let deviation = graph.float(predicted.radius as f32 / 2.0);
        let far = graph.op("Div", &[&far, &deviation]);
        let square = graph.op("Mul", &[&far, &far]);
        let half = graph.scaled(&square, -0.5);
        Ok((Some(visible), Some(graph.op("Exp", &[&half]))))
    }

    pub(super) fn context(&self) -> PatternContext<'static> {
        PatternContext {
            heads: self.sizes.heads,
            documents: None,
            tokens: None,
            first_query: 0,
            centers: None,
        }
    }

    /// The factor on every product of a query and a key.
    pub(super) fn scale(&self) -> f32 {
        let plain = (self.sizes.head_dim as f32).sqrt().recip();
        let scale = match &self.settings.score {
            Score::Dot(dot) => dot.scale,
            Score::Cosine(cosine) => cosine.scale,
            Score::ScaledDot(_) | Score::General(_) => plain,
            // No product, hence nothing that others divide.
            Score::Additive(_) => return 1.0,
        };
        self.positions.iter().fold(scale, |scale, position| match position {
            Position::Disentangled(own) => {
                let terms =
                    usize::from(own.content_to_position) + usize::from(own.position_to_content);
                scale / (1.0 + terms as f32).sqrt()
            }
            _ => scale,
        })
    }

    fn compare(&self, graph: &mut Graph, q: &Value, k: &Value, places: &Places) -> Result<Value> {
        let mut q = q.clone();
        for (i, position) in self.positions.iter().enumerate() {
            if let Position::TransformerXl(_) = position {
                let bias = self.per_head(graph, i, "content")?;
                q = graph.op("Add", &[&q, &bias]);
            }
        }
        if let Score::Additive(_) = self.settings.score {
            let Heads { heads, head_dim, .. } = self.sizes;
            let weight = graph.within(&format!("{}.score.", self.name), ".weight")?;
            let weight = graph.reshape(&weight, &[1, heads as i64, 1, 1, head_dim as i64]);
            let (q, k) = (graph.unsqueeze(&q, &[3]), graph.unsqueeze(k, &[2]));
            let sum = graph.op("Add", &[&q, &k]);
            let tanh = graph.op("Tanh", &[&sum]);
            let weighed = graph.op("Mul", &[&tanh, &weight]);
            let last = graph.ints(&[-1]);
            return Ok(graph.op_with(
                "ReduceSum",
                &[&weighed, &last],
                &[("keepdims", Attribute::Int(0))],
            ));
        }
        let [mut q, mut k] = self.turned(graph, &q, k, places)?;
        if let Score::Cosine(_) = self.settings.score {
            [q, k] = [q, k].map(|x| unit(graph, &x));
        }
        let turned = graph.transpose(&k, &[0, 1, 3, 2]);
        let product = graph.op("MatMul", &[&q, &turned]);
        Ok(graph.scaled(&product, self.scale()))
    }

    /// A parameter of an encoding with a row for each head, `[1, heads, 1, width]`.
    pub(super) fn per_head(&self, graph: &mut Graph, position: usize, end: &str) -> Result<Value> {
        let rows =
            graph.within(&format!("{}.{position}.", self.position_name), &format!(".{end}"))?;
        Ok(graph.reshape(&rows, &[1, self.sizes.heads as i64, 1, -1]))
    }

    /// `[batch, length, heads · head_dim]` to `[batch, heads, length, head_dim]`.
    fn split(&self, graph: &mut Graph, x: &Value, heads: usize) -> Value {
        let x = graph.reshape(x, &[0, 0, heads as i64, self.sizes.head_dim as i64]);
        graph.transpose(&x, &[0, 2, 1, 3])
    }

    /// Each key head once for every query head that reads it.
    pub(super) fn repeated(&self, graph: &mut Graph, x: &Value) -> Value {
        let Heads { heads, kv_heads, head_dim, .. } = self.sizes;
        if heads == kv_heads {
            return x.clone();
        }
        let x = graph.unsqueeze(x, &[2]);
        let times = graph.ints(&[1, 1, (heads / kv_heads) as i64, 1, 1]);
        let x = graph.op("Expand", &[&x, &times]);
        graph.reshape(&x, &[0, heads as i64, -1, head_dim as i64])
    }

    /// QK-norm of `[batch, length, heads · head_dim]`.
    fn normed(&self, graph: &mut Graph, x: &Value, which: &str, heads: usize) -> Result<Value> {
        let head_dim = self.sizes.head_dim;
        let (together, parts) = match self.settings.qk_norm {
            QkNorm::None => return Ok(x.clone()),
            QkNorm::Head | QkNorm::EachHead => (head_dim, heads),
            QkNorm::All => (heads * head_dim, 1),
        };
        let gains = if self.settings.qk_norm == QkNorm::EachHead { heads as i64 } else { 1 };
        let x = graph.reshape(x, &[0, 0, parts as i64, together as i64]);
        let centered = match self.settings.qk_norm_kind {
            QkNormKind::Rms => x.clone(),
            QkNormKind::Layer => {
                let mean = graph.reduce("ReduceMean", &x);
                graph.op("Sub", &[&x, &mean])
            }
        };
        let mut normed = over_root(graph, &centered, self.settings.epsilon);
        for (end, how) in [("gamma", "Mul"), ("beta", "Add")] {
            let name = format!("{}.{which}.{end}", self.name);
            if graph.has(&name) {
                let values = graph.parameter(&name)?;
                let values = graph.reshape(&values, &[gains, together as i64]);
                normed = graph.op(how, &[&normed, &values]);
            }
        }
        Ok(graph.reshape(&normed, &[0, 0, (heads * head_dim) as i64]))
    }
}

/// `x / √(mean x² + ε)`.
pub(super) fn over_root(graph: &mut Graph, x: &Value, epsilon: f64) -> Value {
    let square = graph.op("Mul", &[x, x]);
    let mean = graph.reduce("ReduceMean", &square);
    let epsilon = graph.float(epsilon as f32);
    let sum = graph.op("Add", &[&mean, &epsilon]);
    let root = graph.op("Sqrt", &[&sum]);
    graph.op("Div", &[x, &root])
}

/// `cap · tanh(x / cap)`.
pub(super) fn capped(graph: &mut Graph, x: &Value, cap: f32) -> Value {
    let bound = graph.float(cap);
    let x = graph.op("Div", &[x, &bound]);
    let x = graph.op("Tanh", &[&x]);
    graph.op("Mul", &[&x, &bound])
}

/// Rows of length 1; zero rows stay zero.
fn unit(graph: &mut Graph, x: &Value) -> Value {
    let square = graph.op("Mul", &[x, x]);
    let sum = graph.reduce("ReduceSum", &square);
    let (zero, one) = (graph.float(0.0), graph.float(1.0));
    let is_zero = graph.op("Equal", &[&sum, &zero]);
    let safe = graph.op("Where", &[&is_zero, &one, &sum]);
    let root = graph.op("Sqrt", &[&safe]);
    graph.op("Div", &[x, &root])
}
