//! Runs that were not imported go out under the family that has their settings, and come back as they were.

use std::{collections::BTreeMap, path::Path};

use whatwhere_interop::{Weights, import, to_gguf, to_huggingface, to_onnx};
use whatwhere_training::{Folder, Run, RunSettings, imported::Imported, presets};
use whatwhere_transformer::{ModelSettings, Parameter};

use crate::common::folders;

/// A run folder with a model of these settings; no number in it is one that a start would have.
pub(crate) fn run_of(settings: &ModelSettings, parameters: Option<Vec<Parameter>>, out: &Path) {
    let parameters = parameters.unwrap_or_else(|| {
        let noise = |i: usize| ((i as f32 * 12.9898).sin() * 43_758.547).fract();
        let one = |(name, shape): (String, Vec<usize>)| {
            let count = shape.iter().product::<usize>();
            let scale = if shape.len() > 1 { 0.3 } else { 0.1 };
            let from = if name.ends_with("gain") || name.ends_with("gamma") { 1.0 } else { 0.0 };
            let values = (0..count).map(|i| from + scale * noise(i + 7 * name.len())).collect();
            Parameter { name, shape, values }
        };
        settings.shapes().unwrap().into_iter().map(one).collect()
    });
    Imported::default().save(&Folder::new(out), settings.clone(), &parameters, None).unwrap();
}

/// Out and in again: the family, if there is one.
fn comes_back(run: &Path, out: &Path) -> Result<String, String> {
    let exported = to_huggingface(run, &out.join("out")).map_err(|e| e.to_string())?;
    let again = import(&out.join("out"), &out.join("again"), &mut |_, _| {});
    again.map_err(|e| format!("{}: comes not back: {e}", exported.family))?;
    let (first, again) = (Run::open(run).unwrap(), Run::open(out.join("again")).unwrap());
    assert_eq!(first.settings.model, again.settings.model, "{}", exported.family);
    assert!(first.model().parameters() == again.model().parameters(), "{}", exported.family);
    Ok(exported.family)
}

/// Every setting that a family of the fixtures has, as if it had been trained here.
#[test]
fn settings_of_every_fixture_find_a_family() {
    let (mut found, mut wrong) = (BTreeMap::new(), Vec::new());
    for folder in folders() {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let out = tempfile::tempdir().unwrap();
        let at = |name: &str| out.path().join(name);
        if import(&folder, &at("imported"), &mut |_, _| {}).is_err() {
            continue;
        }
        let imported = Run::open(at("imported")).unwrap();
        run_of(&imported.settings.model, Some(imported.model().parameters()), &at("run"));
        match comes_back(&at("run"), out.path()) {
            Ok(family) => {
                found.insert(name, family);
            }
            Err(message) => wrong.push(format!("{name}: {message}")),
        }
    }
    eprintln!("{found:#?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(found.len() > 40, "{}", found.len());
}

#[test]
fn every_preset_goes_out_and_comes_back_or_is_refused_with_the_target_that_can() {
    let (mut out_there, mut tried) = (Vec::new(), 0);
    for preset in presets::ALL {
        let Ok(run) = RunSettings::read(preset.text, &[]) else { continue };
        let mut settings = run.model;
        tried += 1;
        (settings.layers, settings.vocabulary) = (2, 67);
        // Classes come with data; what goes out of a classifier is refused, and tested where it is.
        (settings.encoder_layers, settings.pooling) = (None, None);
        (settings.width, settings.feed_forward) = (settings.width / 4, None);
        let out = tempfile::tempdir().unwrap();
        run_of(&settings, None, &out.path().join("run"));
        match comes_back(&out.path().join("run"), out.path()) {
            Ok(family) => out_there.push(format!("{}: {family}", preset.name)),
            Err(message) if settings.recurrent.is_some() => {
                assert!(message.contains("recurrent = gru: "), "{message}");
            }
            Err(message) => {
                let graphs = to_onnx(&out.path().join("run"), &out.path().join("graphs"));
                let words = match graphs.is_ok() {
                    true => "--to onnx carries every setting",
                    false => "nor does --to onnx carry them: ",
                };
                assert!(message.contains(words), "{message}");
                assert!(message.contains("the nearest is"), "{message}");
            }
        }
    }
    assert!(tried > 10, "{tried}");
    eprintln!("{out_there:#?}");
    assert!(out_there.iter().any(|one| one == "shakespeare: gpt2"), "{out_there:?}");
}

#[test]
fn what_no_format_has_is_refused_by_every_target() {
    for (text, expected) in [
        ("recurrent = 'gru'", "recurrent = gru: what is written for others are Transformers"),
        ("recurrent = 'lstm'\nfamily = 'encoder_decoder'\nattends = 'after'", "recurrent = lstm: "),
        ("attention = { heads = 2, projections = 'none' }", "attention.projections = none: "),
        (
            "family = 'encoder_decoder'\nattention.heads = 2\ncross.projections = 'compared'",
            "attention.projections = compared: ",
        ),
    ] {
        let text = format!("width = 16\nlayers = 1\nvocabulary = 31\n{text}");
        let out = tempfile::tempdir().unwrap();
        let at = |name: &str| out.path().join(name);
        run_of(&ModelSettings::from_toml(&text).unwrap(), None, &at("run"));
        for found in [
            to_huggingface(&at("run"), &at("folder")).map(|_| ()),
            to_onnx(&at("run"), &at("graphs")).map(|_| ()),
            to_gguf(&at("run"), &at("file"), Weights::F32).map(|_| ()),
        ] {
            let message = found.unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        assert!(["folder", "graphs", "file"].iter().all(|name| !at(name).exists()));
    }
}

/// What ONNX refuses, too, is not sent there.
#[test]
fn a_refusal_names_onnx_only_where_onnx_has_the_settings() {
    for (attention, words) in [
        ("position = 'polar'", "; --to onnx carries every setting"),
        ("mixing = 'gated_linear'\nposition = 'none'", "; nor does --to onnx carry them: "),
    ] {
        let text = format!(
            "width = 32\nlayers = 2\nvocabulary = 31\n[attention]\nheads = 4\n{attention}\n"
        );
        let out = tempfile::tempdir().unwrap();
        let at = |name: &str| out.path().join(name);
        run_of(&ModelSettings::from_toml(&text).unwrap(), None, &at("run"));
        let graphs = to_onnx(&at("run"), &at("graphs"));
        assert_eq!(graphs.is_ok(), words.contains("every"), "{graphs:?}");
        for found in [
            to_huggingface(&at("run"), &at("folder")).map(|_| ()),
            to_gguf(&at("run"), &at("file"), Weights::F32).map(|_| ()),
        ] {
            let message = found.unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }
}

/// Rotary with every scaling, and windows in turn: settings that a decoder trained here may well have.
#[test]
fn scalings_and_windows_go_out_by_name() {
    let lists = "short_factor = [1.0, 1.5, 2.0, 3.0], long_factor = [2.0, 4.0, 4.0, 4.0]";
    for (family, attention, more) in [
        ("llama", "position = { kind = 'rotary', scaling = { kind = 'linear', factor = 4.0 } }".into(), ""),
        ("llama", "position = { kind = 'rotary', scaling = { kind = 'dynamic_ntk', factor = 4.0, length = 32 } }".into(), ""),
        ("llama", "position = { kind = 'rotary', scaling = { kind = 'yarn', factor = 4.0, length = 32 } }".into(), ""),
        ("llama", "position = { kind = 'rotary', scaling = { kind = 'llama3', factor = 8.0, length = 64 } }".into(), ""),
        ("llama", format!("position = {{ kind = 'rotary', scaling = {{ kind = 'longrope', factor = 4.0, length = 32, {lists} }} }}"), ""),
        ("mistral", "pattern = { kind = 'window', left = 7 }".into(), ""),
        ("qwen3", "qk_norm = true".into(), "alternate = [{ pattern = { kind = 'window', left = 7 } }, {}]"),
        ("olmo2", "qk_norm = 'all'".into(), "norm_place = 'output'"),
    ] {
        let text = format!(
            "width = 32\nlayers = 2\nvocabulary = 31\nactivation = 'swiglu'\n{more}\n[attention]\nheads = 4\n{attention}\n"
        );
        let settings = ModelSettings::from_toml(&text).unwrap();
        let out = tempfile::tempdir().unwrap();
        run_of(&settings, None, &out.path().join("run"));
        assert_eq!(comes_back(&out.path().join("run"), out.path()).as_deref(), Ok(family), "{text}");
    }
    let text =
        "width = 32\nlayers = 2\nvocabulary = 31\nattention = { heads = 4, position = 'polar' }";
    let out = tempfile::tempdir().unwrap();
    run_of(&ModelSettings::from_toml(text).unwrap(), None, &out.path().join("run"));
    let message = comes_back(&out.path().join("run"), out.path()).unwrap_err();
    assert!(message.contains("--to onnx carries every setting"), "{message}");
}
