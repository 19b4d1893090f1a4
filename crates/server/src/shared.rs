//! What all requests share: the opened runs by name, each with its engine.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use whatwhere_training::Run;

use crate::{
    Error, Options, Refusal, check_names, engine::Engine, metrics::Metrics, page::Page,
    template::Template,
};

/// Tokens of a text of a run that knows no limit, as a multiple of what it was trained with.
const BEYOND: usize = 8;

/// What all requests share.
#[derive(Debug)]
pub struct Shared {
    /// In the order in which they were named.
    pub served: Vec<Served>,
    pub(crate) options: Options,
    pub(crate) page: Page,
    /// When the server was started, in seconds since 1970.
    pub(crate) started: u64,
}

/// A run that is served.
#[derive(Debug)]
pub struct Served {
    /// What requests call it.
    pub name: String,
    /// The run itself.
    pub run: Arc<Run>,
    pub(crate) engine: Engine,
    pub(crate) metrics: Arc<Metrics>,
    /// Tokens of a prompt and its answer at the most.
    pub(crate) context: usize,
    /// How messages of a chat become text; absent where nothing says so, or with the reason why it cannot be read.
    pub(crate) template: Option<Result<Template, String>>,
}

impl Served {
    /// Asks the run between two turns of its engine, and waits for the answer up to a deadline.
    pub async fn ask<T: Send + 'static>(
        &self,
        deadline: Instant,
        question: impl FnOnce(&Run) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        self.engine.ask(deadline, question).await
    }
}

impl Shared {
    pub(crate) fn new(runs: Vec<(String, Run)>, options: &Options) -> Result<Arc<Self>, Error> {
        check_names(runs.iter().map(|(name, _)| name.as_str()))?;
        let mut served = Vec::with_capacity(runs.len());
        for (name, run) in runs {
            let (run, metrics) = (Arc::new(run), Arc::<Metrics>::default());
            let engine = Engine::start(run.clone(), options.slots, options.queue, metrics.clone())
                .map_err(Error::Start)?;
            let context = context(&run, options.context);
            let template = Template::of(&run);
            served.push(Served { name, run, engine, metrics, context, template });
        }
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let page = Page::start(&options.folders).map_err(Error::Start)?;
        Ok(Arc::new(Self { served, options: options.clone(), page, started: started.as_secs() }))
    }

    /// A run by its name; the only one where no name is given.
    pub fn find(&self, name: Option<&str>) -> Result<&Served, Refusal> {
        let names = || {
            let names: Vec<&str> = self.served.iter().map(|run| run.name.as_str()).collect();
            names.join(", ")
        };
        match (name, &self.served[..]) {
            (_, []) => Err(Refusal::unknown_model("no run is served, only folders for the page")),
            (None, [only]) => Ok(only),
            (None, _) => {
                let message = format!("model is missing, expected one of {}", names());
                Err(Refusal::invalid("model", message))
            }
            (Some(name), all) => all.iter().find(|run| run.name == name).ok_or_else(|| {
                let message = format!("no model is called {name:?}, expected one of {}", names());
                Refusal::unknown_model(message)
            }),
        }
    }

    /// When a request that begins now must be answered.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.options.deadline
    }

    /// Ends all engines; what is under way is finished unless nobody waits for it, or it takes longer than that.
    pub(crate) fn stop(&self, until: Instant) {
        self.served.iter().for_each(|served| served.engine.stop(until));
    }
}

/// Tokens of a prompt and its answer at the most: what was asked for, what the model was made for, or several times what it
/// was trained with; never more than it has positions.
fn context(run: &Run, asked: Option<usize>) -> usize {
    let positions = run.settings.model.longest().unwrap_or(usize::MAX);
    let made = run.imported.as_ref().and_then(|imported| imported.context);
    let trained = run.settings.training.length.saturating_mul(BEYOND);
    asked
        .or(made)
        .unwrap_or(if positions < usize::MAX { positions } else { trained })
        .min(positions)
}
