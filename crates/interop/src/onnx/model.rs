//! A model as operators: embeddings, blocks with their norms, and the way to logits.

use whatwhere_attention::{AttentionSettings, Heads, Position};
use whatwhere_transformer::{Activation, ModelSettings, NormKind, NormPlace, ResidualKind, Site};

use super::{
    angles,
    attention::{Attention, Kept, Places, capped, over_root},
    graph::{Attribute, Graph, Kind, Size, Value},
};
use crate::{Error, error::Result};

/// A model being written.
pub(super) struct Writer<'s> {
    pub(super) settings: &'s ModelSettings,
}

/// One stack on its way: the stream, and the keys and values of its layers.
pub(super) struct Stacked {
    pub(super) out: Value,
    pub(super) kept: Vec<Kept>,
}

impl Writer<'_> {
    /// Token ids, `[batch, length]`, and the places of all tokens after a past of so many.
    pub(super) fn tokens(&self, graph: &mut Graph, past: Option<&Value>) -> (Value, Places) {
        let ids =
            graph.input("input_ids", Kind::Int, &[Size::Named("batch"), Size::Named("length")]);
        let (length, zero, one) = (graph.size(&ids, 1), graph.int(0), graph.int(1));
        let (first, end) = match past {
            None => (zero.clone(), length),
            Some(past) => (past.clone(), graph.op("Add", &[past, &length])),
        };
        let queries = graph.op("Range", &[&first, &end, &one]);
        let keys = graph.op("Range", &[&zero, &end, &one]);
        (ids, Places { queries, keys, end })
    }

    /// Keys and values of earlier tokens, as inputs, and how many there are.
    pub(super) fn past(&self, graph: &mut Graph, prefix: &str) -> Result<(Vec<Kept>, Value)> {
        let mut all = Vec::new();
        for layer in 0..self.settings.decoder_depth() {
            let sizes = self.heads(Site::Decoder, layer)?;
            let sizes = [
                Size::Named("batch"),
                Size::Of(sizes.kv_heads),
                Size::Named("past"),
                Size::Of(sizes.head_dim),
            ];
            let mut input = |part: &str| {
                graph.input(format!("{prefix}past_key_values.{layer}.{part}"), Kind::Float, &sizes)
            };
            all.push(Kept { keys: input("key"), values: input("value") });
        }
        let count = graph.size(&all[0].keys, 2);
        Ok((all, count))
    }

    fn heads(&self, site: Site, layer: usize) -> Result<Heads> {
        let own = self.settings.attention(site, self.block_of(layer))?;
        Ok(own.sizes().map_err(whatwhere_transformer::Error::from)?)
    }

    /// The block whose parameters a layer has.
    fn block_of(&self, layer: usize) -> usize {
        if self.settings.share_layers { 0 } else { layer }
    }

    /// Embeddings of ids, their types and places, as the first block reads them.
    pub(super) fn embed(
        &self,
        graph: &mut Graph,
        site: Site,
        ids: &Value,
        places: &Places,
    ) -> Result<Value> {
        let settings = self.settings;
        let table = graph.parameter("embedding.weight")?;
        let mut x = graph.op("Gather", &[&table, ids]);
        if settings.scales_embeddings()? {
            x = graph.scaled(&x, (settings.embedding_channels() as f64).sqrt() as f32);
        }
        if settings.token_types > 0 {
            // Tokens that say nothing of their type are of the first.
            let types = graph.parameter("types.weight")?;
            let first = graph.slice(&types, 0, 0, 1);
            x = graph.op("Add", &[&x, &first]);
        }
        let stack = stack_name(site);
        let projection = format!("{stack}.embedding_projection");
        let projects = settings.embedding_width.is_some();
        if projects && !settings.project_positions {
            x = graph.linear(&x, &projection)?;
        }
        let late = projects && settings.project_positions;
        let channels = if late { settings.embedding_channels() } else { settings.width };
        let own = settings.attention(site, 0)?;
        for (i, position) in own.position.iter().filter(|position| position.embeds()).enumerate() {
            let rows = match position {
                Position::Learned(learned) => {
                    let table = graph.within(&format!("{stack}.position.{i}."), ".table")?;
                    match learned.grid {
                        None => graph.op("Gather", &[&table, &places.queries]),
                        Some(grid) => {
                            let [rows, columns] = angles::grid_places(graph, &places.queries, grid);
                            let first = graph.int(learned.rows() as i64);
                            let columns = graph.op("Add", &[&columns, &first]);
                            let [rows, columns] =
                                [rows, columns].map(|at| graph.op("Gather", &[&table, &at]));
                            graph.op("Add", &[&rows, &columns])
                        }
                    }
                }
                Position::Sinusoidal(waves) => {
                    let first = graph.int(waves.first as i64);
                    let places = graph.op("Add", &[&places.queries, &first]);
                    angles::sinusoids(graph, waves, &places, channels)
                }
                other => {
                    let name = other.name();
                    return Err(Error::Refused(format!(
                        "attention.position = {name}: is added to embeddings in a way that is not written as ONNX yet"
                    )));
                }
            };
            x = graph.op("Add", &[&x, &rows]);
        }
        if settings.embedding_norm {
            x = self.norm(graph, &x, &format!("{stack}.embedding_norm"))?;
        }
        if late {
            x = graph.linear(&x, &projection)?;
        }
        Ok(x)
    }

    /// All blocks and the last norm. `past` has keys and values of earlier tokens, `memory` what the encoder has read and
    /// its places.
    pub(super) fn stack(
        &self,
        graph: &mut Graph,
        site: Site,
        mut x: Value,
        places: &Places,
        past: &[Kept],
        memory: Option<(&Value, &Places)>,
    ) -> Result<Stacked> {
        let (settings, stack) = (self.settings, stack_name(site));
        let depth = match site {
            Site::Encoder => settings.encoder_depth(),
            Site::Decoder | Site::Cross => settings.decoder_depth(),
        };
        let mut kept = Vec::with_capacity(depth);
        for layer in 0..depth {
            let name = format!("{stack}.blocks.{}", self.block_of(layer));
            let own = settings.attention(site, self.block_of(layer))?;
            let shared = if settings.share_positions { 0 } else { self.block_of(layer) };
            let position_name = format!("{stack}.blocks.{shared}.attention.position");
            let attention = attention_of(&own, format!("{name}.attention"), position_name)?;
            let block = x.clone();
            let norms = self
                .norms(&format!("{name}.attention_norm"), &format!("{name}.attention_output_norm"));
            let mut all = None;
            x = self.sublayer(graph, &norms, [&x, &x], |graph, x| {
                let new = attention.kept(graph, x)?;
                let whole = match past.get(layer) {
                    None => new,
                    Some(past) => Kept {
                        keys: graph.concat(&[past.keys.clone(), new.keys], 2),
                        values: graph.concat(&[past.values.clone(), new.values], 2),
                    },
                };
                let out = attention.forward(graph, x, &whole, places)?;
                all = Some(whole);
                Ok(out)
            })?;
            kept.extend(all);
            if let Some((states, source)) = memory {
                let own = settings.attention(Site::Cross, self.block_of(layer))?;
                let cross = format!("{name}.cross");
                let attention = attention_of(
                    &own,
                    format!("{cross}.attention"),
                    format!("{cross}.attention.position"),
                )?;
                let norms = self.norms(&format!("{cross}.norm"), &format!("{cross}.output_norm"));
                let between = Places {
                    queries: places.queries.clone(),
                    keys: source.keys.clone(),
                    end: graph.op("Max", &[&places.end, &source.end]),
                };
                x = self.sublayer(graph, &norms, [&x, &x], |graph, x| {
                    let kept = attention.kept(graph, states)?;
                    attention.forward(graph, x, &kept, &between)
                })?;
            }
            let (read, norm) = match settings.residual {
                ResidualKind::Sequential => (x.clone(), "feed_forward_norm"),
                ResidualKind::Parallel => (block, "attention_norm"),
                ResidualKind::ParallelTwoNorms => (block, "feed_forward_norm"),
            };
            let norms =
                self.norms(&format!("{name}.{norm}"), &format!("{name}.feed_forward_output_norm"));
            x = self.sublayer(graph, &norms, [&x, &read], |graph, x| {
                self.feed_forward(graph, x, &format!("{name}.feed_forward"))
            })?;
        }
        if settings.norm_place != NormPlace::Post {
            x = self.norm(graph, &x, &format!("{stack}.norm"))?;
        }
        Ok(Stacked { out: x, kept })
    }

    /// Logits of hidden states, `[batch, length, vocabulary]`.
    pub(super) fn logits(&self, graph: &mut Graph, hidden: &Value) -> Result<Value> {
        let settings = self.settings;
        let mut x = hidden.clone();
        if settings.output_transform {
            x = graph.linear(&x, "output_transform.linear")?;
            x = self.activated(graph, &x);
            x = self.norm(graph, &x, "output_transform.norm")?;
        } else if settings.projects_output() {
            x = graph.linear(&x, "output_projection")?;
        }
        let table = match settings.tied {
            false => graph.parameter("output.weight")?,
            true => {
                let table = graph.parameter("embedding.weight")?;
                graph.transpose(&table, &[1, 0])
            }
        };
        let mut logits = graph.op("MatMul", &[&x, &table]);
        if settings.output_bias {
            let bias = graph.parameter("output.bias")?;
            logits = graph.op("Add", &[&logits, &bias]);
        }
        Ok(match settings.output_soft_cap {
            None => logits,
            Some(cap) => capped(graph, &logits, cap),
        })
    }

    fn feed_forward(&self, graph: &mut Graph, x: &Value, name: &str) -> Result<Value> {
        let up = graph.linear(x, &format!("{name}.up"))?;
        let inner = match self.settings.is_gated() {
            false => self.activated(graph, &up),
            true => {
                let gate = graph.linear(x, &format!("{name}.gate"))?;
                let gate = self.activated(graph, &gate);
                graph.op("Mul", &[&gate, &up])
            }
        };
        graph.linear(&inner, &format!("{name}.down"))
    }

    fn activated(&self, graph: &mut Graph, x: &Value) -> Value {
        match self.settings.activation {
            Activation::Relu => graph.op("Relu", &[x]),
            Activation::Gelu => graph.op("Gelu", &[x]),
            Activation::GeluTanh => {
                graph.op_with("Gelu", &[x], &[("approximate", Attribute::Text("tanh"))])
            }
            Activation::Silu | Activation::Swiglu => {
                let share = graph.op("Sigmoid", &[x]);
                graph.op("Mul", &[x, &share])
            }
        }
    }

    /// Where the norms of a sublayer stand: before it, of what it gives, after it.
    fn norms(&self, norm: &str, output: &str) -> [Option<String>; 3] {
        let own = (self.settings.norm_place != NormPlace::Output).then(|| norm.to_owned());
        let output = matches!(self.settings.norm_place, NormPlace::Both | NormPlace::Output)
            .then(|| output.to_owned());
        match self.settings.norm_place {
            NormPlace::Post => [None, output, own],
            NormPlace::Pre | NormPlace::Both | NormPlace::Output => [own, output, None],
        }
    }

    /// A sublayer of `x` with its norms, added to the stream.
    fn sublayer<'a>(
        &self,
        graph: &mut Graph<'a>,
        [before, output, after]: &[Option<String>; 3],
        [stream, x]: [&Value; 2],
        made: impl FnOnce(&mut Graph<'a>, &Value) -> Result<Value>,
    ) -> Result<Value> {
        let read = self.norm_if(graph, x, before)?;
        let given = made(graph, &read)?;
        let given = self.norm_if(graph, &given, output)?;
        let sum = graph.op("Add", &[stream, &given]);
        self.norm_if(graph, &sum, after)
    }

    /// A norm, unless there is none; the first layer may be without.
    fn norm_if(&self, graph: &mut Graph, x: &Value, name: &Option<String>) -> Result<Value> {
        match name {
            Some(name) if graph.has(&format!("{name}.gain")) => self.norm(graph, x, name),
            _ => Ok(x.clone()),
        }
    }

    fn norm(&self, graph: &mut Graph, x: &Value, name: &str) -> Result<Value> {
        let gain = graph.parameter(&format!("{name}.gain"))?;
        let epsilon = self.settings.epsilon;
        if self.settings.norm == NormKind::Rms {
            let normed = over_root(graph, x, epsilon);
            return Ok(graph.op("Mul", &[&normed, &gain]));
        }
        let attributes =
            [("axis", Attribute::Int(-1)), ("epsilon", Attribute::Float(epsilon as f32))];
        let bias = format!("{name}.bias");
        if !graph.has(&bias) {
            return Ok(graph.op_with("LayerNormalization", &[x, &gain], &attributes));
        }
        let bias = graph.parameter(&bias)?;
        Ok(graph.op_with("LayerNormalization", &[x, &gain, &bias], &attributes))
    }
}

fn stack_name(site: Site) -> &'static str {
    if site == Site::Encoder { "encoder" } else { "decoder" }
}

fn attention_of(
    own: &AttentionSettings,
    name: String,
    position_name: String,
) -> Result<Attention<'_>> {
    let sizes = own.sizes().map_err(whatwhere_transformer::Error::from)?;
    let positions = own.position.iter().filter(|position| !position.embeds()).collect();
    Ok(Attention { settings: own, positions, sizes, name, position_name })
}
