//! Packed documents: with the `document` pattern no prediction knows another document, and such a model trains, is
//! evaluated, writes and resumes as any other.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::ops::ControlFlow;

use burn::tensor::Device;
use whatwhere_data::{Corpus, Split};
use whatwhere_training::{
    Ending, Folder, Generation, Observer, Record, Run, RunSettings, Sampling, Trainer, evaluate,
    interrupt::Interrupt, trainer,
};
use whatwhere_transformer::{Mode, Sequences};

const BOTH: &str = "pattern = { kind = 'and', of = ['causal', 'document'] }";

fn settings(pattern: &str, steps: u64) -> RunSettings {
    let text = format!(
        "[model]\nwidth = 16\nlayers = 2\ninit = 'normal'\n[model.attention]\nheads = 2\n{pattern}\n\
         [training]\nbatch = 4\nlength = 40\nsteps = {steps}\nevaluate_every = 4\nevaluate_batches = 2"
    );
    RunSettings::read(&text, &[]).unwrap()
}

fn corpus(settings: &RunSettings) -> Corpus {
    let text = |i: usize| format!("document {i} says {}. ", i * i % 17);
    Corpus::from_texts((0..60).map(text).collect(), &settings.data).unwrap()
}

/// The model's choices at every place of a row, given its documents.
fn logits(settings: &RunSettings, row: &[u32], starts: &[usize]) -> Vec<Vec<f32>> {
    let model = settings.model.build(3, &Device::flex()).unwrap();
    let mut tokens = Sequences::from_rows(&[row]);
    tokens.documents = Some(vec![starts.to_vec()]);
    let logits = model.forward(None, &tokens, Mode::default()).unwrap();
    let width = logits.dims()[2];
    let all: Vec<f32> = logits.into_data().try_into_vec().unwrap();
    all.chunks(width).map(<[f32]>::to_vec).collect()
}

#[test]
fn no_prediction_knows_its_target_or_another_document() {
    let mut packed = settings(BOTH, 1);
    let corpus = corpus(&packed);
    packed.resolve(corpus.vocabulary()).unwrap();
    let batch = trainer::batches(&packed, &corpus, Split::Train).unwrap().get(0).unwrap();
    let end = corpus.tokenizer().end().unwrap();
    for (row, starts) in batch.documents.iter().enumerate() {
        let tokens = &batch.tokens[row * batch.length..(row + 1) * batch.length];
        assert!(starts.len() > 1, "a row of 40 bytes holds several documents: {starts:?}");
        assert!(starts[1..].iter().all(|&start| tokens[start] == end));
        let document = |place: usize| starts.partition_point(|&start| start <= place);
        let before = logits(&packed, tokens, starts);
        for changed in 0..tokens.len() {
            let mut other = tokens.to_vec();
            other[changed] = u32::from(b'?');
            let after = logits(&packed, &other, starts);
            for place in 0..tokens.len() {
                let may = place >= changed && document(place) == document(changed);
                assert_eq!(
                    before[place] != after[place],
                    may,
                    "{changed} seen from {place}, {starts:?}"
                );
            }
        }
    }
}

/// Asks to stop after some updates.
struct After(u64, Interrupt);

impl Observer for After {
    fn updated(&mut self, _: &Record, step: u64) {
        if step == self.0 {
            self.1.request();
        }
    }
}

#[test]
fn packed_documents_train_evaluate_resume_and_write() {
    let folder = tempfile::tempdir().unwrap();
    let whole = Folder::new(folder.path().join("whole"));
    let halves = Folder::new(folder.path().join("halves"));
    let full = settings(BOTH, 8);
    let corpus = corpus(&full);
    let interrupt = Interrupt::default();
    let mut run = Trainer::start(full.clone(), corpus.clone(), whole.clone()).unwrap();
    run.run(&interrupt, &mut ()).unwrap();
    drop(run);
    let mut run = Trainer::start(full.clone(), corpus.clone(), halves.clone()).unwrap();
    let stop = Interrupt::default();
    let ending = run.run(&stop, &mut After(3, stop.clone())).unwrap();
    assert_eq!(ending, Ending::Interrupted);
    drop(run);
    let mut run = Trainer::resume(full, corpus.clone(), halves.clone()).unwrap();
    run.run(&interrupt, &mut ()).unwrap();
    drop(run);
    let weights = |folder: &Folder| std::fs::read(folder.model()).unwrap();
    assert!(weights(&whole) == weights(&halves), "the same bits");
    let opened = Run::open(whole.path()).unwrap();
    let batches = trainer::batches(&opened.settings, &corpus, Split::Valid).unwrap();
    let loss = evaluate(opened.model(), &batches, None, None).unwrap().loss;
    assert!(loss.is_finite() && loss < 6.0, "{loss}");
    let generation = Generation { sampling: Sampling::greedy(), limit: 10, stop: Vec::new() };
    let text = opened.generate("document ", &generation, |_| ControlFlow::Continue(())).unwrap();
    assert!(!text.is_empty());
}

#[test]
fn what_a_decoder_may_see_is_told_with_the_way_out() {
    let text = "[model.attention]\npattern = 'document'";
    let said = RunSettings::read(text, &[]).unwrap_err().to_string();
    assert!(said.contains(r#"{ kind = "and", of = ["causal", "document"] }"#), "{said}");
    let text = format!(
        "[model]\nsegment_memory = 8\n[model.attention]\nposition = 'transformer_xl'\n{BOTH}"
    );
    let said = RunSettings::read(&text, &[]).unwrap_err().to_string();
    assert!(said.contains("kept segments do not say where documents start"), "{said}");
}

#[test]
fn global_tokens_that_the_tokenizer_does_not_have_are_refused() {
    let read = |tokens: &str| {
        let pattern = format!("{{ kind = 'global', tokens = [{tokens}] }}");
        let change = format!("pattern={{kind='or',of=['window',{pattern}]}}");
        let text = "[model]\nfamily = 'encoder'\nwidth = 16\nattention = { heads = 2 }\n[data]\ntokenizer = 'characters'";
        let mut settings = RunSettings::read(text, &[change]).unwrap();
        let corpus = Corpus::from_texts(vec!["ab. ".repeat(50)], &settings.data).unwrap();
        settings.resolve_for(&corpus).map_err(|e| e.to_string())
    };
    assert_eq!(read("'.', 0"), Ok(()));
    let refused = read("99").unwrap_err();
    assert!(refused.contains("pattern.tokens = 99: the tokenizer has"), "{refused}");
    let refused = read("'x'").unwrap_err();
    assert!(refused.contains("no token of this tokenizer"), "{refused}");
}
