//! Int8 weights of a model: the same blocks, run with a quarter of the memory to read.
//!
//! Linear layers of blocks, the table of embeddings and the way to the vocabulary are of int8; norms, biases and what
//! encodings learn stay in f32. A model that was opened with int8 weights has no others: its f32 parameters are made of
//! them when somebody asks, and are then the numbers it computes with.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Device, Tensor},
};
use rayon::prelude::*;
use whatwhere_attention::{AttentionLinears, bridge::Operand};
use whatwhere_kernels::{
    Precision,
    layer::{Int8Values, Linear, QuantizedLinear},
};
use whatwhere_settings::Refuses;

use crate::{
    Error, Model, ModelSettings, Parameter, ParameterPath, Role, feed_forward::FeedForwardLinears,
    parameters::ParameterView,
};

/// Layers by the names of their weights.
type Layers = HashMap<String, Arc<QuantizedLinear>>;

/// A model's int8 weights. Everything else is the model's.
#[derive(Debug)]
pub(crate) struct QuantizedModel {
    /// The tokens' embeddings, as columns; absent in a draft, which takes the model's, unless they also make logits.
    pub(crate) embedding: Option<Arc<QuantizedLinear>>,
    pub(crate) encoder: Vec<QuantizedBlock>,
    pub(crate) decoder: Vec<QuantizedBlock>,
    /// To the vocabulary.
    pub(crate) output: Arc<QuantizedLinear>,
    /// All of them.
    layers: Layers,
}

/// The linear layers of one block.
#[derive(Debug)]
pub(crate) struct QuantizedBlock {
    /// Query, key, value and output.
    own: [Arc<QuantizedLinear>; 4],
    cross: Option<[Arc<QuantizedLinear>; 4]>,
    up: Arc<QuantizedLinear>,
    gate: Option<Arc<QuantizedLinear>>,
    down: Arc<QuantizedLinear>,
}

impl ModelSettings {
    /// The parameters that int8 weights replace, and whether each is a table, whose rows are quantized, or a linear layer,
    /// whose columns are.
    pub fn quantized_parameters(&self) -> Result<BTreeMap<String, bool>, Error> {
        if self.recurrent.is_some() {
            let reason = "a recurrence has no int8 layers; use f32";
            return Err(Error::setting("weights", "int8", reason));
        }
        let mut naming = Naming::default();
        self.assemble(&Device::flex())?.visit(&mut naming);
        Ok(naming.found)
    }

    /// The model with these parameters in f32 and these in int8: [`Self::quantized_parameters`]. Refuses any that is missing,
    /// unknown or of another shape.
    pub fn build_int8(
        &self,
        parameters: Vec<Parameter>,
        layers: Vec<(String, QuantizedLinear)>,
        device: &Device,
    ) -> Result<Model, Error> {
        let bias = |name: &str| parameters.iter().find(|p| p.name == name).map(|p| &p.values[..]);
        let layers = with_biases(layers, bias)?;
        let tables = self.quantized_parameters()?;
        let named = layers.iter().map(|(name, layer)| {
            let is_table = tables.get(name).copied().unwrap_or_default();
            (name.clone(), layer.clone(), is_table)
        });
        let model = self.assemble(device)?.with_int8_parameters(parameters, named.collect())?;
        let int8 = QuantizedModel::new(&model, layers);
        let reason = "int8 weights without a layer of the model".into();
        let int8 = int8.ok_or(Error::Parameter { name: "model".into(), reason })?;
        Ok(model.with_int8(Some(Arc::new(int8))))
    }
}

impl Model {
    /// The same model with int8 weights, which are the nearest to its own. On the CPU only.
    pub fn to_int8(&self) -> Result<Model, Error> {
        if self.is_int8() {
            return Ok(self.clone());
        }
        if Operand::new(self.embedding.weight.val()).is_none() {
            let reason = "int8 weights need the CPU, the model is elsewhere";
            return Err(Error::setting("weights", "int8", reason));
        }
        let tables = self.settings().quantized_parameters()?;
        let (replaced, others): (Vec<_>, Vec<_>) =
            self.views().into_iter().partition(|view| tables.contains_key(&view.name));
        let quantize = |view: ParameterView| {
            let layer = quantized(&view.name, &view.shape, view.values(), tables[&view.name])?;
            Ok((view.name, layer))
        };
        let layers: Result<_, Error> = replaced.into_par_iter().map(quantize).collect();
        let copy = |view: ParameterView| Parameter {
            values: view.values().to_vec(),
            name: view.name,
            shape: view.shape,
        };
        let parameters = others.into_iter().map(copy).collect();
        self.settings().build_int8(parameters, layers?, &self.device())
    }

    /// Whether it computes with int8 weights.
    pub fn is_int8(&self) -> bool {
        self.int8().is_some()
    }

    /// Its int8 weights by the names of the parameters that they replace; none where it has none.
    pub fn int8_values(&self) -> Result<BTreeMap<String, Int8Values>, Error> {
        let Some(int8) = self.int8() else { return Ok(BTreeMap::new()) };
        let tables = self.settings().quantized_parameters()?;
        let value = |(name, is_table): (String, bool)| {
            let layer = int8.layers.get(&name)?;
            Some((name, layer.values(is_table)))
        };
        Ok(tables.into_par_iter().filter_map(value).collect())
    }
}

/// A parameter's weights in int8: of a linear layer `[from, to]`, or of a table of embeddings.
pub fn quantized(
    name: &str,
    shape: &[usize],
    values: &[f32],
    is_table: bool,
) -> Result<QuantizedLinear, Error> {
    let layer = match (is_table, shape) {
        (true, [_, width]) => QuantizedLinear::logits(values, *width),
        (false, [from, to]) => QuantizedLinear::new(&Linear {
            from: *from,
            to: *to,
            weight: values,
            bias: None,
            precision: Precision::F32,
        }),
        _ => {
            let reason = format!("has shape {shape:?}, expected two sizes");
            return Err(Error::Parameter { name: name.into(), reason });
        }
    };
    layer.map_err(|e| Error::Parameter { name: name.into(), reason: e.to_string() })
}

/// Layers with their biases; that of the logits is added later, to those of every kind of weight.
fn with_biases<'a>(
    layers: Vec<(String, QuantizedLinear)>,
    bias: impl Fn(&str) -> Option<&'a [f32]>,
) -> Result<Layers, Error> {
    let with_bias = |(name, layer): (String, QuantizedLinear)| {
        let own = name.strip_suffix(".weight").filter(|_| name.contains(".blocks."));
        let layer = match own.and_then(|own| bias(&format!("{own}.bias"))) {
            None => layer,
            Some(bias) => layer
                .with_bias(bias)
                .map_err(|e| Error::Parameter { name: name.clone(), reason: e.to_string() })?,
        };
        Ok((name, Arc::new(layer)))
    };
    layers.into_iter().map(with_bias).collect()
}

impl QuantizedModel {
    /// The weights a draft needs: those of the decoder, and of the logits. Nothing on another backend than the CPU's, or
    /// without a decoder.
    pub(crate) fn draft(model: &Model) -> Option<Self> {
        Operand::new(model.embedding.weight.val())?;
        let tables = model.settings().quantized_parameters().ok()?;
        let output = if model.settings().tied { "embedding.weight" } else { "output.weight" };
        let is_needed = |name: &str| {
            let is_memory = [".cross.attention.key.", ".cross.attention.value."]
                .iter()
                .any(|part| name.contains(part));
            name == output || (name.starts_with("decoder.blocks.") && !is_memory)
        };
        let views = model.views();
        let layers: Vec<_> = views
            .par_iter()
            .filter(|view| is_needed(&view.name))
            .filter_map(|view| {
                let is_table = *tables.get(&view.name)?;
                let layer = quantized(&view.name, &view.shape, view.values(), is_table);
                Some(layer.map(|layer| (view.name.clone(), layer)))
            })
            .collect::<Result<_, _>>()
            .ok()?;
        let bias = |name: &str| views.iter().find(|view| view.name == name).map(|v| v.values());
        Self::new(model, with_biases(layers, bias).ok()?)
    }

    /// Of these layers; nothing where one of the decoder or of the logits is missing.
    fn new(model: &Model, layers: Layers) -> Option<Self> {
        let blocks = |site: &str, count: usize| -> Option<Vec<QuantizedBlock>> {
            (0..count)
                .map(|block| QuantizedBlock::new(&format!("{site}.blocks.{block}"), &layers))
                .collect()
        };
        let count = |stack: &Option<crate::Stack>| stack.as_ref().map_or(0, |s| s.blocks.len());
        let embedding = layers.get("embedding.weight").cloned();
        // Who tells classes has no logits of tokens, and never asks for these.
        let output = match model.settings().tied || model.classifier.is_some() {
            true => embedding.clone()?,
            false => layers.get("output.weight")?.clone(),
        };
        let (encoder, decoder) = (count(&model.encoder), count(&model.decoder));
        Some(Self {
            embedding,
            // A draft reads no source.
            encoder: blocks("encoder", encoder).unwrap_or_default(),
            decoder: blocks("decoder", decoder)?,
            output,
            layers,
        })
    }
}

impl QuantizedBlock {
    fn new(block: &str, layers: &Layers) -> Option<Self> {
        let layer = |name: &str| layers.get(&format!("{block}.{name}.weight")).cloned();
        let attention = |of: &str| -> Option<[Arc<QuantizedLinear>; 4]> {
            let [query, output] = ["query", "output"].map(|name| layer(&format!("{of}.{name}")));
            let (query, output) = (query?, output?);
            // Those of a memory are made once, by the model itself where this is a draft.
            let [key, value] = ["key", "value"]
                .map(|name| layer(&format!("{of}.{name}")).unwrap_or_else(|| query.clone()));
            Some([query, key, value, output])
        };
        Some(Self {
            own: attention("attention")?,
            cross: attention("cross.attention"),
            up: layer("feed_forward.up")?,
            gate: layer("feed_forward.gate"),
            down: layer("feed_forward.down")?,
        })
    }

    pub(crate) fn own(&self) -> AttentionLinears<'_, QuantizedLinear> {
        linears(&self.own)
    }

    /// # Panics
    /// If the block has no attention to an encoder.
    pub(crate) fn cross(&self) -> AttentionLinears<'_, QuantizedLinear> {
        linears(self.cross.as_ref().expect("as the block it was made of"))
    }

    pub(crate) fn feed_forward(&self) -> FeedForwardLinears<'_, QuantizedLinear> {
        FeedForwardLinears { up: &self.up, gate: self.gate.as_deref(), down: &self.down }
    }
}

fn linears(
    [query, key, value, output]: &[Arc<QuantizedLinear>; 4],
) -> AttentionLinears<'_, QuantizedLinear> {
    AttentionLinears { query, key, value, output }
}

#[derive(Default)]
struct Naming {
    path: ParameterPath,
    found: BTreeMap<String, bool>,
}

impl ModuleVisitor for Naming {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<D>>) {
        let name = self.path.name();
        // Gates of a mixing are factors of a state, token after token, and so is what rounding does to them.
        let is_gate = self.path.is_within("Attention", "mixing");
        match self.path.role() {
            Role::Projection | Role::ResidualProjection
                if name.contains(".blocks.") && !is_gate =>
            {
                self.found.insert(name, false);
            }
            Role::Output => {
                self.found.insert(name, false);
            }
            Role::Embedding if name == "embedding.weight" => {
                self.found.insert(name, true);
            }
            _ => {}
        }
    }
}
