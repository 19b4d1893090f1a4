//! What a layer computes, as plain numbers: output, gradients of every parameter and of the input.

#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Gradients, Tensor},
};
use whatwhere_attention::{Attention, Input};

/// Names and values of every parameter's gradient.
struct Collect<'a> {
    gradients: &'a Gradients,
    path: Vec<String>,
    found: Vec<(String, Option<Vec<f32>>)>,
}

impl ModuleVisitor for Collect<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        if tensor.is_require_grad() {
            let gradient =
                tensor.grad(self.gradients).map(|g| g.into_data().try_to_vec::<f32>().unwrap());
            self.found.push((self.path.join("."), gradient));
        }
    }
}

/// One forward and backward pass.
pub(crate) struct Outcome {
    pub(crate) out: Vec<f32>,
    /// By parameter; nothing for one that took no part.
    pub(crate) gradients: Vec<(String, Option<Vec<f32>>)>,
    pub(crate) d_x: Vec<f32>,
}

/// Runs the layer on the input, and back from a fixed weighing of its output.
pub(crate) fn run(layer: &Attention, input: Input) -> Outcome {
    let x = input.x.clone().detach().require_grad();
    let input = Input { x: x.clone(), ..input };
    let out = layer.forward(input).unwrap();
    let [batch, length, width] = out.dims();
    let weights: Vec<f32> =
        (0..batch * length * width).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
    let weights =
        Tensor::<1>::from_floats(weights.as_slice(), &out.device()).reshape([batch, length, width]);
    let gradients = (out.clone() * weights).sum().backward();
    let mut collect = Collect { gradients: &gradients, path: Vec::new(), found: Vec::new() };
    layer.visit(&mut collect);
    Outcome {
        out: out.into_data().try_to_vec::<f32>().unwrap(),
        d_x: x.grad(&gradients).expect("x takes part").into_data().try_to_vec::<f32>().unwrap(),
        gradients: collect.found,
    }
}
