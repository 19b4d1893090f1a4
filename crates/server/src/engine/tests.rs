//! A thread that fails, and one that goes on.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use burn::tensor::Device;
use whatwhere_training::{Folder, Run, imported::Imported};
use whatwhere_transformer::ModelSettings;

use super::*;

/// A model without a tokenizer.
fn run() -> Arc<Run> {
    let settings = "vocabulary = 11\nwidth = 16\nlayers = 1\nattention = { heads = 2 }";
    let settings = ModelSettings::from_toml(settings).unwrap();
    let model = settings.build(3, &Device::flex()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let at = Folder::new(folder.path());
    Imported::default().save(&at, settings, &model.parameters(), None).unwrap();
    Arc::new(Run::open(folder.path()).unwrap())
}

fn engine(slots: usize, queue: usize) -> Engine {
    Engine::start(run(), slots, queue, Arc::default()).unwrap()
}

fn request(limit: usize) -> Request {
    Request {
        prompt: vec![1, 2, 3],
        seeds: vec![7],
        choosing: Choosing::default(),
        limit,
        ignores_end: true,
        told: None,
        tells_prompt: false,
        deadline: Instant::now() + Duration::from_secs(60),
    }
}

fn wait<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

#[test]
fn a_thread_that_fails_says_so_and_answers_nobody() {
    let engine = engine(2, 8);
    let mut writing = engine.write(vec![request(1_000_000)]).unwrap().remove(0).remove(0);
    assert!(matches!(writing.blocking_recv(), Some(Event::Read { cached: 0, .. })));
    let failed = wait(engine.ask(|_| -> u32 { panic!("a defect") })).unwrap_err();
    assert_eq!(failed.to_json()["error"]["type"], "server_error");
    // What was under way ends without a last word, and nothing new begins.
    while let Some(event) = writing.blocking_recv() {
        assert!(matches!(event, Event::Token { .. }));
    }
    assert!(engine.is_dead() && engine.slots().is_empty());
    assert!(engine.write(vec![request(1)]).is_err());
    assert!(wait(engine.ask(|_| 1)).is_err());
    engine.stop();
}

#[test]
fn a_thread_that_is_stopped_finishes_first() {
    let engine = engine(1, 8);
    let mut heard: Vec<_> =
        engine.write(vec![request(20), request(5)]).unwrap().into_iter().flatten().collect();
    let reading = std::thread::spawn(move || {
        let count = |events: &mut mpsc::Receiver<Event>| {
            std::iter::from_fn(|| events.blocking_recv()).count()
        };
        heard.iter_mut().map(count).collect::<Vec<_>>()
    });
    engine.stop();
    // The prompt, the tokens and the end.
    assert_eq!(reading.join().unwrap(), [22, 7]);
    assert!(!engine.is_dead() && engine.write(vec![request(1)]).is_err());
}

#[test]
fn a_queue_is_as_long_as_it_may_be() {
    let engine = engine(1, 3);
    let first = engine.write(vec![request(1_000_000)]).unwrap();
    while engine.slots().is_empty() {
        std::thread::yield_now();
    }
    let second = engine.write(vec![request(1), request(1), request(1)]).unwrap();
    assert_eq!((second.len(), engine.waiting()), (3, 3));
    let full = engine.write(vec![request(1)]).unwrap_err();
    assert_eq!(full.to_json()["error"]["code"], "queue_full");
    drop((first, second));
    while engine.waiting() > 0 {
        std::thread::yield_now();
    }
    assert!(engine.write(vec![request(1)]).is_ok());
}
