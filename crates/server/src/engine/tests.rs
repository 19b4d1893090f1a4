//! A thread that fails, and one that goes on.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use burn::tensor::Device;
use tokio::time::timeout;
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

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
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
        deadline: soon(),
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
    assert!(matches!(writing.blocking_next(), Some(Event::Read { cached: 0, .. })));
    let failed = wait(engine.ask(soon(), |_| -> u32 { panic!("a defect") })).unwrap_err();
    assert_eq!(failed.to_json()["error"]["type"], "server_error");
    // What was under way ends without a last word, and nothing new begins.
    while let Some(event) = writing.blocking_next() {
        assert!(matches!(event, Event::Token { .. }));
    }
    assert!(engine.is_dead() && engine.slots().is_empty());
    assert!(engine.write(vec![request(1)]).is_err());
    assert!(wait(engine.ask(soon(), |_| 1)).is_err());
    engine.stop(soon());
}

#[test]
fn a_thread_that_is_stopped_finishes_first() {
    let engine = engine(1, 8);
    let mut heard: Vec<_> =
        engine.write(vec![request(20), request(5)]).unwrap().into_iter().flatten().collect();
    let reading = std::thread::spawn(move || {
        let count = |events: &mut Heard| std::iter::from_fn(|| events.blocking_next()).count();
        heard.iter_mut().map(count).collect::<Vec<_>>()
    });
    engine.stop(soon());
    // The prompt, the tokens and the end.
    assert_eq!(reading.join().unwrap(), [22, 7]);
    assert!(!engine.is_dead() && engine.write(vec![request(1)]).is_err());
}

/// A question that is under way until it is told to end, and the way to tell it.
fn long_question(engine: &Arc<Engine>) -> (std::thread::JoinHandle<bool>, blocking::Sender<()>) {
    let ((begins, begun), (ends, end)) = (blocking::channel(), blocking::channel::<()>());
    let its_engine = engine.clone();
    let asking = std::thread::spawn(move || {
        let question = move |_: &Run| {
            begins.send(()).unwrap();
            let _ = end.recv();
        };
        wait(its_engine.ask(soon(), question)).is_ok()
    });
    begun.recv().unwrap();
    // What is under way does not wait.
    assert_eq!(engine.waiting(), 0);
    (asking, ends)
}

fn is_late<T>(answer: Result<T, Refusal>) -> bool {
    answer.is_err_and(|refusal| refusal == Refusal::late())
}

#[test]
fn a_question_does_not_wait_beyond_its_deadline_and_never_begins_after_it() {
    let engine = Arc::new(engine(1, 8));
    let (asking, end) = long_question(&engine);
    let has_begun = Arc::new(AtomicBool::new(false));
    let begins = has_begun.clone();
    let question = move |_: &Run| begins.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    let deadline = begun + Duration::from_millis(200);
    assert!(is_late(wait(engine.ask(deadline, question))));
    assert!(begun.elapsed() < Duration::from_secs(20));
    // The next of several texts is not even sent.
    let before = engine.waiting();
    assert!(is_late(wait(engine.ask(deadline, |_| ()))));
    assert_eq!(engine.waiting(), before);
    drop(end);
    assert!(asking.join().unwrap());
    wait(engine.ask(soon(), |_| ())).unwrap();
    assert!(!has_begun.load(Ordering::SeqCst));
}

#[test]
fn a_question_under_way_is_not_waited_for_beyond_its_deadline() {
    let engine = engine(1, 8);
    let (end, until) = blocking::channel::<()>();
    let deadline = Instant::now() + Duration::from_millis(200);
    assert!(is_late(wait(engine.ask(deadline, move |_| until.recv().is_err()))));
    drop(end);
    wait(engine.ask(soon(), |_| ())).unwrap();
}

#[test]
fn a_text_behind_a_long_question_does_not_wait_beyond_its_deadline_either() {
    let engine = Arc::new(engine(1, 8));
    let (asking, end) = long_question(&engine);
    let late = Request { deadline: Instant::now() + Duration::from_millis(100), ..request(1) };
    let mut heard = engine.write(vec![late]).unwrap().remove(0).remove(0);
    let Some(Event::Failed(refusal)) = wait(heard.next()) else { panic!("it is not answered") };
    assert_eq!(refusal, Refusal::late());
    drop(end);
    assert!(asking.join().unwrap());
}

/// A question stands behind a text that waits for a slot, and its turn would not come.
#[test]
fn a_question_whose_client_has_left_makes_room_at_once() {
    let engine = engine(1, 3);
    let writing = engine.write(vec![request(1_000_000)]).unwrap();
    while engine.slots().is_empty() {
        std::thread::yield_now();
    }
    let waiting = engine.write(vec![request(1)]).unwrap();
    let asked = engine.ask(soon(), |_| -> u32 { panic!("nobody waits for it") });
    assert!(wait(async { timeout(Duration::from_millis(50), asked).await }).is_err());
    let end = soon();
    while engine.waiting() > 1 {
        assert!(Instant::now() < end, "{} still wait", engine.waiting());
        std::thread::yield_now();
    }
    drop((writing, waiting));
    wait(engine.ask(soon(), |_| ())).unwrap();
}

#[test]
fn a_thread_is_not_waited_for_longer_than_that() {
    let engine = Arc::new(engine(1, 8));
    let (asking, end) = long_question(&engine);
    let begun = Instant::now();
    engine.stop(begun + Duration::from_millis(200));
    assert!(begun.elapsed() < Duration::from_secs(20));
    drop(end);
    assert!(asking.join().unwrap());
}

#[test]
fn only_who_leaves_is_counted_as_gone() {
    let metrics = Arc::<Metrics>::default();
    let engine = Engine::start(run(), 2, 8, metrics.clone()).unwrap();
    let gone = || {
        let page = Metrics::page([("m", &*metrics, 0)].into_iter());
        let line = page.lines().find_map(|line| line.strip_prefix("whatwhere_cancelled_total{"));
        line.unwrap().rsplit(' ').next().unwrap().parse::<usize>().unwrap()
    };
    let texts = |count: usize| -> Vec<Heard> {
        let requests = (0..count).map(|_| request(1_000_000)).collect();
        engine.write(requests).unwrap().into_iter().flatten().collect()
    };
    let becomes_free = || {
        let end = soon();
        while engine.waiting() + engine.slots().len() > 0 {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
    };
    let mut complete = texts(2);
    for text in &mut complete {
        assert!(text.blocking_next().is_some());
        text.end();
    }
    becomes_free();
    drop(complete);
    assert_eq!(gone(), 0);
    // Two that are written and three that wait.
    let left = texts(5);
    while engine.slots().len() < 2 {
        std::thread::yield_now();
    }
    drop(left);
    becomes_free();
    assert_eq!(gone(), 5);
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
