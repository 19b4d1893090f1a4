//! The parameters a model would have, without a weight drawn: what readers of files hold theirs against.

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Device, Tensor},
};

use crate::{Error, ModelSettings, parameters::ParameterPath};

impl ModelSettings {
    /// Name and shape of every parameter, in the order of [`Model::views`](crate::Model::views).
    pub fn shapes(&self) -> Result<Vec<(String, Vec<usize>)>, Error> {
        let mut shapes = Shapes::default();
        self.assemble(&Device::flex())?.visit(&mut shapes);
        Ok(shapes.found)
    }
}

#[derive(Default)]
struct Shapes {
    path: ParameterPath,
    found: Vec<(String, Vec<usize>)>,
}

impl ModuleVisitor for Shapes {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.push((self.path.name(), param.lazy_shape().to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_those_of_the_model() {
        for extra in ["", "family = 'encoder_decoder'\nbias = true\nattention.position = 'alibi'"] {
            let text = format!("vocabulary = 11\nwidth = 32\nlayers = 2\n{extra}");
            let settings = ModelSettings::from_toml(&text).unwrap();
            let model = settings.build(1, &Device::flex()).unwrap();
            let built: Vec<_> = model.views().into_iter().map(|v| (v.name, v.shape)).collect();
            assert_eq!(settings.shapes().unwrap(), built);
        }
    }
}
