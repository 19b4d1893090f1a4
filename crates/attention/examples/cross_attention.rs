//! Cross-attention with Bahdanau's additive score: queries of one sequence look at another, which has padding.

use burn::tensor::{Device, Distribution, Tensor};
use whatwhere_attention::{AttentionSettings, Error, Input, pattern::Full, score::Additive};

fn main() -> Result<(), Error> {
    let device = Device::flex();
    let settings = AttentionSettings {
        width: 32,
        heads: 2,
        score: Additive::default().into(),
        pattern: Full::default().into(),
        position: vec![],
        ..Default::default()
    };
    let layer = settings.build(&device)?;
    let normal =
        |length| Tensor::<3>::random([2, length, 32], Distribution::Normal(0.0, 1.0), &device);
    let (x, memory) = (normal(5), normal(9));
    let input = |memory: Tensor<3>| Input {
        memory: Some(memory),
        key_lengths: Some(vec![9, 6]), // the second sequence ends after 6 keys
        ..Input::new(x.clone())
    };
    let out = layer.forward(input(memory.clone()))?;
    println!("{:?} looks at {:?}: {:?}", x.dims(), memory.dims(), out.dims());

    // What stands in the padding does not matter.
    let other = Tensor::cat(vec![memory.clone().narrow(1, 0, 6), normal(3)], 1);
    let changed = (layer.forward(input(other))? - out).abs();
    assert_eq!(changed.clone().narrow(0, 1, 1).max().into_scalar::<f32>(), 0.0);
    assert!(changed.narrow(0, 0, 1).max().into_scalar::<f32>() > 0.0);
    Ok(())
}
