//! Data as people have them: folders, tables, archives, music; and what is said of them.

mod common;

use std::{fs, process::Command};

use tempfile::TempDir;

use common::{refusal, works};

const SMALL: [&str; 14] = [
    "--set",
    "model.width=16",
    "--set",
    "model.layers=1",
    "--set",
    "training.steps=2",
    "--set",
    "training.length=16",
    "--set",
    "training.batch=2",
    "--set",
    "training.evaluate_every=2",
    "--set",
    "training.evaluate_batches=1",
];

fn train<'a>(more: &[&'a str]) -> Vec<&'a str> {
    ["train"].iter().chain(more).chain(&SMALL).copied().collect()
}

#[test]
fn a_folder_of_pairs_or_chorales_is_read_as_the_help_says() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("pairs")).unwrap();
    let lines = |word: &str, many: usize| -> String {
        (0..many).map(|i| format!("{word} number {i}\n")).collect()
    };
    for (name, many) in [("train", 40), ("val", 7), ("test_2016_flickr", 5), ("test_2018", 3)] {
        for language in ["en", "de", "fr"] {
            fs::write(at.join(format!("pairs/{name}.{language}")), lines(language, many)).unwrap();
        }
    }
    fs::write(at.join("pairs/SOURCE.md"), "Where it came from.").unwrap();
    let args = ["--preset", "translation", "--data", "pairs", "--out", "mt", "--set"];
    let vocabulary = ["data.tokenizer.vocabulary=300", "--set", "model.feed_forward=16"];
    works(at, &train(&[&args[..], &vocabulary].concat()));
    let data = fs::read_to_string(at.join("mt/data.json")).unwrap();
    let data: serde_json::Value = serde_json::from_str(&data).unwrap();
    let documents = |split: &str| data["splits"][split]["documents"].as_u64();
    assert_eq!(["train", "valid", "test"].map(documents), [Some(40), Some(7), Some(5)]);

    for language in ["en", "fr"] {
        fs::remove_file(at.join(format!("pairs/train.{language}"))).unwrap();
    }
    let said = refusal(at, &train(&[&args[..], &vocabulary].concat()));
    for words in ["pairs: found SOURCE.md, ", "train.de", "; expected train.en and train.de"] {
        assert!(said.contains(words), "{words} in {said}");
    }

    fs::create_dir(at.join("music")).unwrap();
    let piece = "[[60, 55, 52, 48], [62, 55, 52, 48], [64, 55, 52, 48], [60, 55, 52, 48], [60, 55, 52, 48]]";
    let pieces = format!("{{\"train\": [{piece}, {piece}], \"valid\": [{piece}]}}");
    fs::write(at.join("music/SOURCE.md"), "Where it came from.").unwrap();
    let music = ["--preset", "music", "--data", "music", "--out", "jsb"];
    let said = refusal(at, &train(&music));
    assert!(said.contains("music: found SOURCE.md; expected one in JSON"), "{said}");
    fs::write(at.join("music/other.json"), &pieces).unwrap();
    works(at, &train(&music));
    fs::write(at.join("music/more.json"), "{}").unwrap();
    let said = refusal(at, &train(&["--preset", "music", "--data", "music", "--out", "jsb2"]));
    assert!(said.contains("found SOURCE.md, more.json, other.json; expected one"), "{said}");

    // Notes are words, with a blank before each, and a piece can begin by itself.
    let prompt = "60 55 52 48";
    let (text, _) = works(at, &["generate", "jsb", prompt, "--tokens", "8"]);
    let notes: Vec<&str> = text.split_whitespace().collect();
    assert!(text.starts_with(&format!("{prompt} ")) && notes.len() == 12, "{text}");
    let (text, _) = works(at, &["generate", "jsb", "--tokens", "8", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&text).unwrap();
    let text = said["text"].as_str().unwrap();
    assert_eq!(text.split_whitespace().count(), 9, "{text}");
    for note in text.split_whitespace() {
        let is_note = note == "silence" || (21..=108).contains(&note.parse().unwrap_or(0));
        assert!(is_note, "{text}");
    }
}

#[test]
fn a_run_finds_its_data_from_another_folder() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("elsewhere")).unwrap();
    fs::write(at.join("text.txt"), "A line of some words.\n".repeat(60)).unwrap();
    works(at, &train(&["--preset", "tiny", "--data", "text.txt", "--out", "run"]));
    let (here, _) = works(at, &["evaluate", "run"]);
    let (there, _) = works(&at.join("elsewhere"), &["evaluate", "../run"]);
    assert_eq!(here, there);
    // The same settings, whoever says where the text is.
    let resume = ["train", "--resume", "--out", "../run", "--data", "../text.txt"];
    works(&at.join("elsewhere"), &resume);
}

#[test]
fn a_table_with_commas_is_read_and_parquet_says_what_to_do() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let rows: String = (0..60).map(|i| format!("{i},\"a text, of \"\"{i}\"\"\n\"\n")).collect();
    fs::write(at.join("table.csv"), format!("id,text\n{rows}")).unwrap();
    let (said, _) =
        works(at, &["data", "describe", "--data", "table.csv", "--set", "training.length=16"]);
    assert!(said.contains("train\t54\t"), "{said}");
    let said = refusal(
        at,
        &[
            "data",
            "describe",
            "--data",
            "table.csv",
            "--set",
            "data.source={kind='text',field='body'}",
        ],
    );
    assert!(said.contains("a name in the first row, which has id, text"), "{said}");
    fs::write(at.join("table.parquet"), "PAR1").unwrap();
    let said = refusal(at, &["data", "describe", "--data", "table.parquet"]);
    let expected = if cfg!(feature = "parquet") { "is not read" } else { "--features parquet" };
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_file_of_listops_is_data_and_what_is_read_without_data_is_said() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let lines: String = (0..50).map(|i| format!("{}\t[MAX {} 0 ]\n", i % 10, i % 10)).collect();
    fs::write(at.join("ops.tsv"), lines).unwrap();
    let args = ["--data", "ops.tsv", "--out", "run", "--set", "data.source.kind=listops"];
    works(at, &train(&args));
    let (_, said) = works(at, &train(&["--preset", "shakespeare", "--out", "own"]));
    assert!(said.contains("no --data: it reads the text that comes with the program"), "{said}");
}

#[test]
fn numbers_out_of_range_are_refused_in_words() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::write(at.join("text.txt"), "A line of some words.\n".repeat(60)).unwrap();
    works(at, &train(&["--preset", "tiny", "--data", "text.txt", "--out", "run"]));
    let said = refusal(at, &["generate", "run", "--temperature", "-1"]);
    assert!(said.contains("temperature = -1: expected 0 or more"), "{said}");
    let said = refusal(at, &["compare", "--over", "position=rotary,alibi", "--seeds", "0"]);
    assert!(said.contains("--seeds") && !said.contains("config --choices"), "{said}");
    let (listed, _) = works(at, &["reproduce"]);
    assert!(!listed.contains("about 1 minutes"), "{listed}");
}

#[cfg(unix)]
#[test]
fn the_first_ctrl_c_ends_the_training_of_a_tokenizer() {
    use std::{process::Stdio, thread, time::Duration};
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    // Many different words, so that learning takes a while.
    let text: String =
        (0u64..400_000).map(|i| format!("{:x} ", i.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
    fs::write(at.join("text.txt"), text).unwrap();
    let args = [
        "--data",
        "text.txt",
        "--out",
        "run",
        "--set",
        "data.tokenizer={kind='bpe',vocabulary=30000}",
    ];
    let child = Command::new(env!("CARGO_BIN_EXE_whatwhere"))
        .args(train(&args))
        .current_dir(at)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    thread::sleep(Duration::from_secs(2));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted while the data were prepared"), "{said}");
    assert!(!at.join("run").exists());
}

/// A model of one text has no token that ends a text: other data of several are read with its own tokens all the same.
#[test]
fn a_run_of_one_text_reads_and_learns_from_several() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let text = |word: &str| format!("{word} and some words more. ").repeat(40);
    fs::write(at.join("one.txt"), text("one")).unwrap();
    fs::create_dir(at.join("several")).unwrap();
    for word in ["two", "three", "four"] {
        fs::write(at.join(format!("several/{word}.txt")), text(word)).unwrap();
    }
    works(at, &train(&["--preset", "tiny", "--data", "one.txt", "--out", "run"]));
    for args in [&["evaluate", "run"][..], &["extrapolate", "run", "--lengths", "16"]] {
        let (figures, said) = works(at, &[args, &["--data", "several"]].concat());
        assert!(figures.contains("loss"), "{figures}");
        assert!(args[0] != "evaluate" || said.contains("follow each other unmarked"), "{said}");
    }
    let tune = ["train", "--from", "run", "--data", "several", "--set", "steps=2", "--out"];
    let (_, said) = works(at, &[&tune[..], &["tuned"]].concat());
    assert!(said.contains("with more rows (embedding.weight: drawn for <"), "{said}");
    let (_, said) = works(at, &[&tune[..], &["adapted", "--set", "lora.rank=2"]].concat());
    assert!(said.contains("with more rows"), "{said}");
    let (_, said) = works(at, &["evaluate", "tuned", "--data", "several"]);
    assert!(!said.contains("unmarked"), "{said}");
    // Characters that its tokens do not have.
    let letters = ["--preset", "tiny", "--data", "one.txt", "--out", "letters", "--set"];
    works(at, &train(&[&letters[..], &["tokenizer=characters"]].concat()));
    fs::write(at.join("korean.txt"), "안녕하세요 ".repeat(99)).unwrap();
    let said = refusal(at, &["train", "--from", "letters", "--data", "korean.txt", "--out", "no"]);
    assert!(said.contains("letters cannot say these data with its tokens"), "{said}");
    assert!(said.contains("--new-embeddings") && said.contains("character '안'"), "{said}");
    let anew = ["train", "--from", "letters", "--data", "korean.txt", "--out", "anew", "--set"];
    let own = ["tokenizer=characters", "--new-embeddings", "--set", "steps=2"];
    works(at, &[&anew[..], &own].concat());
    // Both go on without the run that they began from: its tokens are in their own folders.
    fs::rename(at.join("run"), at.join("elsewhere")).unwrap();
    for run in ["tuned", "adapted"] {
        let (said, _) = works(at, &["train", "--resume", "--out", run]);
        assert!(said.contains("done after 2 updates"), "{said}");
    }
}
