//! Classes as people meet them: from a table to labels with probabilities, on any number of threads, and bad input.

mod common;

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use common::{command, refusal, run, works};

const SMALL: [&str; 16] = [
    "--set",
    "model.width=16",
    "--set",
    "model.layers=1",
    "--set",
    "training.steps=60",
    "--set",
    "training.length=16",
    "--set",
    "training.batch=8",
    "--set",
    "training.evaluate_every=20",
    "--set",
    "data.tokenizer=characters",
    "--set",
    "training.lr=0.01",
];

fn train<'a>(more: &[&'a str]) -> Vec<&'a str> {
    ["train", "--preset", "classify"].iter().chain(more).chain(&SMALL).copied().collect()
}

/// The command with some bytes as its standard input.
fn with_input(folder: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut asked = command(folder, args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    asked.stdin.take().expect("piped").write_all(input).expect("it reads");
    asked.wait_with_output().expect("it ends")
}

/// Reviews as NSMC has them: label, rating, number, text. Kind ones have an o, one has more than fits.
fn write_reviews(folder: &Path) {
    fs::create_dir(folder.join("reviews")).expect("a new folder");
    let row = |i: usize| {
        let words = ["bad", "drab", "meh", "sad", "good", "so cool", "oh wow", "bravo"][i * 5 % 8];
        format!("{}\t9\t{i}\t{words} {}\n", usize::from(words.contains('o')), "z".repeat(i % 7))
    };
    let table = |rows: std::ops::Range<usize>| rows.map(row).collect::<String>();
    let long = "1\t9\t0\tgood good good good good good\n";
    let write = |name: &str, text: String| fs::write(folder.join(name), text).expect("written");
    write("reviews/train.tsv", table(0..200) + long);
    write("reviews/valid.tsv", table(200..240));
    write("reviews/test.tsv", table(240..280));
    write("reviews/SOURCE.md", "Where they came from.".into());
}

#[test]
fn a_table_of_reviews_becomes_labels_with_probabilities() {
    let folder = TempDir::new().expect("a folder");
    let at = folder.path();
    write_reviews(at);
    let (said, talk) = works(at, &train(&["--data", "reviews", "--out", "run"]));
    assert!(said.contains("best valid accuracy"), "{said}");
    assert!(talk.contains("cut: 1 texts have more than training.length = 16 tokens"), "{talk}");
    let (said, _) = works(at, &["evaluate", "run", "--split", "test", "--json"]);
    let figures: Value = serde_json::from_str(&said).expect("JSON");
    assert!(figures["accuracy"].as_f64().is_some_and(|found| found > 0.9), "{figures}");
    for key in ["loss", "macro_f1", "calibration_error", "accuracy_margin"] {
        assert!(figures[key].is_f64(), "{key}: {figures}");
    }
    let counts: u64 = figures["confusion"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|row| row.as_array().into_iter().flatten())
        .filter_map(Value::as_u64)
        .sum();
    assert_eq!((counts, figures["tokens"].as_u64()), (40, Some(40)));
    assert_eq!(figures["classes"][1]["class"], "1");
    let (said, _) = works(at, &["evaluate", "run"]);
    for words in ["accuracy\t", "macro F1\t", "calibration error\t", "class, told as\t0\t1"] {
        assert!(said.contains(words), "{words}: {said}");
    }

    // From arguments and from standard input, the same.
    let (said, _) = works(at, &["classify", "run", "so good", "bad"]);
    let labels: Vec<&str> = said.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(labels, ["1", "0"], "{said}");
    let mut asked = command(at, &["classify", "run", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let lines = "so good\nbad\ngood good good good good good\n";
    asked.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("it reads");
    let output = asked.wait_with_output().expect("it ends");
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(talk.contains("1 of 3 texts have more than 16 tokens"), "{talk}");
    let answers: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let labels: Vec<&str> = answers.iter().filter_map(|answer| answer["label"].as_str()).collect();
    assert_eq!(labels, ["1", "0", "1"]);
    assert_eq!(answers[2]["cut"], true);
    let sum: f64 = ["0", "1"].iter().filter_map(|c| answers[0]["probabilities"][c].as_f64()).sum();
    assert!((sum - 1.0).abs() < 1e-9);
    let (said, _) = works(at, &["classify", "run", "--json", "bad", " ", "good"]);
    assert_eq!(said.lines().nth(1), Some("null"), "{said}");
    let (said, _) = works(at, &["classify", "run", "--top", "2", "bad"]);
    assert_eq!(said.trim_end().split('\t').count(), 4, "{said}");

    // Other data by the run's classes; a label it does not know is named.
    fs::write(at.join("more.tsv"), "1\t9\t0\tgood\n").expect("written");
    works(at, &["evaluate", "run", "--data", "more.tsv"]);
    fs::write(at.join("odd.tsv"), "1\t9\t0\tgood\n2\t9\t0\tbad\n").expect("written");
    let said = refusal(at, &["evaluate", "run", "--data", "odd.tsv"]);
    assert!(said.contains("odd.tsv, line 2: has the label \"2\"; expected one of 0, 1"), "{said}");
    let (said, _) = works(at, &["data", "describe", "--preset", "classify", "--data", "reviews"]);
    assert!(said.contains("class\t0\t1") && said.contains("row 1 target"), "{said}");

    works(at, &["show", "heads", "run", "--text", "so good"]);
    works(at, &["show", "heads", "run", "--held-out", "1"]);

    // What a classifier cannot do is said.
    for (args, words) in [
        (&["fill", "run", "a [MASK]"][..], "no token for a blank"),
        (&["extrapolate", "run"], "have the lengths they have"),
        (&["export", "run", "--to", "onnx", "--out", "onnx"], "tells 2 classes"),
    ] {
        let output = run(at, args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{args:?}: {said}");
    }
}

#[test]
fn every_number_of_threads_has_the_same_bits() {
    let folder = TempDir::new().expect("a folder");
    let at = folder.path();
    write_reviews(at);
    let mut found = Vec::new();
    for threads in ["1", "2", "4"] {
        let out = format!("run-{threads}");
        let args = ["--data", "reviews", "--out", &out, "--set", "model.dropout=0.1"];
        let output = command(at, &train(&args))
            .env("RAYON_NUM_THREADS", threads)
            .output()
            .expect("the command starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        found.push(fs::read(at.join(&out).join("last.safetensors")).expect("a checkpoint"));
    }
    assert!(found[0] == found[1] && found[0] == found[2]);
}

#[test]
fn bad_labels_are_refused_and_leave_no_run() {
    let folder = TempDir::new().expect("a folder");
    let at = folder.path();
    write_reviews(at);
    let write = |name: &str, text: &str| fs::write(at.join(name), text).expect("written");
    write("missing.tsv", "1\t9\t0\tgood\n\t9\t0\tbad\n");
    write("unequal.tsv", "1\t9\t0\tgood\n0\t9\tbad\n");
    write("one.tsv", "1\t9\t0\tgood\n1\t9\t0\tfine\n");
    write("empty.tsv", "");
    write("words.txt", "a text without a label");
    for (data, words) in [
        (
            "missing.tsv",
            "missing.tsv, line 2: has no label in \"1\"; expected the name of its class",
        ),
        (
            "unequal.tsv",
            "unequal.tsv, line 2: has 3 columns, and the first row has 4; expected as many",
        ),
        (
            "one.tsv",
            "one.tsv: all 2 texts for training have the label \"1\"; expected at least two classes",
        ),
        ("empty.tsv", "empty.tsv: is empty, expected texts with labels"),
        ("words.txt", "words.txt: has no label"),
        ("none.tsv", "none.tsv: No such file"),
    ] {
        let args = ["--data", data, "--out", "bad", "--set", "data.valid_share=0.0"];
        let said = refusal(at, &train(&args));
        assert!(said.contains(words), "{data}: {said}");
        assert!(!at.join("bad").exists(), "{data}");
    }
    write("reviews/valid.tsv", "1\t9\t0\tgood\n3\t9\t0\tbad\n");
    let said = refusal(at, &train(&["--data", "reviews", "--out", "bad"]));
    assert!(
        said.contains("has the label \"3\", which does not occur in the training data"),
        "{said}"
    );
    // Empty texts are left out, and said.
    write("reviews/valid.tsv", "1\t9\t0\tgood\n0\t9\t0\t\n0\t9\t0\tbad\n");
    let (_, talk) = works(at, &train(&["--data", "reviews", "--out", "run"]));
    assert!(talk.contains("left out: 1 empty of 244 texts"), "{talk}");
    let said = refusal(at, &["train", "--preset", "classify", "--out", "nothing"]);
    assert!(said.contains("source.path = \"\": expected a file or folder"), "{said}");
}

#[test]
fn folders_pairs_and_trained_encoders() {
    let folder = TempDir::new().expect("a folder");
    let at = folder.path();
    for (class, word) in [("kind", "good"), ("unkind", "bad")] {
        fs::create_dir_all(at.join("films").join(class)).expect("a folder");
        for i in 0..20 {
            let path = at.join(format!("films/{class}/{i}.txt"));
            fs::write(path, format!("{word} {i}")).expect("written");
        }
    }
    works(at, &train(&["--data", "films", "--out", "films-run"]));
    let (said, _) = works(at, &["classify", "films-run", "good 3"]);
    assert!(said.starts_with("kind\t"), "{said}");

    let row = |i: usize| {
        let (a, b) = (["up", "down"][i % 2], ["up", "down"][i / 2 % 2]);
        format!("{a}\t{b}\t{}\n", if a == b { "same" } else { "other" })
    };
    fs::write(at.join("pairs.tsv"), (0..80).map(row).collect::<String>()).expect("written");
    let source = r#"data.source={kind="labeled",field="1",second_field="2",label_field="3",path="pairs.tsv"}"#;
    let args = ["--set", source, "--out", "pairs-run", "--set", "data.valid_share=0.5"];
    works(at, &train(&args));
    works(at, &["classify", "pairs-run", "up\tdown"]);
    let said = refusal(at, &["classify", "pairs-run", "up"]);
    assert!(said.contains("the run reads pairs, expected a tab between both"), "{said}");
    // Lines that cannot be read are named, and end nothing: answers stand beside their lines.
    let lines: &[u8] = b"up\tdown\nup\n\xff\t\n\nup\tup";
    for (args, bad, blank) in [
        (&["classify", "pairs-run"][..], ["", ""], ""),
        (
            &["classify", "pairs-run", "--json"],
            [
                r#"{"error":"has no tab; the run reads pairs, expected a tab between both"}"#,
                r#"{"error":"is not UTF-8 text"}"#,
            ],
            "null",
        ),
    ] {
        let output = with_input(at, args, lines);
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let found: Vec<&str> = out.lines().collect();
        assert_eq!(found.len(), 5, "{out}");
        assert_eq!([found[1], found[2]], bad, "{out}");
        assert_eq!(found[3], blank, "{out}");
        assert!(found[0].len() > 8 && found[4].len() > 8, "{out}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        for words in ["text 2: has no tab", "text 3: is not UTF-8", "2 of 5 texts could not be"] {
            assert!(said.contains(words), "{said}");
        }
    }

    // A masked encoder of the same texts, then its classifier.
    let text =
        ["train", "--preset", "masked", "--out", "masked", "--data", "films", "--set", "heads=2"];
    let small: Vec<&str> = text.iter().chain(&SMALL).copied().collect();
    works(at, &small);
    let source = r#"data.source={kind="labeled",path="films"}"#;
    let args = [
        "train",
        "--from",
        "masked",
        "--out",
        "tuned",
        "--set",
        "objective=classify",
        "--set",
        source,
    ];
    let (_, talk) = works(at, &args);
    assert!(talk.contains("2 drawn (classifier.weight"), "{talk}");
    works(at, &["classify", "tuned", "good 3"]);
    // A preset's tokenizer is no choice of tokens; one that is named is.
    let args = ["--preset", "classify", "--from", "masked", "--data", "films"];
    let small = ["--set", "training.steps=2", "--set", "training.length=16"];
    let args = [&["train"][..], &args, &small].concat();
    let (_, talk) = works(at, &[&args[..], &["--out", "preset"]].concat());
    assert!(talk.contains("model and tokens: of masked"), "{talk}");
    assert!(talk.contains("2 drawn (classifier.weight"), "{talk}");
    let named = ["--out", "named", "--set", "tokenizer=bytes"];
    let said = refusal(at, &[&args[..], &named].concat());
    let way = r#"--set 'data.tokenizer={kind="file",path="masked/tokenizer.json"}'"#;
    assert!(said.contains("masked: it has another tokenizer") && said.contains(way), "{said}");
    assert!(!at.join("named").exists());
    let way = r#"data.tokenizer={kind="file",path="masked/tokenizer.json"}"#;
    let (_, talk) = works(at, &[&args[..], &["--out", "named", "--set", way]].concat());
    assert!(talk.contains("model: of masked") && !talk.contains("tokens: of"), "{talk}");

    let said = refusal(at, &["classify", "masked", "good"]);
    assert!(said.contains("classify needs a run that learned classes"), "{said}");
}

/// Models of others, whose tokenizers are not at hand here: their layers are taken, tokens and head are drawn.
#[test]
fn imported_encoders_and_decoders_become_classifiers() {
    let folder = TempDir::new().expect("a folder");
    let at = folder.path();
    let lines = "good film\tpos\nbad film\tneg\na good one\tpos\nso bad\tneg\n";
    fs::write(at.join("films.tsv"), lines).expect("written");
    let source = r#"data.source={kind="labeled",path="films.tsv",field="1",label_field="2"}"#;
    for family in ["bert", "gpt2", "modernbert", "deberta_v2"] {
        let model =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/families").join(family);
        let (import, out) = (format!("{family}-import"), format!("{family}-run"));
        works(at, &["import", model.to_str().expect("UTF-8"), "--out", &import]);
        // They come without a tokenizer.
        let args = ["--set", "objective=classify", "--set", source, "--out", "none"];
        let said = refusal(at, &[&["train", "--from", &import][..], &args].concat());
        assert!(said.contains("--new-embeddings draws the vectors of tokens anew"), "{said}");
        let mut args = vec!["train", "--from", &import, "--new-embeddings", "--out", &out];
        for change in [
            "objective=classify",
            source,
            "data.tokenizer=characters",
            "data.valid_share=0",
            "training.steps=3",
            "training.length=12",
            "training.batch=2",
        ] {
            args.extend(["--set", change]);
        }
        let (_, talk) = works(at, &args);
        assert!(talk.contains("parameters taken"), "{talk}");
        let transfer = fs::read_to_string(at.join(&out).join("transfer.json")).expect("it is kept");
        let transfer: Value = serde_json::from_str(&transfer).expect("JSON");
        let drawn: Vec<&str> = transfer["drawn"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|drawn| drawn["name"].as_str())
            .collect();
        let expected = ["embedding.weight", "types.weight", "classifier.weight", "classifier.bias"];
        assert!(drawn.contains(&"classifier.weight"), "{family}: {drawn:?}");
        assert!(drawn.iter().all(|name| expected.contains(name)), "{family}: {drawn:?}");
        works(at, &["classify", &out, "good film"]);
    }
}

#[test]
fn texts_beyond_the_table_of_positions_are_cut_and_told() {
    let folder = TempDir::new().expect("a folder");
    let at = folder.path();
    write_reviews(at);
    let table = "position={kind=\"learned\",length=9}";
    let more = ["--data", "reviews", "--out", "run", "--set", table];
    let args = [&train(&more)[..], &["--set", "training.length=100"]].concat();
    let (_, talk) = works(at, &args);
    let words = "texts have more than the 9 tokens that the model has positions for; what follows";
    assert!(talk.contains(words), "{talk}");
    let (_, talk) = works(at, &["evaluate", "run"]);
    assert!(talk.contains(words), "{talk}");
    let (_, talk) = works(at, &["classify", "run", "good good good"]);
    assert!(talk.contains("1 of 1 texts have more than 9 tokens"), "{talk}");
    // What cannot be cut is refused before there is a folder.
    let table = "position={kind=\"learned\",length=16}";
    let length = "training.length=64";
    let args = ["train", "--preset", "tiny", "--set", table, "--set", length, "--out", "no"];
    let said = refusal(at, &args);
    assert!(said.contains("training.length = 64: rows have up to 64 tokens"), "{said}");
    assert!(said.contains("the model has 16 positions"), "{said}");
    assert!(!at.join("no").exists());
}

#[test]
fn other_expressions_are_read_by_a_runs_own_tokens() {
    let folder = TempDir::new().expect("a folder");
    let at = folder.path();
    let small = [
        "data.source={kind=\"listops\",shortest=4,longest=20,depth=3}",
        "training.length=24",
        "training.steps=4",
        "training.batch=2",
        "training.evaluate_batches=2",
        "width=16",
        "layers=1",
        "heads=2",
    ];
    let mut args = vec!["train", "--preset", "listops", "--out", "run"];
    args.extend(small.iter().flat_map(|change| ["--set", change]));
    works(at, &args);
    let rows = "3\t[MIN 4 3 ]\n9\t[SM 5 [MAX 4 1 ] ]\n".repeat(20);
    for name in ["one", "two"] {
        fs::create_dir(at.join(name)).expect("a new folder");
    }
    fs::write(at.join("one/good.tsv"), &rows).expect("written");
    let (said, _) = works(at, &["evaluate", "run", "--data", "one", "--json"]);
    let figures: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(figures["tokens"], 40);
    fs::write(at.join("two/odd.tsv"), format!("{rows}2\t[PM 1 1 ]\n")).expect("written");
    let said = refusal(at, &["evaluate", "run", "--data", "two/odd.tsv"]);
    assert!(said.contains("two/odd.tsv, line 41: has \"[PM\""), "{said}");
    fs::write(at.join("two/more.tsv"), &rows).expect("written");
    let said = refusal(at, &["evaluate", "run", "--data", "two"]);
    assert!(said.contains("two: found more.tsv, odd.tsv; expected one table"), "{said}");
}
