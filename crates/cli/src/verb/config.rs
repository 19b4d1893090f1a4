//! `whatwhere config`: settings with every value written out, the presets, and all that can be chosen.
//!
//! What it says of choices and settings it reads from their schema.

use std::io::{self, Write};

use clap::Args;
use serde_json::json;
use whatwhere_settings::{
    reference::{self, Choice, Setting},
    schema,
};
use whatwhere_training::{
    RunSettings,
    memory::{self, Memory},
    presets,
};
use whatwhere_transformer::{Attends, Family, Site};

use crate::{failure::Failure, verb::Settings};

/// Columns for the name of a choice.
const NAME: usize = 19;

/// What to print.
#[derive(Args, Clone, Debug)]
pub(crate) struct Config {
    #[command(flatten)]
    settings: Settings,
    /// List the presets instead.
    #[arg(long, conflicts_with_all = ["config", "preset", "data", "changes", "choices"])]
    presets: bool,
    /// List settings and what they choose among instead; NAME is one of them, or a table such as training.
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    #[arg(conflicts_with_all = ["config", "preset", "data", "changes"])]
    choices: Option<String>,
    /// Print the JSON Schema of a file of settings instead, for editors (taplo and others).
    #[arg(long, conflicts_with_all = ["config", "preset", "data", "changes", "choices", "presets"])]
    schema: bool,
    /// Estimate the memory of training with these settings instead, and say what the machine has.
    #[arg(long, conflicts_with_all = ["presets", "choices", "schema"])]
    resources: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Config) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if args.presets {
        return list_presets(args.json, &mut out);
    }
    if args.schema {
        writeln!(out, "{}", serde_json::to_string_pretty(&schema::of_file::<RunSettings>())?)?;
        return Ok(());
    }
    if let Some(name) = &args.choices {
        return list_choices(name, args.json, &mut out);
    }
    if args.resources {
        return show_resources(&args.settings.read()?, args.json, &mut out);
    }
    let settings = written_out(args.settings.read()?)?;
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string(&settings)?)?,
        false => write!(out, "{}", settings.to_toml()?)?,
    }
    Ok(())
}

fn show_resources(settings: &RunSettings, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let (memory, machine) = (Memory::of(settings)?, memory::available());
    if json {
        writeln!(out, "{}", json!({ "memory": memory, "machine": machine }))?;
        return Ok(());
    }
    writeln!(out, "parameters   {:>12}", memory.parameters)?;
    let mut line =
        |name: &str, bytes: u64| writeln!(out, "{name:12} {:>9.1} MB", bytes as f64 / 1e6);
    line("weights", memory.weights)?;
    line("gradients", memory.gradients)?;
    line("optimizer", memory.optimizer)?;
    line("activations", memory.activations)?;
    line("program", memory.program)?;
    line("total", memory.total)?;
    machine.map_or(Ok(()), |machine| line("machine", machine))?;
    Ok(())
}

/// The settings with the attention's defaults, too, which models keep as what differs from them.
fn written_out(mut settings: RunSettings) -> anyhow::Result<RunSettings> {
    let model = &mut settings.model;
    if model.recurrent.is_some() {
        if model.attends != Attends::None {
            let mut table = toml::Table::try_from(model.attention(Site::Cross, 0)?)?;
            table.remove("width"); // the model's
            table.remove("epsilon"); // the model's, too
            model.cross = table;
            model.attention.clear();
        }
        return Ok(settings);
    }
    let site = if model.family == Family::Encoder { Site::Encoder } else { Site::Decoder };
    let mut plain = model.clone();
    plain.alternate.clear();
    let mut table = toml::Table::try_from(plain.attention(site, 0)?)?;
    table.remove("width"); // the model's
    table.remove("epsilon"); // the model's, too
    if model.family == Family::EncoderDecoder && !model.attention.contains_key("pattern") {
        table.remove("pattern"); // each stack has another
    }
    model.attention = table;
    Ok(settings)
}

fn list_presets(json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if json {
        let list: Vec<_> =
            presets::ALL.iter().map(|p| json!({ "name": p.name, "about": p.about() })).collect();
        writeln!(out, "{}", serde_json::to_string(&list)?)?;
        return Ok(());
    }
    let width = presets::ALL.iter().map(|preset| preset.name.len()).max().unwrap_or(0);
    for preset in presets::ALL {
        writeln!(out, "{:width$}  {}", preset.name, preset.about())?;
    }
    Ok(())
}

fn list_choices(name: &str, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let all = settings();
    let found = if name.is_empty() { all } else { filtered(&all, name) };
    if found.is_empty() {
        let keys: Vec<String> = settings()
            .into_iter()
            .filter(|setting| !setting.choices.is_empty())
            .map(|setting| setting.key)
            .collect();
        let message = format!("nothing is called {name}: no setting, no table and no choice");
        let hint = format!("whatwhere config --choices, or one of {}", keys.join(", "));
        return Err(Failure::usage(message, hint).into());
    }
    if json {
        writeln!(out, "{}", serde_json::to_string(&found)?)?;
        return Ok(());
    }
    let mut before: Option<&Setting> = None;
    for setting in &found {
        let apart = |setting: &Setting| !setting.choices.is_empty();
        if before.is_some_and(|b| b.table() != setting.table() || apart(b) || apart(setting)) {
            writeln!(out)?;
        }
        show_setting(out, setting, 0)?;
        before = Some(setting);
    }
    Ok(())
}

fn show_setting(out: &mut dyn Write, setting: &Setting, indent: usize) -> io::Result<()> {
    writeln!(out, "{:indent$}{}: {}", "", setting.key, setting.doc)?;
    setting.choices.iter().try_for_each(|choice| show_choice(out, choice, indent + 2))
}

fn show_choice(out: &mut dyn Write, choice: &Choice, indent: usize) -> io::Result<()> {
    let mut lines = choice.summary.iter();
    let first = lines.next().map_or("", String::as_str);
    writeln!(out, "{:indent$}{:NAME$} {first}", "", choice.name)?;
    for line in lines {
        writeln!(out, "{:indent$}{:NAME$} {line}", "", "")?;
    }
    let indent = indent + NAME + 1;
    choice.fields.iter().try_for_each(|field| show_setting(out, field, indent))
}

/// Settings of a name, those of a table of that name, or those with a choice of it, cut down to that.
fn filtered(all: &[Setting], name: &str) -> Vec<Setting> {
    let is_named = |key: &str| key == name || key.rsplit('.').next() == Some(name);
    let named: Vec<Setting> =
        all.iter().filter(|s| is_named(&s.key) || is_named(s.table())).cloned().collect();
    if !named.is_empty() {
        return named;
    }
    let cut = |setting: &Setting| {
        let mut setting = setting.clone();
        setting.choices.retain(|choice| choice.name == name);
        (!setting.choices.is_empty()).then_some(setting)
    };
    all.iter().filter_map(cut).collect()
}

/// Everything that can be set, table by table.
fn settings() -> Vec<Setting> {
    reference::settings::<RunSettings>()
}

#[cfg(test)]
mod tests {
    use whatwhere_attention::{Mixing, Pattern, Position, Score};
    use whatwhere_data::{Objective, Source, TokenizerSettings};

    use super::*;

    fn names(key: &str) -> Vec<String> {
        let setting = settings().into_iter().find(|setting| setting.key == key).expect(key);
        setting.choices.into_iter().map(|choice| choice.name).collect()
    }

    #[test]
    fn every_axis_lists_every_choice() {
        for (key, expected) in [
            ("model.attention.score", Score::NAMES),
            ("model.attention.pattern", Pattern::NAMES),
            ("model.attention.position", Position::NAMES),
            ("model.attention.mixing", Mixing::NAMES),
            ("data.source", Source::NAMES),
            ("data.tokenizer", TokenizerSettings::NAMES),
            ("data.objective", Objective::NAMES),
            ("model.family", &["decoder", "encoder", "encoder_decoder"]),
            ("model.recurrent", &["gru", "lstm"]),
            ("model.attends", &["none", "before", "after"]),
            ("model.attention.projections", &["all", "compared", "none"]),
            ("model.norm", &["rms", "layer"]),
            ("model.norm_place", &["pre", "post", "both", "output"]),
            ("model.activation", &["relu", "gelu", "gelu_tanh", "silu", "swiglu"]),
            ("model.init", &["scaled", "normal", "xavier"]),
            ("training.optimizer", &["adamw", "adam", "sgd", "muon"]),
        ] {
            assert_eq!(names(key), expected, "{key}");
        }
    }

    #[test]
    fn every_listed_name_is_read_by_its_setting() {
        for setting in settings() {
            for choice in &setting.choices {
                let change = format!("{}={}", setting.key, choice.name);
                if let Err(error) = RunSettings::read("", std::slice::from_ref(&change)) {
                    // Some have no meaning for a decoder on a text; all are known.
                    assert!(!error.to_string().contains("unknown"), "{change}: {error}");
                }
            }
        }
    }

    #[test]
    fn everything_says_what_it_is_and_its_default() {
        fn check(key: &str, field: &Setting) {
            assert!(field.doc.to_lowercase().contains("default"), "{key}: {:?}", field.doc);
            for choice in &field.choices {
                assert!(!choice.summary.is_empty(), "{key} = {}", choice.name);
                for field in &choice.fields {
                    check(&format!("{key}.{}", field.key), field);
                }
            }
        }
        let all = settings();
        assert!(all.len() > 50, "{}", all.len());
        all.iter().for_each(|setting| check(&setting.key, setting));
    }

    #[test]
    fn written_out_settings_make_the_same_model() {
        for preset in presets::ALL {
            let settings = RunSettings::read(preset.text, &[]).expect("a preset");
            let text = written_out(settings.clone()).expect("it is valid").to_toml().expect("TOML");
            let again = RunSettings::read(&text, &[]).unwrap_or_else(|e| panic!("{e}: {text}"));
            let sites: &[Site] = match settings.model.family {
                _ if settings.model.recurrent.is_some() => &[Site::Cross],
                Family::Decoder => &[Site::Decoder],
                Family::Encoder => &[Site::Encoder],
                Family::EncoderDecoder => &[Site::Encoder, Site::Decoder, Site::Cross],
            };
            for (site, layer) in sites.iter().flat_map(|s| (0..6).map(move |layer| (*s, layer))) {
                let attention =
                    |run: &RunSettings| run.model.attention(site, layer).expect("valid");
                assert_eq!(attention(&again), attention(&settings), "{}", preset.name);
            }
        }
    }

    #[test]
    fn a_name_finds_a_setting_a_table_or_a_choice() {
        let all = settings();
        let keys = |name: &str| -> Vec<String> {
            filtered(&all, name).into_iter().map(|setting| setting.key).collect()
        };
        assert_eq!(keys("position"), ["model.attention.position"]);
        assert_eq!(keys("linear"), ["training.schedule", "model.attention.mixing"]);
        assert!(keys("training").contains(&"training.lr".to_owned()));
        assert!(keys("attention").contains(&"model.attention.heads".to_owned()));
        assert!(keys("rotry").is_empty());
    }
}
