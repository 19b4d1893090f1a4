//! What a reader has to know to judge the figures: data, models, choices, and what made the report.

use toml::{Table as Toml, Value};
use whatwhere_settings::reference;
use whatwhere_training::RunSettings;

use crate::{
    chart::{escape, inline},
    results::{CellResult, Results},
    table::Table,
};

/// Data, models and conditions in a few sentences.
pub(super) fn conditions(results: &Results) -> String {
    let mut words = Vec::new();
    words.extend(results.data.as_ref().map(|data| format!("Data: {data}.")));
    words.extend(model(results));
    let runs = match results.seeds {
        1 => "one run".to_owned(),
        seeds => format!("{seeds} seeds"),
    };
    words.push(format!(
        "{} cells, {runs} each, with {}; same order of data, same first weights where shapes agree.",
        results.cells.len(),
        results.budget
    ));
    words.extend(results.search.as_ref().map(|search| format!("Searched before: {search}.")));
    if results.not_ranked.is_none() {
        words.push(format!("Held against `{}`.", results.baseline));
    }
    format!("<p class=\"note\">{}</p>\n", inline(&words.join(" ")))
}

/// Kind and size of the models, as far as all cells share it.
fn model(results: &Results) -> Option<String> {
    let settings: Toml = toml::from_str(&results.settings).ok()?;
    let model = settings.get("model")?.as_table()?;
    let number = |table: &Toml, key: &str| table.get(key).and_then(Value::as_integer);
    let mut words = Vec::new();
    let counted =
        |count: i64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    words.extend(number(model, "layers").map(|layers| counted(layers, "layer")));
    words.extend(number(model, "width").map(|width| format!("width {width}")));
    let attention = model.get("attention").and_then(Value::as_table);
    let heads = attention.and_then(|attention| number(attention, "heads"));
    words.extend(heads.map(|heads| counted(heads, "head")));
    let training = settings.get("training").and_then(Value::as_table);
    let length = training.and_then(|training| number(training, "length"));
    words.extend(length.map(|length| format!("trained on windows of {length} tokens")));
    let counts = results.cells.iter().flat_map(CellResult::runs).map(|run| run.cost.parameters);
    let (least, most) = (counts.clone().min()?, counts.max()?);
    words.push(match [rounded(least), rounded(most)] {
        [least, most] if least == most => format!("{least} parameters"),
        [least, most] => format!("{least} to {most} parameters"),
    });
    let family = model.get("family").and_then(Value::as_str).unwrap_or("model").replace('_', "-");
    let family = match model.get("recurrent").and_then(Value::as_str) {
        None => family,
        Some(kind) => format!("{} {family}", kind.to_uppercase()),
    };
    Some(format!("Model: {family}, {}.", words.join(", ")))
}

/// `1.2 million`, `34 thousand`.
fn rounded(count: usize) -> String {
    match count {
        1_000_000.. => format!("{:.1} million", count as f64 / 1e6),
        10_000.. => format!("{} thousand", count / 1000),
        _ => count.to_string(),
    }
}

/// What the choices are that cells differ in, in the words of their docs; nothing for other settings.
pub(super) fn choices(results: &Results) -> String {
    let mut items = String::new();
    let settings = reference::settings::<RunSettings>();
    for (key, values) in &results.axes {
        let Some(setting) = settings.iter().find(|setting| setting.key == *key) else { continue };
        let words: Vec<&str> = values
            .iter()
            .flat_map(|value| value.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
            .collect();
        for about in setting.choices.iter().filter(|about| words.contains(&about.name.as_str())) {
            let summary = inline(&unlinked(&about.summary.join(" ")));
            items += &format!("<dt><code>{}</code></dt><dd>{summary}</dd>\n", escape(&about.name));
        }
    }
    match items.is_empty() {
        true => items,
        false => format!("<h3>What they are</h3>\n<dl>\n{items}</dl>\n"),
    }
}

/// Addresses as plain words: a report is whole without them.
fn unlinked(words: &str) -> String {
    let mut parts = words.split("<https://");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| format!("{text}https://{}", part.replacen('>', "", 1)))
}

/// What made the report, and the settings that the runs really had.
pub(super) fn settings(results: &Results) -> String {
    let mut html = "<h3>How this was made</h3>\n".to_owned();
    if let Some(command) = &results.command {
        html += &format!("<pre>{}</pre>\n", escape(command));
    }
    html += &format!("<p class=\"note\">whatwhere {}.</p>\n", escape(&results.version));
    let mut own = Table::default();
    let mut keys: Vec<&String> = Vec::new();
    for (key, _) in results.cells.iter().flat_map(|cell| &cell.own) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    own.head =
        std::iter::once(String::new()).chain(keys.iter().map(|key| (*key).clone())).collect();
    for cell in results.cells.iter().filter(|cell| !cell.runs().is_empty()) {
        let value = |key: &&String| {
            cell.own.iter().find(|(own, _)| own == *key).map_or("–".into(), |(_, v)| v.clone())
        };
        own.rows.push(std::iter::once(cell.name.clone()).chain(keys.iter().map(value)).collect());
    }
    if !keys.is_empty() {
        html += &format!(
            "<details><summary>Settings that differ</summary>\n{}</details>\n",
            own.html()
        );
    }
    html += &format!(
        "<details><summary>Settings of all cells</summary><pre>{}</pre></details>\n",
        escape(&results.settings)
    );
    html
}
