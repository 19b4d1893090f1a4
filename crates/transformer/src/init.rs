//! First weights, drawn for each parameter from the seed and its name: models that differ in one choice start with the
//! same weights everywhere else.

use std::sync::{Mutex, PoisonError};

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{Tensor, TensorData},
};
use whatwhere_random::{Fingerprint, Random};

use crate::{Init, Model, ModelSettings, ParameterPath, Role};

/// A process has one generator of the framework, and encodings draw their tables from it: one model at a time.
static DRAWING: Mutex<()> = Mutex::new(());

/// Draws the weights of projections and embeddings, and has encodings draw their own.
pub(crate) fn weights(model: Model, settings: &ModelSettings, seed: u64) -> Model {
    let scales = model.scales_embeddings();
    let _alone = DRAWING.lock().unwrap_or_else(PoisonError::into_inner);
    model.map(&mut Drawing { settings, scales, seed, path: ParameterPath::default() })
}

struct Drawing<'a> {
    settings: &'a ModelSettings,
    /// Whether embeddings are multiplied by √width.
    scales: bool,
    seed: u64,
    path: ParameterPath,
}

impl ModuleMapper for Drawing<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.path.name();
        let mut random = Random::new(&[self.seed, Fingerprint::of(name.as_bytes())]);
        let Some(spread) = self.spread(&param.lazy_shape()) else {
            param.lazy_device().seed(random.bits());
            drop(param.val()); // drawn when first asked for
            return param;
        };
        // In place of the framework's own draw, which is not asked for.
        let (shape, device) = (param.lazy_shape(), param.lazy_device());
        let values = spread.draw(shape.num_elements(), &mut random);
        let tensor = Tensor::from_data(TensorData::new(values, shape), &device);
        let learns = tensor.is_autodiff();
        Param::initialized(param.id, tensor.set_require_grad(learns))
    }
}

impl Drawing<'_> {
    /// How the parameter at the current path is drawn, if it is ours to draw.
    fn spread(&self, shape: &[usize]) -> Option<Spread> {
        let settings = self.settings;
        let role = self.path.role();
        match (role, settings.init) {
            // What is added to embeddings starts as large as they are.
            (Role::Table, _) if self.path.is_within("Stack", "position") => {
                let scale = if self.scales { (settings.width as f32).sqrt() } else { 1.0 };
                Some(Spread::Normal(scale * self.embeddings()))
            }
            (Role::Gain | Role::Table, _) => None,
            (Role::Bias, _) => Some(Spread::Normal(0.0)),
            (Role::Embedding, _) => Some(Spread::Normal(self.embeddings())),
            (Role::ResidualProjection, Init::Normal) => {
                let depth = settings.encoder_depth().max(settings.decoder_depth()).max(1);
                Some(Spread::Normal(0.02 / (2.0 * depth as f32).sqrt()))
            }
            (Role::Projection | Role::Output | Role::Head, Init::Normal) => {
                Some(Spread::Normal(0.02))
            }
            (
                Role::Projection | Role::ResidualProjection | Role::Output | Role::Head,
                Init::Scaled,
            ) => Some(Spread::Normal((3.0 * shape[0] as f32).powf(-0.5))),
            (
                Role::Projection | Role::ResidualProjection | Role::Output | Role::Head,
                Init::Xavier,
            ) => Some(Spread::Uniform((6.0 / (shape[0] + shape[1]) as f32).sqrt())),
        }
    }

    /// The deviation of embeddings as they are drawn.
    fn embeddings(&self) -> f32 {
        match self.settings.init {
            Init::Normal if !self.scales => 0.02,
            _ => (self.settings.width as f32).powf(-0.5),
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
    fn draw(&self, count: usize, random: &mut Random) -> Vec<f32> {
        match *self {
            Spread::Normal(0.0) => vec![0.0; count],
            Spread::Normal(deviation) => {
                (0..count).map(|_| deviation * random.normal() as f32).collect()
            }
            Spread::Uniform(bound) => {
                (0..count).map(|_| bound * (2.0 * random.uniform() as f32 - 1.0)).collect()
            }
        }
    }
}
