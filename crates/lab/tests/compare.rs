//! Comparisons, through the public interface: small runs in temporary folders.

use std::{collections::BTreeSet, fs, path::Path};

use whatwhere_lab::{
    compare::{At, Comparison, Corpora, Observer, Trained},
    extrapolate::{Lengths, corpus_of},
    grid::Axis,
    report,
    results::{Measure, Outcome, Results},
    search::Search,
};
use whatwhere_training::{Folder, Record, Run, interrupt::Interrupt};

const SETTINGS: &str = "
seed = 3
[data]
tokenizer = 'bytes'
[model]
width = 16
layers = 1
attention = { heads = 2 }
[training]
steps = 6
batch = 2
length = 32
evaluate_every = 2
evaluate_batches = 2
log_every = 1
";

fn comparison(folder: &Path, axes: &[&str]) -> Comparison {
    Comparison {
        title: "a test".into(),
        settings: SETTINGS.into(),
        axes: axes.iter().map(|axis| Axis::parse(axis).expect("an axis")).collect(),
        seeds: 2,
        lengths: Some(vec![32, 64]),
        tokens: 256,
        folder: folder.into(),
        ..Comparison::default()
    }
}

#[derive(Default)]
struct Count {
    updates: u64,
    finished: usize,
    from_before: usize,
    stop_after: Option<(u64, Interrupt)>,
}

impl Observer for Count {
    fn updated(&mut self, _at: &At, _record: &Record, _step: u64) {
        self.updates += 1;
        if let Some((updates, interrupt)) = &self.stop_after
            && self.updates == *updates
        {
            interrupt.request();
        }
    }

    fn finished(&mut self, _at: &At, _trained: &Trained, was_there: bool) {
        self.finished += 1;
        self.from_before += usize::from(was_there);
    }
}

fn run(comparison: &Comparison, count: &mut Count) -> Option<Results> {
    let interrupt =
        count.stop_after.as_ref().map_or(Interrupt::default(), |(_, stop)| stop.clone());
    comparison.run(&mut Corpora::default(), &interrupt, count).expect("a comparison")
}

/// Results as JSON with eight decimals: reading a number may change its last bit.
fn rounded(results: &Results) -> serde_json::Value {
    fn round(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Number(number) => {
                *value = format!("{:.8}", number.as_f64().expect("a float")).into();
            }
            serde_json::Value::Array(items) => items.iter_mut().for_each(round),
            serde_json::Value::Object(fields) => fields.values_mut().for_each(round),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(results).expect("JSON");
    round(&mut value);
    value
}

/// Everything but what the clock and the system's account say.
fn comparable(mut results: Results) -> Results {
    results.folder = "".into();
    for cell in &mut results.cells {
        cell.tokens_per_second = None;
        if let Outcome::Trained { runs } = &mut cell.outcome {
            for run in runs {
                run.cost.tokens_per_second = 0.0;
                run.cost.stretches.clear();
                run.cost.load = None;
                run.cost.peak_memory = None;
                run.cost.jobs = 1;
            }
        }
    }
    results
}

#[test]
fn a_stopped_comparison_goes_on_and_ends_with_the_same_figures() {
    let folder = tempfile::tempdir().unwrap();
    let whole = comparison(&folder.path().join("whole"), &["position=none,rotary"]);
    let expected = run(&whole, &mut Count::default()).unwrap();

    let parts = comparison(&folder.path().join("parts"), &["position=none,rotary"]);
    let stop = Interrupt::default();
    let mut stopped = Count { stop_after: Some((9, stop)), ..Count::default() };
    assert_eq!(run(&parts, &mut stopped), None);
    let mut rest = Count::default();
    let found = run(&parts, &mut rest).unwrap();
    assert_eq!((rest.finished, rest.from_before), (4, 1));
    assert_eq!(rest.updates, 4 * 6 - 9);
    assert_eq!(rounded(&comparable(found.clone())), rounded(&comparable(expected)));

    let mut again = Count::default();
    let same = run(&parts, &mut again).unwrap();
    assert_eq!((again.updates, again.from_before), (0, 4));
    assert_eq!(rounded(&same), rounded(&found));
}

/// Positions with tables of their own, drawn from a generator that all runs share.
#[test]
fn runs_side_by_side_end_with_the_same_figures() {
    let folder = tempfile::tempdir().unwrap();
    let axes = ["position=rotary,shaw,learned,polar"];
    let one_at_a_time = comparison(&folder.path().join("one"), &axes);
    let expected = run(&one_at_a_time, &mut Count::default()).unwrap();
    assert_eq!(expected.conditions(), None);

    let side_by_side =
        Comparison { jobs: 3, ..comparison(&folder.path().join("side by side"), &axes) };
    let stop = Interrupt::default();
    let mut stopped = Count { stop_after: Some((20, stop)), ..Count::default() };
    assert_eq!(run(&side_by_side, &mut stopped), None);
    let mut rest = Count::default();
    let found = run(&side_by_side, &mut rest).unwrap();
    assert_eq!(rest.finished, 8);
    assert_eq!(rest.updates, 8 * 6 - stopped.updates);
    for run in found.cells.iter().flat_map(|cell| cell.runs()) {
        assert_eq!((run.cost.jobs, run.cost.peak_memory), (3, None));
    }
    assert!(found.conditions().unwrap().starts_with("Runs were trained 3 at a time"));
    assert!(report::html(std::slice::from_ref(&found)).contains("3 at a time"));
    assert_eq!(rounded(&comparable(found)), rounded(&comparable(expected)));
}

#[test]
fn minutes_are_refused_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let mut minutes = comparison(folder.path(), &["position=none,rotary"]);
    (minutes.jobs, minutes.budget) = (2, Some("minutes=1".parse().unwrap()));
    let reason = minutes.cells().unwrap_err().to_string();
    assert!(reason.contains("expected a budget of steps, tokens or flops"), "{reason}");
    minutes.jobs = 0;
    let reason = minutes.cells().unwrap_err().to_string();
    assert!(reason.contains("--jobs 0: expected at least 1"), "{reason}");
}

#[test]
fn cells_that_would_be_the_same_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |axes: &[&str], budget: Option<&str>, seeds: u64| {
        let budget = budget.map(|budget| budget.parse().unwrap());
        let comparison = Comparison { budget, seeds, ..comparison(folder.path(), axes) };
        comparison.cells().map_err(|e| e.to_string())
    };
    for (axes, budget, seeds, expected) in [
        (&["lr=1e-3", "lr=1e-4"][..], None, 1, "training.lr stands twice"),
        (&["lr=1e-3,0.001"], None, 1, "`lr 1e-3` and `lr 0.001` have the same settings"),
        (&[r#"position=rotary,{kind="rotary"}"#], None, 1, "have the same settings"),
        // The second sets the whole of which the first is a part.
        (&["heads=1,2", "model.attention={position='none'}"], None, 1, "have the same settings"),
        (&["steps=4,8"], Some("steps=6"), 1, "with a budget of 6 updates"),
        (&["steps=4,8"], Some("tokens=4096"), 1, "with a budget of 4096 tokens"),
        (&["seed=1,2"], None, 2, "cells share runs"),
    ] {
        let reason = refused(axes, budget, seeds).unwrap_err();
        assert!(reason.contains(expected), "{axes:?}: {reason}");
    }
    assert_eq!(refused(&["steps=4,8"], None, 2).unwrap().len(), 2);
    assert_eq!(refused(&["seed=1,2"], Some("steps=6"), 1).unwrap().len(), 2);
    assert_eq!(
        refused(&["position=rotary,polar", "position.base=9,99"], None, 1).unwrap().len(),
        4
    );
}

#[test]
fn what_cells_were_not_given_alike_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let said = |name: &str, axes: &[&str], budget: Option<&str>| {
        let budget = budget.map(|budget| budget.parse().unwrap());
        let more = Comparison { budget, seeds: 1, ..comparison(&folder.path().join(name), axes) };
        let results = run(&more, &mut Count::default()).unwrap();
        (results.budget.clone(), results.evidence().join("\n"), results.verdict().join("\n"))
    };
    let unlike = "did not learn from as much";
    let (budget, evidence, _) = said("steps", &["steps=3,6"], None);
    assert_eq!(budget, "3 to 6 updates");
    let each = "3 updates of 2 × 32 tokens for `steps 3`; 6 updates of 2 × 32 tokens for `steps 6`";
    assert!(evidence.contains(unlike) && evidence.contains(each), "{evidence}");
    // Cosine's hundred updates of warm-up.
    assert!(evidence.contains("never reached its peak: the warm-up has 100 updates"), "{evidence}");
    let (_, evidence, _) = said("batch", &["batch=2,4", "schedule=constant"], None);
    assert!(evidence.contains("6 updates of 4 × 32 tokens for `batch 4, constant`"), "{evidence}");
    assert!(!evidence.contains("never reached"), "{evidence}");
    let (_, evidence, _) = said("tokens", &["batch=2,4"], Some("tokens=384"));
    assert!(!evidence.contains(unlike), "{evidence}");
    let (_, evidence, _) = said("alike", &["position=none,rotary"], None);
    assert!(!evidence.contains(unlike) && !evidence.contains("at the length that"), "{evidence}");
    let (_, evidence, verdict) = said("lengths", &["length=16,32", "schedule=constant"], None);
    let each = "16 tokens for `length 16, constant`; 32 tokens for `length 32, constant`";
    assert!(evidence.contains(each), "{evidence}");
    assert!(verdict.contains("Trained at lengths of their own and read at 64"), "{verdict}");
    assert!(!verdict.contains("Trained at 16"), "{verdict}");
}

#[test]
fn a_setting_that_cells_differ_in_is_not_called_shared_when_one_alone_was_trained() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = comparison(folder.path(), &["heads=2,3"]);
    one.seeds = 1;
    let results = run(&one, &mut Count::default()).unwrap();
    assert!(!results.settings.contains("heads"), "{}", results.settings);
    assert_eq!(results.cells[0].own, [("model.attention.heads".to_owned(), "2".to_owned())]);
}

#[test]
fn cells_that_do_not_compose_or_fail_leave_the_others_alone() {
    let folder = tempfile::tempdir().unwrap();
    let axes = [r#"position=rotary,{kind="learned",length=8}"#, "heads=2,3"];
    let comparison = comparison(folder.path(), &axes);
    let results = run(&comparison, &mut Count::default()).unwrap();
    let states: Vec<&str> = results
        .cells
        .iter()
        .map(|cell| match &cell.outcome {
            Outcome::Trained { .. } => "trained",
            Outcome::Refused { .. } => "refused",
            Outcome::Failed { .. } => "failed",
        })
        .collect();
    assert_eq!(states, ["trained", "refused", "failed", "refused"]);

    let report = report::save(std::slice::from_ref(&results), folder.path()).unwrap();
    let html = fs::read_to_string(report).unwrap();
    for expected in ["does not compose", "failed", "<svg", "Verdict", "Loss at other lengths"] {
        assert!(html.contains(expected), "{expected}");
    }
    // It opens offline: nothing is fetched. (Namespaces of SVG are names, not addresses.)
    assert!(!html.contains("src=\"http") && !html.contains("href=\"http"));
    let json = fs::read_to_string(folder.path().join("results.json")).unwrap();
    let read: Vec<Results> = serde_json::from_str(&json).unwrap();
    assert_eq!(rounded(&read[0]), rounded(&results));
    let csv = fs::read_to_string(folder.path().join("results.csv")).unwrap();
    let columns = csv.lines().next().unwrap().split(',').count();
    // Two runs at 32 and 64 tokens, at 64 also with three scalings; three cells without runs.
    assert_eq!(csv.lines().count(), 1 + 2 * (2 + 3) + 3);
    // The name of the cell has a comma inside its quotes.
    assert_eq!(csv.lines().nth(1).unwrap().split(',').count(), columns + 1, "{csv}");
}

#[test]
fn a_folder_with_other_settings_is_not_mixed_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = comparison(folder.path(), &["position=none"]);
    first.seeds = 1;
    run(&first, &mut Count::default()).unwrap();
    let mut other = first.clone();
    other.changes = vec!["training.lr=0.01".into()];
    let results = run(&other, &mut Count::default()).unwrap();
    let Outcome::Failed { reason } = &results.cells[0].outcome else { panic!("{results:?}") };
    assert!(reason.contains("holds a run with other settings"), "{reason}");
    // Other lengths need no new training.
    let mut longer = first;
    longer.lengths = Some(vec![32, 128]);
    let mut count = Count::default();
    let results = run(&longer, &mut count).unwrap();
    assert_eq!(count.updates, 0);
    assert!(results.cells[0].at(128).unwrap().loss.is_some());
}

#[test]
fn cells_of_a_seed_start_alike_and_read_the_same_text() {
    let folder = tempfile::tempdir().unwrap();
    // The loss of the first update is taken before anything is learned.
    let mut same = comparison(folder.path(), &["position=none,alibi", "training.lr=1e-3,1e-5"]);
    same.seeds = 1;
    run(&same, &mut Count::default()).unwrap();
    let cells = same.cells().unwrap();
    let first = |cell: usize| {
        let metrics = same.run_folder(&cells[cell], 3).metrics();
        fs::read_to_string(metrics)
            .unwrap()
            .lines()
            .next()
            .unwrap()
            .split("\"lr\"")
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(first(0), first(1));
    assert_eq!(first(2), first(3));
    assert_ne!(first(0), first(2));
}

#[test]
fn classes_are_ranked_by_accuracy_and_the_report_has_what_was_told_as_what() {
    let folder = tempfile::tempdir().unwrap();
    let line = |i: usize| format!("{} {i}\t{}\n", ["good", "bad"][i % 2], ["pos", "neg"][i % 2]);
    let path = folder.path().join("texts.tsv");
    fs::write(&path, (0..60).map(line).collect::<String>()).unwrap();
    let mut classes = comparison(folder.path(), &["pooling=mean,last,first"]);
    let source = format!(
        "data.source={{kind='labeled',path='{}',field='1',label_field='2'}}",
        path.display()
    );
    classes.changes = vec![source, "data.valid_share=0.3".into()];
    let results = run(&classes, &mut Count::default()).unwrap();
    assert_eq!(results.measure, Measure::ClassAccuracy);
    // A decoder's first token sees nothing but itself.
    let refused = results.cells.iter().find(|cell| cell.runs().is_empty()).unwrap();
    assert!(matches!(&refused.outcome, Outcome::Refused { reason } if reason.contains("itself")));
    for cell in results.cells.iter().filter(|cell| !cell.runs().is_empty()) {
        let accuracy = cell.measured(results.measure).unwrap();
        assert!(accuracy.margin.is_some() && cell.solved.is_none() && cell.lengths.is_empty());
        assert!(cell.macro_f1.is_some() && cell.calibration_error.is_some());
        for run in cell.runs() {
            let found = run.classification.as_ref().unwrap();
            assert_eq!((found.accuracy, found.texts), (run.quality.accuracy, run.quality.tokens));
            assert_eq!(found.confusion.iter().flatten().sum::<u64>(), found.texts);
        }
    }
    let said = &results.verdict()[0];
    assert!(
        said.contains("has the highest accuracy: ") && said.contains("of the texts right"),
        "{said}"
    );
    let html = report::html(std::slice::from_ref(&results));
    for words in ["<h3>Confusion</h3>", "told as", "macro F1", "calibration error", "neg"] {
        assert!(html.contains(words), "{words}");
    }
    let again = run(&classes, &mut Count::default()).unwrap();
    assert_eq!(again.cells, results.cells, "what is finished is not trained again");
}

#[test]
fn tasks_are_ranked_by_right_answers() {
    let folder = tempfile::tempdir().unwrap();
    let mut task = comparison(folder.path(), &["position=none,rotary"]);
    task.changes = vec!["data={source={kind='copy',shortest=1,longest=4}}".into()];
    let results = run(&task, &mut Count::default()).unwrap();
    assert_eq!(results.measure, Measure::Accuracy);
    assert!(results.cells.iter().all(|cell| cell.solved == Some(0) && cell.lengths.is_empty()));
    let said = &results.verdict()[0];
    assert!(
        said.starts_with("The task is not solved by any of them within 6 updates; `"),
        "{said}"
    );
}

#[test]
fn a_search_compares_every_cell_at_its_best() {
    let folder = tempfile::tempdir().unwrap();
    let mut comparison = comparison(folder.path(), &["position=none,rotary"]);
    comparison.seeds = 1;
    // Enough updates for a second round to be longer than the first.
    comparison.changes = ["training.lr=1e-7", "training.schedule=constant", "training.steps=63"]
        .map(Into::into)
        .into();
    let search = Search::parse(4, &["lr=1e-3..2e-2".into()]).unwrap();
    let results = search
        .run(&comparison, &mut Corpora::default(), &Interrupt::default(), &mut ())
        .unwrap()
        .unwrap();
    for cell in &results.cells {
        assert!(cell.name.contains("(lr 0.0"), "a rate of 1e-7 learns nothing: {}", cell.name);
        assert_eq!(cell.runs().len(), 1);
    }
    assert!(folder.path().join("search/none/round-2").is_dir());
}

#[test]
fn lengths_say_what_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut comparison =
        comparison(folder.path(), &[r#"position={kind="learned",length=64},rotary"#]);
    comparison.seeds = 1;
    run(&comparison, &mut Count::default()).unwrap();
    let cells = comparison.cells().unwrap();
    let at = |cell: usize, lengths: &[usize]| {
        let folder = comparison.run_folder(&cells[cell], 3);
        let (corpus, split) = corpus_of(&Folder::new(folder.path()), None).unwrap();
        let lengths = Lengths { lengths: lengths.to_vec(), tokens: 256, scalings: true };
        let run = Run::open(folder.path()).unwrap();
        lengths.measure(&run, &corpus, split, |_| {}).unwrap()
    };
    let learned = at(0, &[64, 65, 100_000_000]);
    assert!(learned[0].figures.is_some());
    assert!(learned[1].missing.as_ref().unwrap().contains("64"), "{learned:?}");
    assert!(learned[2].missing.as_ref().unwrap().contains("the text has only"), "{learned:?}");
    let rotary = at(1, &[32, 256]);
    let names: Vec<Option<&str>> = rotary.iter().map(|at| at.scaling.as_deref()).collect();
    assert_eq!(names, [None, None, Some("linear"), Some("ntk"), Some("yarn")]);
    let losses: Vec<f64> =
        rotary[1..].iter().map(|at| at.figures.as_ref().unwrap().whole.loss).collect();
    assert!(losses.windows(2).all(|pair| pair[0] != pair[1]), "scalings do something: {losses:?}");
    let figures = rotary[1].figures.as_ref().unwrap();
    let ends: Vec<usize> = figures.positions.iter().map(|(end, _)| *end).collect();
    assert_eq!(ends, [32, 64, 128, 256]);
}

#[test]
fn other_tokenizers_are_ranked_by_bits_per_byte_and_other_questions_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let axis = r#"tokenizer=bytes,{kind="bpe",vocabulary=300}"#;
    let tokens = Comparison { seeds: 1, ..comparison(&folder.path().join("tokens"), &[axis]) };
    let results = run(&tokens, &mut Count::default()).unwrap();
    assert_eq!((results.measure, &results.not_ranked), (Measure::BitsPerByte, &None));
    let bits: Vec<f64> =
        results.ranking().iter().map(|cell| cell.bits_per_byte.unwrap().mean).collect();
    assert!(bits[0] <= bits[1], "{bits:?}");
    // At the start nats per token and bits per byte rank them the other way round.
    assert_eq!(results.ranking()[0].name, "bpe vocabulary=300");
    let by_nats = |cell: usize| results.cells[cell].loss.unwrap().mean;
    assert!(by_nats(0) < by_nats(1), "{} {}", by_nats(0), by_nats(1));
    assert!(results.verdict()[0].contains("bits per byte"), "{:?}", results.verdict());
    let difference = results.cells[1].difference.unwrap().mean;
    assert!((difference - (bits[0] - bits[1])).abs() < 1e-9, "{difference}");

    let axis = r#"objective=masked,{kind="masked",share=0.5}"#;
    let mut questions = comparison(&folder.path().join("questions"), &[axis]);
    questions.changes = vec!["family=encoder".into()];
    let results = run(&questions, &mut Count::default()).unwrap();
    let said = &results.verdict()[0];
    assert!(said.starts_with("These are not ranked: they predict different things"), "{said}");
    assert!(results.cells.iter().all(|cell| cell.difference.is_none()));
    let html = report::html(std::slice::from_ref(&results));
    assert!(html.contains("Figures, not ranked") && html.contains("predict different things"));
    let object = serde_json::to_value(&results).unwrap();
    assert!(object["not_ranked"].as_str().unwrap().contains("predict different things"));
}

#[test]
fn cells_are_held_against_the_first_that_trains() {
    let folder = tempfile::tempdir().unwrap();
    let axes = ["score=additive,scaled_dot", "position=rotary,alibi"];
    let results = run(&comparison(folder.path(), &axes), &mut Count::default()).unwrap();
    assert_eq!(results.baseline, "additive, alibi");
    let missing = results.baseline_missing.as_deref();
    assert_eq!(missing, Some("additive, rotary"));
    let said = "`additive, rotary` could not be trained, so that the others are held against `additive, alibi`.";
    assert!(results.verdict().contains(&said.into()), "{:?}", results.verdict());
    assert!(results.cells[2..].iter().all(|cell| cell.difference.is_some()));
}

#[test]
fn a_report_says_what_made_it_and_what_the_runs_really_had() {
    let folder = tempfile::tempdir().unwrap();
    let request = Comparison {
        seeds: 1,
        changes: vec!["steps=1000".into(), "evaluate_every=100".into()],
        budget: Some("steps=10".parse().unwrap()),
        search: Some(Search::parse(2, &["lr=1e-3..1e-2".into()]).unwrap()),
        command: Some("whatwhere compare --over position=none,polar".into()),
        ..comparison(folder.path(), &["position=none,polar"])
    };
    let results = run(&request, &mut Count::default()).unwrap();
    let curve = &results.cells[0].runs()[0].curve;
    assert!(curve.len() >= 8, "a budget below evaluate_every has a curve: {curve:?}");
    assert!(results.settings.contains("steps = 10\n"), "{}", results.settings);
    assert!(!results.settings.contains("position ="), "cells differ in it: {}", results.settings);
    let own = &results.cells[1].own;
    assert!(own.contains(&("model.attention.position".into(), "\"polar\"".into())), "{own:?}");
    let html = report::html(std::slice::from_ref(&results));
    for expected in [
        "<pre>whatwhere compare --over position=none,polar</pre>",
        "Searched before: 2 samples of training.lr from 0.001 to 0.01",
        concat!("whatwhere ", env!("CARGO_PKG_VERSION")),
        "Data: ",
        "Model: decoder, 1 layer, width 16, 2 heads, trained on windows of 32 tokens",
        "What they are",
        "<dt><code>polar</code></dt>",
    ] {
        assert!(html.contains(expected), "{expected}");
    }
    // The scale of δ is what was learned, so that its map is not all of one color.
    let (_, map) = html.split_once("δ of polar").expect("a map of δ");
    let map = map.split("</figure>").next().unwrap();
    let shades: BTreeSet<&str> =
        map.split("fill-opacity=\"").skip(1).filter_map(|part| part.split('"').next()).collect();
    assert!(shades.len() > 8, "{shades:?}");
    // Dashes are for rotary scaled at evaluation, and names of curves also stand below a chart.
    assert!(!html.contains("dashed\"") && html.contains("<ul class=\"legend\">"));
}

#[test]
fn a_comparison_says_which_encodings_scale_embeddings_as_published() {
    let folder = tempfile::tempdir().unwrap();
    let said = |folder: &str, axes: &[&str]| {
        let mut asked = comparison(Path::new(folder), axes);
        asked.lengths = None;
        asked.seeds = 1;
        run(&asked, &mut Count::default()).unwrap().evidence().join("\n")
    };
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let words = said(&at("own"), &["position=rotary,sinusoidal"]);
    let sentence = "embeddings are multiplied by √width, as published, for sinusoidal";
    assert!(words.contains(sentence), "{words}");
    let words = said(&at("same"), &["position=rotary,learned"]);
    assert!(!words.contains("√width"), "{words}");
}

#[test]
fn a_report_says_which_cells_read_what() {
    let folder = tempfile::tempdir().unwrap();
    let text = |name: &str, line: &str| {
        let path = folder.path().join(name);
        fs::write(&path, line.repeat(400)).unwrap();
        path.display().to_string()
    };
    let (a, b) = (text("a.txt", "One text, in short lines.\n"), text("b.txt", "And another.\n"));
    let request = Comparison {
        seeds: 1,
        lengths: None,
        ..comparison(&folder.path().join("out"), &[&format!("data.source.path={a},{b}")])
    };
    let results = run(&request, &mut Count::default()).unwrap();
    let data = results.data.as_ref().expect("what was read");
    assert_eq!(data.matches(" for path ").count(), 2, "{data}");
    assert!(report::html(std::slice::from_ref(&results)).contains("Data: "));
}
