//! Logits of tiny models written by transformers, computed again with this crate's layer, by both paths. One file per
//! model; each holds no more of it than the layer needs around itself.
#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

mod bert;
mod bloom;
#[path = "../common/mod.rs"]
mod common;
mod gpt2;
mod llama;
mod marian;
mod t5;
mod xlnet;

use burn::{
    module::Param,
    nn::Linear,
    tensor::{Device, Tensor},
};
use whatwhere_attention::{
    Attention, AttentionSettings, Path, Position,
    position::{NoPosition, PositionLayer},
};

use common::{File, difference, fixture};

/// Logits of size 5 after two layers in f32.
const TOLERANCE: f32 = 2e-5;
/// Logits without the encoding are further off than this, by 0.3 for XLNet to 4 for Marian.
const WRONG: f32 = 0.1;

/// A model's tensors, and the path its layers take.
struct Model {
    file: File,
    golden: File,
    path: Path,
}

/// Compares a model's logits with the stored ones, for the right encoding and for none.
fn meets(
    name: &str,
    position: impl Into<Position>,
    tolerance: f32,
    logits: fn(&Model, &Position) -> Tensor<3>,
) {
    let Some(folder) = fixture(&format!("huggingface/{name}")) else { return };
    let none = NoPosition::default().into();
    for (position, right) in [(&position.into(), true), (&none, false)] {
        for path in [Path::Fused, Path::Composed] {
            let read = |part: &str| File::read(&folder.join(part));
            let (file, golden) = (read("model.safetensors"), read("golden.safetensors"));
            let model = Model { file, golden, path };
            let far = difference(logits(&model, position), model.golden.floats("logits"));
            eprintln!("{name} as {} by {path:?}: {far:e}", position.name());
            assert!(if right { far < tolerance } else { far > WRONG }, "{name}: {far:e}");
        }
    }
}

/// Settings of every model here, but for what differs.
fn settings(position: &Position) -> AttentionSettings {
    let position = vec![position.clone()];
    AttentionSettings {
        width: 64,
        heads: 4,
        bias: whatwhere_attention::AttentionBias::All,
        position,
        ..Default::default()
    }
}

impl Model {
    fn vector(&self, name: &str) -> Tensor<3> {
        self.file.floats::<1>(name).unsqueeze()
    }

    /// Embedded tokens, two sequences of them.
    fn embed(&self, ids: &str, table: &str) -> Tensor<3> {
        let ids = self.golden.ids(ids);
        let length = ids.dims()[0] / 2;
        self.file.floats::<2>(table).select(0, ids).reshape([2, length, 64])
    }

    /// With a bias, if the file has one.
    fn linear(&self, x: Tensor<3>, name: &str) -> Tensor<3> {
        let x = x.matmul(self.file.weight(name).unsqueeze());
        let bias = format!("{name}.bias");
        if self.file.has(&bias) { x + self.vector(&bias) } else { x }
    }

    fn layer_norm(&self, x: Tensor<3>, name: &str, epsilon: f32) -> Tensor<3> {
        let centered = x.clone() - x.mean_dim(2);
        let deviation = (centered.clone().powi_scalar(2).mean_dim(2) + epsilon).sqrt();
        let weight = self.vector(&format!("{name}.weight"));
        centered / deviation * weight + self.vector(&format!("{name}.bias"))
    }

    fn rms_norm(&self, x: Tensor<3>, name: &str) -> Tensor<3> {
        let size = (x.clone().powi_scalar(2).mean_dim(2) + 1e-6).sqrt();
        x / size * self.vector(&format!("{name}.weight"))
    }

    /// Logits by the embedding's own table.
    fn tied(&self, x: Tensor<3>, table: &str) -> Tensor<3> {
        x.matmul(self.file.floats::<2>(table).transpose().unsqueeze())
    }

    /// A layer whose projections have names of their own.
    fn attention(&self, settings: &AttentionSettings, names: [String; 4]) -> Attention {
        let mut layer = settings.build(&Device::flex()).unwrap();
        for (linear, name) in projections(&mut layer).into_iter().zip(names) {
            linear.weight = Param::from_tensor(self.file.weight(&name));
            let bias = format!("{name}.bias");
            linear.bias = self.file.has(&bias).then(|| Param::from_tensor(self.file.floats(&bias)));
        }
        layer
    }
}

/// Query, key, value, output.
fn projections(layer: &mut Attention) -> [&mut Linear; 4] {
    [&mut layer.query, &mut layer.key, &mut layer.value, &mut layer.output]
        .map(|linear| linear.as_mut().unwrap())
}

/// Positions added to embeddings, by an encoding without parameters.
fn add_places(x: Tensor<3>, settings: &AttentionSettings) -> Tensor<3> {
    settings.build(&Device::flex()).unwrap().position[0].embed(x, 0).unwrap()
}
