//! The composed path on wgpu agrees with the fused path on the CPU, forward and backward, for a handful of combinations.
//!
//! Apart from the default tests: the feature adds over twenty minutes to a build. CONTRIBUTING.md has the command; it needs
//! no GPU, a software driver will do. Without any adapter the test says that it was skipped.

#[path = "common/outcome.rs"]
mod outcome;

use burn::{
    module::Module,
    tensor::{Device, Distribution, Tensor},
};
use whatwhere_attention::{AttentionSettings, Input, Path};

use outcome::{Outcome, run};

/// f32 rounding, with a driver's own exponentials and sines.
const TOLERANCE: f32 = 1e-3;

/// Every kind of term that a call can hold, and mixing without scores.
const CASES: [&str; 12] = [
    "position = 'rotary'",
    "position = ['polar', { kind = 'alibi', learned = true }]\npattern = { kind = 'window', left = 4 }",
    "position = { kind = 'shaw', reach = 3 }",
    "position = 't5'\nkv_heads = 2",
    "position = 'none'\nscore = 'additive'\npattern = 'full'",
    "position = 'none'\nmixing = 'linear'",
    "position = ['rotary', { kind = 'polar', channels = [0.67, 1.0] }]\nmixing = 'linear'",
    "position = 'rotary'\nmixing = { kind = 'gated_linear', gates = 'head' }\nkv_heads = 2",
    "position = 'none'\nmixing = 'gated_delta'",
    "position = 'transformer_xl'",
    "position = 'none'\npattern = { kind = 'predicted', radius = 4 }",
    "position = 'none'\nscore = 'cosine'\nsoft_cap = 2.0\nqk_norm = true\npattern = 'document'",
];

fn assert_close(what: &str, gpu: &[f32], cpu: &[f32]) -> f32 {
    assert_eq!(gpu.len(), cpu.len(), "{what}");
    let size = cpu.iter().fold(1.0f32, |m, x| m.max(x.abs()));
    let far = gpu.iter().zip(cpu).map(|(a, b)| (a - b).abs() / size);
    let worst = far.fold(0.0f32, |m, x| if x.is_nan() { f32::INFINITY } else { m.max(x) });
    assert!(worst <= TOLERANCE, "{what}: differs by {worst:e}");
    worst
}

#[test]
fn wgpu_agrees_with_the_cpu() {
    let gpu = match Device::wgpu_options().init() {
        Ok(device) => device.autodiff(),
        Err(error) => {
            let reason = format!("SKIPPED: wgpu found no adapter ({error})");
            // The real standard error, which the test harness does not hold back; nobody to tell if it is closed.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), reason.as_bytes());
            return;
        }
    };
    eprintln!("on {:?}", gpu.identity());
    let cpu = Device::flex().autodiff();
    for case in CASES {
        let text = format!("width = 24\nheads = 4\nbias = true\n{case}");
        let settings = AttentionSettings::from_toml(&text).unwrap();
        let layer = settings.build(&cpu).unwrap();
        let x = Tensor::<3>::random([2, 19, 24], Distribution::Normal(0.0, 1.0), &cpu);
        let values = x.to_data();
        let input = |device: &Device, path| Input {
            documents: Some(vec![vec![0, 7, 12]]),
            key_lengths: Some(vec![19, 15]),
            path,
            ..Input::new(Tensor::from_data(values.clone(), device))
        };
        let truth = run(&layer, input(&cpu, Path::Fused));
        let there = layer.fork(&gpu);
        let refusal = there.forward(input(&gpu, Path::Fused)).unwrap_err().to_string();
        assert!(refusal.contains("needs the CPU backend, found") && refusal.contains("Wgpu"));
        let made = run(&there, input(&gpu, Path::Auto));
        eprintln!("{case:?}: differs by {:e}", compare(case, &made, &truth));
    }
}

/// The largest difference of outputs and gradients.
fn compare(case: &str, gpu: &Outcome, cpu: &Outcome) -> f32 {
    let mut worst = assert_close(&format!("{case}: out"), &gpu.out, &cpu.out);
    worst = worst.max(assert_close(&format!("{case}: d_x"), &gpu.d_x, &cpu.d_x));
    for ((parameter, a), (_, b)) in gpu.gradients.iter().zip(&cpu.gradients) {
        let what = format!("{case}: {parameter}");
        let (a, b) = (a.as_ref().expect(&what), b.as_ref().expect(&what));
        assert!(b.iter().any(|x| *x != 0.0), "{what}: no gradient");
        worst = worst.max(assert_close(&what, a, b));
    }
    worst
}
