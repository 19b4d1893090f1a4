//! burn's own attention on its CPU backend, in this process: flash attention forward, decomposed where gradients are wanted.

use std::{hint::black_box, time::Instant};

use anyhow::{Result, bail};
use burn::tensor::{Device, Tensor, TensorData, module::attention, ops::AttentionModuleOptions};

use crate::ours::{Pass, Problem, Task, What};

/// As in the workspace's manifest.
pub(crate) const NAME: &str = "burn 0.22.1";

/// A problem on burn's tensors.
pub(crate) struct Burn {
    /// q, k and v.
    inputs: [Tensor<4>; 3],
    d_out: Tensor<4>,
    causal: bool,
    pass: Pass,
}

impl Burn {
    /// Refuses what burn has no operation for.
    pub(crate) fn new(problem: &Problem) -> Result<Self> {
        let Task { what, pass, .. } = problem.task;
        let causal = match what {
            What::Causal => true,
            What::Full => false,
            _ => bail!("burn has no operation for {}, expected causal or full", problem.task),
        };
        let device = match pass {
            Pass::Forward => Device::flex(),
            Pass::Both => Device::flex().autodiff(),
        };
        let tensor = |name: &str| {
            let tensor = problem.tensor(name);
            let data = TensorData::new(tensor.values.clone(), tensor.shape.clone());
            Tensor::<4>::from_data(data, &device)
        };
        let inputs = ["q", "k", "v"].map(tensor);
        Ok(Self { inputs, d_out: tensor("d_out"), causal, pass })
    }

    /// The output, and the gradients of q, k and v if they are wanted.
    pub(crate) fn run(&self) -> Vec<Tensor<4>> {
        let options = AttentionModuleOptions { is_causal: self.causal, ..Default::default() };
        if self.pass == Pass::Forward {
            let [q, k, v] = self.inputs.clone();
            return vec![attention(q, k, v, None, None, options)];
        }
        let learned = self.inputs.clone().map(|tensor| tensor.detach().require_grad());
        let [q, k, v] = learned.clone();
        let out = attention(q, k, v, None, None, options);
        // One product and one sum more than attention itself, over as many values as the output has.
        let gradients = (out.clone() * self.d_out.clone()).sum().backward();
        let d = learned.map(|tensor| tensor.grad(&gradients).expect("it was asked for"));
        std::iter::once(out).chain(d).collect()
    }

    /// Output and gradients by name.
    pub(crate) fn results(&self) -> Result<Vec<(String, Vec<f32>)>> {
        let names = ["out", "d_q", "d_k", "d_v"];
        let values = |tensor: Tensor<4>| tensor.into_data().try_to_vec::<f32>();
        let named = names.into_iter().zip(self.run());
        named.map(|(name, tensor)| Ok((name.to_owned(), values(tensor)?))).collect()
    }

    /// Milliseconds of the fastest call out of some.
    pub(crate) fn time(&self, calls: usize) -> f64 {
        black_box(self.run());
        let mut best = f64::INFINITY;
        for _ in 0..calls {
            let start = Instant::now();
            let results = black_box(self.run());
            best = best.min(start.elapsed().as_secs_f64() * 1e3);
            drop(results);
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agree::{Against, TOLERANCE, worst_difference};

    #[test]
    fn burn_gives_what_ours_gives() {
        for what in [What::Causal, What::Full] {
            for pass in [Pass::Forward, Pass::Both] {
                let problem = Problem::new(Task { what, length: 70, pass });
                let theirs = Burn::new(&problem).unwrap().results().unwrap();
                let (result, far) =
                    worst_difference(&problem.run().unwrap(), &theirs, Against::Tensor).unwrap();
                assert!(far < TOLERANCE, "{}: {result} differs by {far:e}", problem.task);
            }
        }
    }

    #[test]
    fn the_version_is_the_one_that_is_built() {
        let version = NAME.strip_prefix("burn ").unwrap();
        let manifest = include_str!("../../Cargo.toml");
        assert!(manifest.contains(&format!("burn = {{ version = \"={version}\"")));
    }
}
