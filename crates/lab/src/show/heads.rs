//! `show heads`: what heads do, and what the model loses without them.

use super::{Page, Picture, Reading, Section};
use crate::{
    chart::{Axis, Heat, Lines, Series},
    heads::{Ablation, Figure, HeadFigures, HeadsReport, LEAST, LONGEST_SPREAD, THRESHOLD},
};

/// Draws what was measured; `measured_on` says in words where losses come from.
pub fn heads(reading: &Reading, report: &HeadsReport, measured_on: &str) -> Page {
    let tokens = reading.seen().first().map_or(0, |seen| reading.queries(seen.site).len());
    let mut sections = vec![Section {
        heading: "What each head does".into(),
        words: explained(tokens),
        table: heads_table(report),
        ..Default::default()
    }];
    if let Some(ablation) = &report.ablation {
        sections.extend(ablated(report, ablation, measured_on));
    }
    let title = format!("Heads over {tokens} tokens");
    Page { title, words: reading.about(), text: reading.text().into(), sections }
}

fn explained(tokens: usize) -> Vec<String> {
    let mut words = vec![
        format!(
            "Mean weight of a query on keys of a kind, over the queries that have such a key and see at least one other; a \
             dash: none has. The last row of a site is a head that gives all keys it sees the same. A role is named if the \
             weight is at least {THRESHOLD} of the way from there to 1, over {LEAST} queries or more."
        ),
        "Offset: key minus query, the one with most weight among those that half of the queries have. Induction: keys that \
         followed an earlier occurrence of the query's token. Same token: its earlier occurrences. Brackets: from a closing \
         one to its opening one. Entropy in nats. Position: share of the score's spread over visible keys that comes from \
         positions alone; content and interaction have the rest."
            .to_owned(),
    ];
    if tokens > LONGEST_SPREAD {
        words.push(format!("Position is measured over the first {LONGEST_SPREAD} tokens."));
    }
    words
}

/// The figures of all heads, the first row being the head of the table; after each site a uniform head.
pub fn heads_table(report: &HeadsReport) -> Vec<Vec<String>> {
    let mut head = vec![
        "head",
        "role",
        "previous",
        "first",
        "itself",
        "offset",
        "",
        "induction",
        "same token",
        "brackets",
        "entropy",
        "position",
    ];
    if report.ablation.is_some() {
        head.push("loss without");
    }
    let mut table = vec![head.into_iter().map(String::from).collect::<Vec<_>>()];
    for (index, head) in report.heads.iter().enumerate() {
        table.push(row(head));
        if report.heads[index + 1..].iter().all(|later| later.site != head.site) {
            table.push(uniform(head, table[0].len()));
        }
    }
    table
}

fn row(head: &HeadFigures) -> Vec<String> {
    let weight = |figure: &Option<Figure>| shown(figure.map(|figure| figure.weight));
    let mut row = vec![head.name(), head.role.map_or("–".into(), |role| role.name())];
    row.extend([&head.previous, &head.first, &head.itself].map(weight));
    row.push(head.offset.map_or("–".into(), |(offset, _)| format!("{offset:+}")));
    row.push(shown(head.offset.map(|(_, figure)| figure.weight)));
    row.extend([&head.induction, &head.same_token, &head.bracket].map(weight));
    row.push(shown(Some(head.entropy[0])));
    row.push(shown(head.shares.map(|shares| shares.position)));
    row.extend(head.loss_without.map(|loss| format!("{loss:+.4}")));
    row
}

fn uniform(head: &HeadFigures, columns: usize) -> Vec<String> {
    let weight = |figure: &Option<Figure>| shown(figure.map(|figure| figure.uniform));
    let mut row = vec![format!("{}, uniform", head.site), "–".into()];
    row.extend([&head.previous, &head.first, &head.itself].map(weight));
    row.extend(["–".into(), "–".into()]);
    row.extend([&head.induction, &head.same_token, &head.bracket].map(weight));
    row.push(shown(Some(head.entropy[1])));
    row.resize(columns, "–".into());
    row
}

fn shown(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or("–".into(), |value| format!("{value:.3}"))
}

fn ablated(report: &HeadsReport, ablation: &Ablation, measured_on: &str) -> [Section; 2] {
    let Ablation { loss, tokens, .. } = ablation;
    let whole =
        format!("{tokens} tokens of {measured_on}: {loss:.4} nats per token with all heads.");
    let losses = report.heads.iter().filter_map(|head| head.loss_without);
    let most = losses.fold(0.0, |most: f64, loss| most.max(loss.abs()));
    let pictures = ["encoder", "decoder", "cross"].into_iter().filter_map(|site| {
        let own = || report.heads.iter().filter(move |head| head.site == site);
        own().next()?;
        let layers = own().map(|head| head.layer + 1).max().unwrap_or(0);
        let columns = own().map(|head| head.head + 1).max().unwrap_or(0);
        let mut values = vec![vec![f64::NAN; columns]; layers];
        for head in own() {
            values[head.layer][head.head] = head.loss_without.unwrap_or(f64::NAN);
        }
        let chart = Heat {
            title: format!("{site}: loss without each head, minus loss with all"),
            x: "head".into(),
            y: "layer".into(),
            columns: (0..columns).map(|head| head.to_string()).collect(),
            rows: (0..layers).map(|layer| layer.to_string()).collect(),
            values,
            range: Some((-most, most)),
            diverging: true,
        };
        Some(Picture::new(format!("{site}-ablation"), chart.svg(), "In nats per token."))
    });
    let points = ablation.pruning.iter().map(|step| (step.heads as f64, step.loss)).collect();
    let curve = Lines {
        title: "Loss against heads left".into(),
        x: Axis::linear("heads left"),
        y: Axis::linear("loss, nats per token"),
        series: vec![Series { name: "least harm first".into(), points, ..Default::default() }],
        marks: true,
        rule: None,
    };
    let words = "Heads are removed one after the other, in the order of the loss without each alone, the least first; nothing is \
                 trained anew.";
    [
        Section {
            heading: "Loss without each head".into(),
            words: vec![whole],
            pictures: pictures.collect(),
            ..Default::default()
        },
        Section {
            heading: "Pruning".into(),
            words: vec![words.into()],
            pictures: vec![Picture::new("pruning", curve.svg(), "")],
            ..Default::default()
        },
    ]
}
