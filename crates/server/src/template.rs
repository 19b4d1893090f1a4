//! Chat: messages to text by the model's own template, in Jinja as transformers runs it.

use minijinja::{Environment, Value, context};
use whatwhere_data::Tokenizer;
use whatwhere_training::Run;

use crate::{Refusal, jinja};

/// Steps of a template; a loop over as many messages as a body holds needs far fewer.
const FUEL: u64 = 5_000_000;
/// What a template is called.
const NAME: &str = "chat";

/// The template of a run.
#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    /// Reads names of special tokens, which templates write.
    tokenizer: Tokenizer,
    begin: String,
    end: String,
    /// As it stands in the model's files.
    pub(crate) source: String,
}

impl Template {
    /// The template of an imported run, or why it cannot be read; nothing where there is none.
    pub(crate) fn of(run: &Run) -> Option<Result<Self, String>> {
        let source = run.imported.as_ref()?.chat_template.clone()?;
        let tokenizer = run.tokenizer().ok()?;
        let mut environment = Environment::new();
        environment.set_fuel(Some(FUEL));
        jinja::extend(&mut environment);
        let readable = jinja::without_marks(&source);
        if let Err(error) = environment.add_template_owned(NAME, readable) {
            return Some(Err(format!("its chat template cannot be read: {error}")));
        }
        let name = |token: Option<u32>| {
            token.and_then(|token| tokenizer.name(token)).unwrap_or_default().to_owned()
        };
        let specials = run.imported.as_ref().map(|imported| &imported.specials)?;
        Some(Ok(Self {
            environment,
            begin: name(specials.begin),
            end: name(specials.ends.first().copied()),
            tokenizer: tokenizer.reading_names(),
            source,
        }))
    }

    /// Messages as the model reads them, up to where it answers.
    pub(crate) fn render(&self, messages: &serde_json::Value) -> Result<String, Refusal> {
        let refused = |error: minijinja::Error| {
            let reason = error.detail().map_or_else(|| error.to_string(), str::to_owned);
            Refusal::invalid("messages", format!("the model's chat template refuses: {reason}"))
        };
        let template = self.environment.get_template(NAME).map_err(refused)?;
        template
            .render(context! {
                messages => Value::from_serialize(messages),
                add_generation_prompt => true,
                bos_token => self.begin,
                eos_token => self.end,
            })
            .map_err(refused)
    }

    /// The tokens of what a template made.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, Refusal> {
        self.tokenizer.encode(text).map_err(|error| Refusal::invalid("messages", error.to_string()))
    }
}
