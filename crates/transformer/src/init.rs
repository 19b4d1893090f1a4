//! First weights, drawn for each parameter from the seed and its name: models that differ in one choice start with the
//! same weights everywhere else.

use std::sync::{Mutex, PoisonError};

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{Tensor, TensorData},
};

use crate::{Init, Model, ModelSettings, dropout::mix};

/// A process has one generator of the framework, and encodings draw their tables from it: one model at a time.
static DRAWING: Mutex<()> = Mutex::new(());

/// Draws the weights of projections and embeddings, and has encodings draw their own.
pub(crate) fn weights(model: Model, settings: &ModelSettings, seed: u64) -> Model {
    let _alone = DRAWING.lock().unwrap_or_else(PoisonError::into_inner);
    model.map(&mut Drawing { settings, seed, path: Vec::new() })
}

struct Drawing<'a> {
    settings: &'a ModelSettings,
    seed: u64,
    /// Names and kinds of the modules around the parameter.
    path: Vec<(String, String)>,
}

impl ModuleMapper for Drawing<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push((name.into(), container.into()));
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name: Vec<&str> = self.path.iter().map(|(name, _)| name.as_str()).collect();
        let seed = self.seed ^ hash(&name.join("."));
        let Some(spread) = self.spread(&param.lazy_shape()) else {
            param.lazy_device().seed(seed);
            drop(param.val()); // drawn when first asked for
            return param;
        };
        let mut random = fastrand::Rng::with_seed(seed);
        param.map(|tensor| {
            let values = spread.draw(tensor.shape().num_elements(), &mut random);
            Tensor::from_data(TensorData::new(values, tensor.shape()), &tensor.device())
                .set_require_grad(tensor.is_require_grad())
        })
    }
}

impl Drawing<'_> {
    /// How the parameter at the current path is drawn, if it is ours to draw.
    fn spread(&self, shape: &[usize]) -> Option<Spread> {
        let [.., (owner, _), (name, kind)] = self.path.as_slice() else { return None };
        match (kind.as_str(), name.as_str()) {
            ("Struct:Linear", "bias") => Some(Spread::Normal(0.0)),
            ("Struct:Linear", _) => Some(match self.settings.init {
                Init::Xavier => Spread::Uniform((6.0 / (shape[0] + shape[1]) as f32).sqrt()),
                Init::Normal => {
                    let depth = self.settings.encoder_depth().max(self.settings.decoder_depth());
                    let back = owner == "down" || (owner == "output" && self.path.len() > 2);
                    Spread::Normal(if back { 0.02 / (2.0 * depth as f32).sqrt() } else { 0.02 })
                }
            }),
            ("Struct:Embedding", _) => Some(Spread::Normal(match self.settings.init {
                Init::Normal if !self.settings.scale_embeddings => 0.02,
                _ => (self.settings.width as f32).powf(-0.5),
            })),
            _ => None,
        }
    }
}

enum Spread {
    /// Deviation.
    Normal(f32),
    /// Bound.
    Uniform(f32),
}

impl Spread {
    fn draw(&self, count: usize, random: &mut fastrand::Rng) -> Vec<f32> {
        match *self {
            Spread::Normal(0.0) => vec![0.0; count],
            Spread::Normal(deviation) => (0..count).map(|_| deviation * normal(random)).collect(),
            Spread::Uniform(bound) => {
                (0..count).map(|_| bound * (2.0 * random.f32() - 1.0)).collect()
            }
        }
    }
}

/// Box and Muller's transform.
fn normal(random: &mut fastrand::Rng) -> f32 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    (radius * (std::f64::consts::TAU * random.f64()).cos()) as f32
}

/// A hash that is the same on every machine and in every version.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |state, byte| mix(state ^ u64::from(byte)))
}
