//! A run on the whole terminal: curves, figures, progress, and what the model writes.
//!
//! [`View`] is what is known and how it is drawn, [`Dashboard`] the terminal around it. It draws on standard error, since
//! standard output is for data, and leaves the terminal as it was however it ends.

mod view;

use std::{
    io::{self, IsTerminal, Stderr},
    ops::ControlFlow,
    panic, process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::Show,
        event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
        execute,
        terminal::{self, EnterAlternateScreen, LeaveAlternateScreen},
    },
};
use whatwhere_data::{Corpus, Objective, Split, Tokenizer};
use whatwhere_training::{
    Evaluation, Observer, Record, Sampling, Trainer,
    interrupt::{EXIT_CODE, Interrupt},
    trainer,
};
use whatwhere_transformer::{Family, Model, generate::Generator};

use crate::failure::Failure;
use view::View;

/// Time between two drawings; more often is nothing the eye could use.
const REDRAW: Duration = Duration::from_millis(100);
/// Longest wait for a key before the listener looks whether it is still wanted.
const LISTEN: Duration = Duration::from_millis(100);
/// Tokens of a sample, and of the text it goes on from.
const WRITTEN: usize = 200;
const GIVEN: usize = 24;
/// A sample is broken off after this, so that a large model still spends its time learning.
const PATIENCE: Duration = Duration::from_secs(5);

/// Shows a run while it trains. The terminal is given back when this is dropped.
pub(crate) struct Dashboard {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    screen: Screen,
    listener: Option<JoinHandle<()>>,
    interrupt: Interrupt,
    view: View,
    tokenizer: Tokenizer,
    prompt: Option<Prompt>,
    drawn: Option<Instant>,
}

impl Dashboard {
    /// Takes over the terminal; `q` and Ctrl-C ask the run to stop, a second Ctrl-C ends the process.
    pub(crate) fn new(
        trainer: &Trainer,
        corpus: &Corpus,
        interrupt: Interrupt,
    ) -> anyhow::Result<Self> {
        Self::require_terminal()?;
        let prompt = Prompt::of(trainer, corpus)?;
        let mut view = View::new(trainer.step(), trainer.settings().training.steps);
        view.recall(&trainer.past()?);
        view.sample = match &prompt {
            Some(prompt) if trainer.step() > 0 => {
                prompt.go_on(&trainer.plain_model(), corpus.tokenizer())
            }
            Some(_) => "after the first evaluation".into(),
            None => "none: only a decoder writes samples, from what it is validated on".into(),
        };
        let screen = Screen::take()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stderr()))?;
        let listener = Some(listen(screen.clone(), interrupt.clone()));
        let tokenizer = corpus.tokenizer().clone();
        let drawn = None;
        let mut dashboard =
            Self { terminal, screen, listener, interrupt, view, tokenizer, prompt, drawn };
        dashboard.draw();
        Ok(dashboard)
    }

    /// Refuses to draw where nobody would see it.
    pub(crate) fn require_terminal() -> Result<(), Failure> {
        if io::stderr().is_terminal() {
            return Ok(());
        }
        let hint = "leave --tui out, or do not redirect standard error";
        Err(Failure::usage("--tui needs a terminal, found that standard error is none", hint))
    }

    fn draw(&mut self) {
        self.view.is_stopping = self.interrupt.requested();
        self.drawn = Some(Instant::now());
        // A terminal that cannot be drawn on is no reason to stop a run.
        let _ = self.terminal.draw(|frame| self.view.render(frame));
    }
}

impl Observer for Dashboard {
    fn updated(&mut self, record: &Record, step: u64) {
        self.view.updated(record, step);
        if self.drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW) {
            self.draw();
        }
    }

    fn evaluated(&mut self, evaluation: &Evaluation, step: u64, _best: bool, model: &Model) {
        self.view.valid.push(step as f64, evaluation.loss);
        if let Some(prompt) = &self.prompt {
            self.view.sample = prompt.go_on(model, &self.tokenizer);
        }
        self.draw();
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.screen.give_back();
        if let Some(listener) = self.listener.take() {
            // It ends with the screen; that it panicked is of no use to anyone here.
            let _ = listener.join();
        }
    }
}

/// The terminal in raw mode on its other screen, until it is given back once.
#[derive(Clone)]
struct Screen(Arc<AtomicBool>);

impl Screen {
    fn take() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let screen = Self(Arc::new(AtomicBool::new(true)));
        if let Err(error) = execute!(io::stderr(), EnterAlternateScreen) {
            screen.give_back();
            return Err(error);
        }
        let (mine, before) = (screen.clone(), panic::take_hook());
        panic::set_hook(Box::new(move |info| {
            mine.give_back();
            before(info);
        }));
        Ok(screen)
    }

    fn is_taken(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn give_back(&self) {
        if self.0.swap(false, Ordering::Relaxed) {
            // Nothing can be done about a terminal that is gone.
            let _ = terminal::disable_raw_mode();
            let _ = execute!(io::stderr(), LeaveAlternateScreen, Show);
        }
    }
}

/// Listens to keys beside the run, which may be long in one step. In raw mode Ctrl-C is a key, not a signal.
fn listen(screen: Screen, interrupt: Interrupt) -> JoinHandle<()> {
    thread::spawn(move || {
        while screen.is_taken() {
            match event::poll(LISTEN).and_then(|ready| ready.then(event::read).transpose()) {
                Ok(Some(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    if is_ctrl_c(&key) && interrupt.requested() {
                        screen.give_back();
                        process::exit(EXIT_CODE);
                    }
                    if is_ctrl_c(&key) || key.code == KeyCode::Char('q') {
                        interrupt.request();
                    }
                }
                Ok(_) => {}
                Err(_) => return, // no keyboard, so nothing to hear
            }
        }
    })
}

fn is_ctrl_c(key: &KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

/// What samples go on from: the beginning of the validation text, or the question of a task's first example.
struct Prompt {
    tokens: Vec<u32>,
    limit: usize,
    /// Whether it is seen in both directions.
    has_prefix: bool,
}

impl Prompt {
    fn of(trainer: &Trainer, corpus: &Corpus) -> anyhow::Result<Option<Self>> {
        let has_prefix = matches!(corpus.objective(), Objective::Prefix(_));
        let writes = has_prefix || matches!(corpus.objective(), Objective::NextToken(_));
        if !writes || trainer.model().family() != Family::Decoder || !corpus.has(Split::Valid) {
            return Ok(None);
        }
        let batches = trainer::batches(trainer.settings(), corpus, Split::Valid)?;
        let Some(batch) = batches.evaluation(Some(1)).next().transpose()? else {
            return Ok(None);
        };
        let weights = &batch.weights[..batch.lengths[0]];
        let counted = weights.iter().filter(|weight| **weight > 0.0).count();
        let asked = weights.len() - counted;
        let (given, limit) = match asked {
            0 => (GIVEN.min(weights.len()), WRITTEN),
            asked => (asked + 1, counted),
        };
        Ok(Some(Self { tokens: batch.tokens[..given].to_vec(), limit, has_prefix }))
    }

    fn go_on(&self, model: &Model, tokenizer: &Tokenizer) -> String {
        let (begun, sampling) = (Instant::now(), Sampling::default());
        let generator = Generator::new(model).with_prefix(self.has_prefix);
        let written =
            generator.generate(None, &self.tokens, self.limit, &sampling, |_| {
                match begun.elapsed() < PATIENCE {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            });
        match written {
            Ok(written) => {
                format!("{} ▸ {}", tokenizer.decode(&self.tokens), tokenizer.decode(&written))
            }
            Err(error) => format!("no sample: {error}"),
        }
    }
}
