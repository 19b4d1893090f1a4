//! Changes of settings by `--set`: whose words are shown where something is wrong, and what a change alone means.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use whatwhere_training::RunSettings;

fn refusal(text: &str, changes: &[&str]) -> String {
    let changes: Vec<String> = changes.iter().map(|&change| change.into()).collect();
    RunSettings::read(text, &changes).unwrap_err().to_string()
}

#[test]
fn the_words_of_a_change_are_shown_and_no_line_of_a_file_nobody_wrote() {
    let changes = ["training.lr=0.1", "training.steps=many", "model.width=64"];
    let message = refusal("[training]\nbatch = 4", &changes);
    assert!(message.starts_with("--set training.steps=many: invalid type: string"), "{message}");
    assert!(!message.contains("line"), "{message}");
    let message = refusal("", &["training.stepz=3"]);
    assert!(message.starts_with("--set training.stepz=3: unknown field `stepz`"), "{message}");
}

#[test]
fn a_file_that_is_wrong_shows_its_own_line() {
    let message = refusal("[training]\nlr = 0.1\nstepz = 3", &["model.width=64"]);
    assert!(message.contains("line 3") && message.contains("stepz = 3"), "{message}");
}

#[test]
fn a_number_is_a_word_where_one_is_expected() {
    let changes = ["data.source.kind=text", "data.source.field=4", "training.steps=7"];
    let settings = RunSettings::read("", &changes.map(Into::into)).unwrap();
    let whatwhere_data::Source::Text(text) = settings.data.source else { panic!() };
    assert_eq!((text.field.as_str(), settings.training.steps), ("4", 7));
}

#[test]
fn a_part_of_a_choice_that_was_not_made_changes_the_default_one() {
    let changes = ["data.source.path=a.txt", "schedule.warmup=7", "position.base=500"];
    let settings = RunSettings::read("", &changes.map(Into::into)).unwrap();
    let whatwhere_data::Source::Text(text) = &settings.data.source else { panic!() };
    assert_eq!(text.path.to_str(), Some("a.txt"));
    let text = settings.to_toml().unwrap();
    assert!(text.contains("warmup = 7") && text.contains("base = 500"), "{text}");
    // What was chosen stays.
    let chosen = "[model.attention]\nposition = 'alibi'";
    let settings = RunSettings::read(chosen, &["data.source.path=a.txt".into()]).unwrap();
    assert!(settings.to_toml().unwrap().contains("alibi"));
}
