//! What is measured, against what, and what is hoped for.

use whatwhere_kernels::Precision;

/// One line of the table.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) ours: Job,
    pub(crate) rival: Rival,
    /// The least ratio of ours to the rival, in tokens per second.
    pub(crate) target: Option<f64>,
    /// The largest ratio of ours to the rival, in memory.
    pub(crate) memory: Option<f64>,
}

/// Whom ours is compared with.
pub(crate) enum Rival {
    /// The same job in Python: torch, or transformers where a model writes.
    Python,
    /// Another job of ours.
    Ours(&'static str, Job),
}

#[derive(Clone, Copy)]
pub(crate) enum Job {
    Train(Train),
    Write(Write),
}

/// Steps of training.
#[derive(Clone, Copy)]
pub(crate) struct Train {
    /// Settings of the model, as TOML.
    pub(crate) model: &'static str,
    pub(crate) rows: usize,
    pub(crate) length: usize,
}

/// Tokens written one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Write {
    pub(crate) model: &'static str,
    pub(crate) prompt: usize,
    pub(crate) tokens: usize,
}

impl Job {
    pub(crate) fn model(&self) -> &'static str {
        match self {
            Self::Train(train) => train.model,
            Self::Write(write) => write.model,
        }
    }

    /// Tokens of one step.
    pub(crate) fn tokens(&self) -> usize {
        match self {
            Self::Train(train) => train.rows * train.length,
            Self::Write(write) => write.tokens,
        }
    }
}

/// A GPT with the norms and biases of GPT-2, which torch has fused operations for.
macro_rules! gpt {
    ($sizes:literal, $attention:literal) => {
        concat!(
            $sizes,
            "\nnorm = 'layer'\nbias = true\nactivation = 'gelu_tanh'\n",
            "[attention]\nbias = true\n",
            $attention
        )
    };
}

const A: &str = gpt!("vocabulary = 256\nwidth = 256\nlayers = 6", "heads = 8\nposition = 'rotary'");
const A_POLAR: &str =
    gpt!("vocabulary = 256\nwidth = 256\nlayers = 6", "heads = 8\nposition = 'polar'");
const A_BLOCK: &str = gpt!(
    "vocabulary = 256\nwidth = 256\nlayers = 6\nrecompute = 'block'",
    "heads = 8\nposition = 'rotary'"
);
const A_WINDOW: &str = gpt!(
    "vocabulary = 256\nwidth = 256\nlayers = 6",
    "heads = 8\nposition = 'rotary'\npattern = { kind = 'window', left = 255 }"
);
const B: &str =
    gpt!("vocabulary = 50257\nwidth = 768\nlayers = 12", "heads = 12\nposition = 'learned'");
/// Llama's shape with 25 million parameters.
const WRITER: &str = "vocabulary = 6000\nwidth = 512\nlayers = 6\ntied = false\nactivation = 'swiglu'\n\
                      feed_forward = 1376\n[attention]\nheads = 8\nposition = 'rotary'";

const fn train(model: &'static str, rows: usize, length: usize) -> Job {
    Job::Train(Train { model, rows, length })
}

/// All cases of a precision, in the order of the table.
pub(crate) fn cases(precision: Precision) -> Vec<Case> {
    match precision {
        Precision::F32 => in_f32(),
        Precision::Bf16 => in_bf16(),
    }
}

/// Against torch's bf16, and against our own f32.
fn in_bf16() -> Vec<Case> {
    let a = ("A: training, 512 × 8, bf16", "A in bf16", "A in f32", train(A, 8, 512), 0.5);
    let b = ("B: training, 1024 × 1, bf16", "B in bf16", "B in f32", train(B, 1, 1024), 0.9);
    // AVX512-BF16 multiplies twice as many numbers as AVX-512 does of f32, AMX many more.
    let target = if Precision::Bf16.means() == Some("AMX") { 1.4 } else { 1.25 };
    let mut cases = Vec::new();
    for (name, alone, in_f32, ours, memory) in [a, b] {
        cases.push(Case {
            name,
            ours,
            rival: Rival::Python,
            target: Some(1.2),
            memory: Some(memory),
        });
        let rival = Rival::Ours(in_f32, ours);
        cases.push(Case { name: alone, ours, rival, target: Some(target), memory: None });
    }
    cases
}

fn in_f32() -> Vec<Case> {
    let against_python = |name, ours, target, memory| Case {
        name,
        ours,
        rival: Rival::Python,
        target: Some(target),
        memory,
    };
    vec![
        against_python("A: training, 512 × 8, rotary", train(A, 8, 512), 1.1, Some(0.5)),
        against_python("B: training, 1024 × 1, GPT-2", train(B, 1, 1024), 1.2, Some(0.9)),
        Case {
            name: "A with PoPE",
            ours: train(A_POLAR, 8, 512),
            rival: Rival::Ours("A with rotary", train(A, 8, 512)),
            target: Some(0.9),
            memory: Some(1.15),
        },
        Case {
            name: "A, recompute = block",
            ours: train(A_BLOCK, 8, 512),
            rival: Rival::Ours("A, recompute = none", train(A, 8, 512)),
            target: None,
            memory: None,
        },
        Case {
            name: "A, 4096 × 1, window 256",
            ours: train(A_WINDOW, 1, 4096),
            rival: Rival::Ours("A, 4096 × 1, causal", train(A, 1, 4096)),
            target: Some(1.8),
            memory: None,
        },
        against_python(
            "writing, 25 M parameters",
            Job::Write(Write { model: WRITER, prompt: 16, tokens: 128 }),
            3.0,
            None,
        ),
    ]
}
