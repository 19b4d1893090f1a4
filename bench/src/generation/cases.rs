//! What is measured, against whom, and what is hoped for.

/// One case: a job of ours, and its rivals.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) job: Job,
    /// What ours computes with.
    pub(crate) int8: bool,
    pub(crate) rivals: &'static [Rival],
}

/// A rival, and the least ratio of ours to it in tokens per second.
pub(crate) struct Rival {
    pub(crate) name: &'static str,
    pub(crate) engine: Engine,
    pub(crate) target: Option<f64>,
}

#[derive(Clone, Copy)]
pub(crate) enum Engine {
    /// llama.cpp on a GGUF file of this kind.
    Llama(&'static str),
    /// CTranslate2 with this type of weights.
    CTranslate2(&'static str),
}

#[derive(Clone, Copy)]
pub(crate) enum Job {
    /// Tokens one after the other.
    Write { model: &'static str, tokens: usize },
    /// A prompt up to the first token after it.
    Prompt { model: &'static str, tokens: usize },
    /// Several sequences at once, each after a prompt; only what comes after it counts.
    Together { model: &'static str, sequences: usize, prompt: usize, tokens: usize },
    /// Translation by beam search.
    Translate { sentences: usize, source: usize, tokens: usize, beam: usize },
}

/// The translator: Transformer base.
pub(crate) const TRANSLATOR: &str = "\
family = 'encoder_decoder'
vocabulary = 8000
width = 512
layers = 6
norm = 'layer'
norm_place = 'post'
bias = true
activation = 'relu'
feed_forward = 2048
tied = true
scale_embeddings = true
init = 'xavier'
[attention]
heads = 8
bias = true
position = 'sinusoidal'
[cross]
position = 'none'
";

impl Job {
    /// Tokens that are counted.
    pub(crate) fn tokens(&self) -> usize {
        match *self {
            Self::Write { tokens, .. } | Self::Prompt { tokens, .. } => tokens,
            Self::Together { sequences, tokens, .. } => sequences * tokens,
            Self::Translate { sentences, tokens, .. } => sentences * tokens,
        }
    }
}

const fn llama(name: &'static str, kind: &'static str, target: Option<f64>) -> Rival {
    Rival { name, engine: Engine::Llama(kind), target }
}

const fn ctranslate2(name: &'static str, kind: &'static str, target: Option<f64>) -> Rival {
    Rival { name, engine: Engine::CTranslate2(kind), target }
}

const Q8: Rival = llama("llama.cpp Q8_0", "Q8_0", Some(1.2));

/// All cases, in the order of the table.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "SmolLM2, writing 128, int8",
        job: Job::Write { model: "smollm2", tokens: 128 },
        int8: true,
        rivals: &[Q8, llama("llama.cpp Q4_1", "Q4_1", Some(1.0))],
    },
    Case {
        name: "SmolLM2, writing 128, f32",
        job: Job::Write { model: "smollm2", tokens: 128 },
        int8: false,
        rivals: &[llama("llama.cpp F32", "F32", Some(1.5))],
    },
    Case {
        name: "SmolLM2, prompt 512, int8",
        job: Job::Prompt { model: "smollm2", tokens: 512 },
        int8: true,
        rivals: &[
            ctranslate2("CTranslate2 int8", "int8", Some(1.0)),
            llama("llama.cpp Q8_0", "Q8_0", None),
        ],
    },
    Case {
        name: "SmolLM2, prompt 512, f32",
        job: Job::Prompt { model: "smollm2", tokens: 512 },
        int8: false,
        rivals: &[
            llama("llama.cpp F32", "F32", Some(1.2)),
            ctranslate2("CTranslate2 float32", "float32", None),
        ],
    },
    Case {
        name: "SmolLM2, 4 sequences, int8",
        job: Job::Together { model: "smollm2", sequences: 4, prompt: 64, tokens: 32 },
        int8: true,
        rivals: &[Q8],
    },
    Case {
        name: "SmolLM2, 8 sequences, int8",
        job: Job::Together { model: "smollm2", sequences: 8, prompt: 64, tokens: 32 },
        int8: true,
        rivals: &[Q8],
    },
    Case {
        name: "25 M, writing 128, int8",
        job: Job::Write { model: "25m", tokens: 128 },
        int8: true,
        rivals: &[Q8],
    },
    Case {
        name: "25 M, writing 128, f32",
        job: Job::Write { model: "25m", tokens: 128 },
        int8: false,
        rivals: &[llama("llama.cpp F32", "F32", Some(1.5))],
    },
    Case {
        name: "translation, beam 4, f32",
        job: Job::Translate { sentences: 32, source: 20, tokens: 32, beam: 4 },
        int8: false,
        rivals: &[ctranslate2("CTranslate2 float32", "float32", Some(1.2))],
    },
    Case {
        name: "translation, beam 4, int8",
        job: Job::Translate { sentences: 32, source: 20, tokens: 32, beam: 4 },
        int8: true,
        rivals: &[ctranslate2("CTranslate2 int8", "int8", Some(1.0))],
    },
];
