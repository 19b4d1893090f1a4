//! An encoding of one's own: KERPLE's learned logarithmic penalty, `−r1 · ln(1 + r2 · |distance|)` for each head.
//! Chi et al. 2022, <https://arxiv.org/abs/2205.09921>. Its parameters learn through the fused kernels.

use std::sync::Arc;

use burn::tensor::{Device, Distribution, Int, Tensor};
use whatwhere_attention::{
    Error, Path, attend,
    call::{Bias, Call, flat},
};
use whatwhere_kernels::attention::{Shape, pattern::Causal};

const LENGTH: usize = 12;

/// One value for each head and distance: the memory of a call stays O(length).
fn kerple(call: &Call, r1: Tensor<1>, r2: Tensor<1>) -> Bias {
    let (left, right) = call.reach();
    let far = Tensor::<1, Int>::arange(-(left as i64)..right as i64 + 1, &r1.device());
    let far = far.float().abs().unsqueeze_dim::<2>(0); // [1, distances]
    let per_head = |r: Tensor<1>| r.unsqueeze_dim::<2>(1); // [heads, 1]
    let table = per_head(r1).neg() * (per_head(r2) * far).log1p();
    Bias::ByDistance { table: flat(table), left, right }
}

fn main() -> Result<(), Error> {
    let device = Device::flex().autodiff();
    let normal = || Tensor::<4>::random([2, 4, LENGTH, 8], Distribution::Normal(0.0, 1.0), &device);
    let (q, k, v) = (normal(), normal(), normal());
    let r1 = Tensor::<1>::from_floats([1.0, 0.5, 0.25, 0.125], &device).require_grad();
    let r2 = Tensor::<1>::ones([4], &device).require_grad();

    let mut gradients = Vec::new();
    for path in [Path::Fused, Path::Composed] {
        let mut call = Call::new(Shape::square(2, 4, LENGTH, 8), Arc::new(Causal::upper_left()));
        call.biases.push(kerple(&call, r1.clone(), r2.clone()));
        let out = attend(&call, path, q.clone(), k.clone(), v.clone())?;
        let all = out.powi_scalar(2).sum().backward();
        let d_r1 =
            r1.grad(&all).expect("r1 learns").into_data().try_to_vec::<f32>().expect("f32 values");
        println!("{path:?}: d_r1 = {d_r1:?}");
        gradients.push(d_r1);
    }
    for (fused, composed) in gradients[0].iter().zip(&gradients[1]) {
        assert!((fused - composed).abs() < 1e-3 && *fused != 0.0);
    }
    Ok(())
}
