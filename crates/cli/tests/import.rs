//! Models of others on the command line: imported, and asked by ids.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_whatwhere"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)
}

#[test]
fn a_model_is_imported_and_asked_by_ids() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let (path, out) = (fixture("families/t5"), out.to_str().unwrap());
    let path = path.to_str().unwrap();
    let imported = run(&["import", path, "--out", out, "--json"], "");
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&imported.stdout).unwrap();
    assert_eq!((&summary["family"], &summary["tokenizer"]), (&"t5".into(), &false.into()));
    let again = run(&["import", path, "--out", out], "");
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("holds a run already\nhint: name another folder"));
    let logits = run(&["logits", out, "--json"], "1 2 3|4 5\n6|7\n");
    assert!(logits.status.success(), "{}", text(&logits.stderr));
    let lines: Vec<serde_json::Value> =
        text(&logits.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let places = |line: &serde_json::Value| line["logits"].as_array().unwrap().len();
    assert_eq!((places(&lines[0]), places(&lines[1])), (2, 1));
    assert_eq!(lines[0]["logits"][0].as_array().unwrap().len(), 67);
    // Blank lines at the end are none, with Windows' ends of lines, too.
    for input in ["1 2 3|4 5\n\n \n", "1 2 3|4 5\r\n\r\n", "1 2 3|4 5"] {
        let again = run(&["logits", out, "--json"], input);
        assert!(again.status.success(), "{}", text(&again.stderr));
        assert_eq!(text(&again.stdout).lines().next(), text(&logits.stdout).lines().next());
        assert_eq!(text(&again.stdout).lines().count(), 1);
    }
    for (input, said) in [
        ("\n1|2\n", "line 1: found no ids, expected at least 1, as lines follow"),
        ("1 2\n", "line 1: an encoder-decoder needs ids of a source and of a target"),
        ("1|99\n", "id 99 is outside the vocabulary, expected 0 to 66"),
        ("1|x\n", "found \"x\", expected token ids such as 1 2 3"),
        ("|\n", "found no ids"),
    ] {
        let refused = run(&["logits", out, "--json"], input);
        assert_eq!(refused.status.code(), Some(1), "{input}");
        assert!(text(&refused.stderr).contains(said), "{input}: {}", text(&refused.stderr));
    }
    let spoken = run(&["translate", out], "a b\n");
    assert!(text(&spoken.stderr).contains("this run has no tokenizer"), "{}", text(&spoken.stderr));
}

/// A folder as transformers writes it, with a tokenizer of words: ids as the fixture has them.
fn with_words(fixture_name: &str, to: &Path, words: impl Fn(usize) -> String, frame: &str) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(fixture(fixture_name)).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
    let vocabulary: serde_json::Map<String, serde_json::Value> =
        (0..67).map(|id| (words(id), id.into())).collect();
    let frame: serde_json::Value = serde_json::from_str(frame).unwrap();
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" }, "post_processor": frame, "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": words(3) },
    });
    std::fs::write(to.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}

/// Every verb that reads text says so where its tokenizer has more tokens than the model, as Gemma's own files have.
#[test]
fn tokens_that_the_model_does_not_have_are_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let more = |id: usize| if id == 66 { "[MASK]".into() } else { format!("w{id}") };
    for name in ["bert", "llama", "marian"] {
        let model = at(&format!("{name}-model"));
        with_words(&format!("families/{name}"), Path::new(&model), more, "null");
        let path = Path::new(&model).join("tokenizer.json");
        let mut tokenizer: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        tokenizer["model"]["vocab"]["beyond"] = 70.into();
        tokenizer["added_tokens"] = serde_json::json!([{
            "id": 66, "content": "[MASK]", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        }]);
        std::fs::write(&path, tokenizer.to_string()).unwrap();
        let said =
            serde_json::json!({ "mask_token": "[MASK]", "bos_token": "w0", "eos_token": "w2" });
        std::fs::write(Path::new(&model).join("tokenizer_config.json"), said.to_string()).unwrap();
        let imported = run(&["import", &model, "--out", &at(name)], "");
        assert!(imported.status.success(), "{}", text(&imported.stderr));
    }
    let (bert, llama, marian) = (at("bert"), at("llama"), at("marian"));
    let (int8, page) = (at("int8"), at("page"));
    let quantized = run(&["quantize", &llama, "--out", &int8], "");
    assert!(quantized.status.success(), "{}", text(&quantized.stderr));
    let cases: [&[&str]; 7] = [
        &["embed", &bert],
        &["fill", &bert, "w5 beyond [MASK]"],
        &["generate", &llama, "w5 beyond"],
        &["generate", &int8, "w5 beyond"],
        &["translate", &marian],
        &["show", "attention", &llama, "--text", "w5 beyond", "--out", &page],
        &["show", "split", &llama, "--text", "w5 beyond", "--out", &page],
    ];
    for arguments in cases {
        let output = run(arguments, "w5 beyond\n");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        let words = "token 70 is unknown to the model, which has 67";
        assert!(said.contains(words) && !said.contains("panicked"), "{arguments:?}: {said}");
    }
}

/// The error names the file of the model, and nothing is left of the run.
#[test]
fn a_broken_tokenizer_leaves_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    with_words("families/llama", Path::new(&at("model")), |id| format!("w{id}"), "null");
    let path = Path::new(&at("model")).join("tokenizer.json");
    std::fs::write(&path, "{\"version\": \"1.0\", \"model\": {\"type\": \"Unheard\"}}").unwrap();
    let refused = run(&["import", &at("model"), "--out", &at("run")], "");
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains(path.to_str().unwrap()) && !said.contains(&at("run")), "{said}");
    assert!(!Path::new(&at("run")).exists());
}

#[test]
fn a_tokenizer_that_is_not_read_is_named_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    with_words("families/t5", Path::new(&at("model")), |id| format!("w{id}"), "null");
    std::fs::remove_file(Path::new(&at("model")).join("tokenizer.json")).unwrap();
    std::fs::write(Path::new(&at("model")).join("spiece.model"), "pieces").unwrap();
    let imported = run(&["import", &at("model"), "--out", &at("run")], "");
    let (out, said) = (text(&imported.stdout), text(&imported.stderr));
    assert!(imported.status.success(), "{said}");
    assert!(out.contains("without a tokenizer, because spiece.model is not read"), "{out}");
    assert!(
        said.contains("AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"),
        "{said}"
    );
    let imported = run(&["import", &at("model"), "--out", &at("other"), "--json"], "");
    let summary: serde_json::Value = serde_json::from_slice(&imported.stdout).unwrap();
    assert_eq!(summary["unread_tokenizer"], "spiece.model");
}

/// A vector of as many tokens as there are positions, what the tokenizer puts after a text among them.
#[test]
fn texts_beyond_the_positions_are_cut_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    with_words("families/bert", Path::new(&at("model")), |id| format!("w{id}"), "null");
    std::fs::remove_file(Path::new(&at("model")).join("tokenizer.json")).unwrap();
    let first = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from).into_iter();
    let list: String =
        first.chain((5..67).map(|id| format!("w{id}"))).map(|word| word + "\n").collect();
    std::fs::write(Path::new(&at("model")).join("vocab.txt"), list).unwrap();
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(fixture("families/bert/config.json")).unwrap())
            .unwrap();
    let positions = config["max_position_embeddings"].as_u64().unwrap() as usize;
    let imported = run(&["import", &at("model"), "--out", &at("run")], "");
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let words = |count: usize| (0..count).map(|i| format!("w{} ", 5 + i % 50)).collect::<String>();
    let (run_folder, long) = (at("run"), words(positions + 20));
    let both = run(&["embed", &run_folder, "--json"], &format!("w7 w8\n{long}\n"));
    let said = text(&both.stderr);
    assert!(both.status.success(), "{said}");
    let words_of_it = format!(
        "warning: line 2 has {} tokens, the model knows {positions} positions",
        positions + 22
    );
    assert!(said.contains(&words_of_it) && !said.contains("line 1"), "{said}");
    let fits = run(&["embed", &run_folder, "--json"], &format!("{}\n", words(positions - 2)));
    assert!(fits.stderr.is_empty(), "{}", text(&fits.stderr));
    assert_eq!(text(&both.stdout).lines().nth(1), text(&fits.stdout).lines().next());
}

/// Words of a model whose last tokens are languages.
fn word(id: usize) -> String {
    match id {
        0 => "<s>".into(),
        1 => "<pad>".into(),
        2 => "</s>".into(),
        3 => "<unk>".into(),
        60 => "__en__".into(),
        61 => "__fr__".into(),
        62 => "__de__".into(),
        _ => format!("w{id}"),
    }
}

#[test]
fn languages_stand_around_the_source_and_before_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    with_words("families/m2m_100", Path::new(&at("model")), word, "null");
    let imported = run(&["import", &at("model"), "--out", &at("run"), "--json"], "");
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let translate = |more: &[&str]| {
        let run_folder = at("run");
        let arguments = [&["translate", &run_folder, "--beam", "1"], more].concat();
        let output = run(&arguments, "w7 w9 w11\n");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    };
    // Greedy by logits: the source with its language before it and its end after it, the target after start and language.
    let greedy = |source: &str, target: &str| {
        let mut target = target.to_owned();
        let mut words = Vec::new();
        for _ in 0..20 {
            let output = run(&["logits", &at("run"), "--json"], &format!("{source}|{target}\n"));
            let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let last = said["logits"].as_array().unwrap().last().unwrap().as_array().unwrap();
            let logit = |id: &usize| last[*id].as_f64().unwrap();
            let best = (0..67).filter(|id| *id != 1);
            let best = best.max_by(|a, b| logit(a).total_cmp(&logit(b))).unwrap();
            if best == 2 {
                break;
            }
            words.push(word(best));
            target += &format!(" {best}");
        }
        words.join(" ")
    };
    let french = translate(&["--from-language", "en", "--to-language", "fr"]);
    let starts = |said: &str, expected: &str| {
        let count = expected.split(' ').count().min(20);
        assert_eq!(said.split(' ').take(count).collect::<Vec<_>>().join(" "), expected);
    };
    starts(&french, &greedy("60 7 9 11 2", "2 61"));
    let german = translate(&["--from-language", "fr", "--to-language", "__de__"]);
    starts(&german, &greedy("61 7 9 11 2", "2 62"));
    assert_ne!(french, german);
    starts(&translate(&[]), &greedy("7 9 11 2", "2"));
    let refused = run(&["translate", &at("run"), "--to-language", "it"], "w7\n");
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("expected one of __en__, __fr__, __de__"), "{said}");
}

/// T5 and Marian have no token that is called `<s>`, and BART writes as many tokens as it has places.
#[test]
fn encoder_decoders_are_measured_and_drawn_with_their_own_special_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let lines: String =
        (0..40).map(|i| format!("w{} w9 w11\tw{}\n", 4 + i % 30, 7 + i % 20)).collect();
    std::fs::write(at("pairs.tsv"), lines).unwrap();
    let names = |special: &'static [&str]| {
        move |id: usize| special.get(id).map_or_else(|| format!("w{id}"), |name| (*name).into())
    };
    for (family, special) in [
        ("t5", &["<pad>", "</s>", "w2", "<unk>"][..]),
        ("marian", &["</s>", "w1", "w2", "<unk>"]),
        ("bart", &["<s>", "<pad>", "</s>", "<unk>"]),
    ] {
        let (model, out) = (at(&format!("{family}-model")), at(family));
        with_words(&format!("families/{family}"), Path::new(&model), names(special), "null");
        let config = serde_json::json!({ "eos_token": "</s>", "unk_token": "<unk>" }).to_string();
        std::fs::write(Path::new(&model).join("tokenizer_config.json"), config).unwrap();
        let imported = run(&["import", &model, "--out", &out], "");
        assert!(imported.status.success(), "{}", text(&imported.stderr));
        let (data, shown) = (at("pairs.tsv"), at(&format!("{family}-shown")));
        let cases: [&[&str]; 5] = [
            &["evaluate", &out, "--data", &data, "--batches", "2", "--json"],
            &["extrapolate", &out, "--lengths", "4", "--data", &data],
            &["show", "attention", &out, "--text", "w7 w9", "--out", &shown],
            &["show", "split", &out, "--text", "w7 w9", "--out", &shown],
            &["translate", &out],
        ];
        for arguments in cases {
            let output = run(arguments, "w7 w9\n");
            let (said, error) = (text(&output.stdout), text(&output.stderr));
            assert!(output.status.success(), "{arguments:?}: {error}");
            assert!(
                !said.is_empty() && !said.contains("unknown to the model"),
                "{arguments:?}: {said}"
            );
        }
    }
}

#[test]
fn an_imported_file_is_a_run_for_the_other_verbs() {
    let folder = tempfile::tempdir().unwrap();
    let (out, data) = (folder.path().join("run"), folder.path().join("text.txt"));
    std::fs::write(&data, "the dog and the cat\n".repeat(60)).unwrap();
    let path = fixture("gguf/llama_f16.gguf");
    let (path, out, data) = (path.to_str().unwrap(), out.to_str().unwrap(), data.to_str().unwrap());
    let imported = run(&["import", path, "--out", out], "");
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let cases: [&[&str]; 4] = [
        &["generate", out, "the ", "--tokens", "5", "--json"],
        &[
            "evaluate",
            out,
            "--data",
            data,
            "--batches",
            "2",
            "--set",
            "training.length=32",
            "--json",
        ],
        &["extrapolate", out, "--lengths", "16,32", "--data", data],
        &["embed", out, "--pooling", "last", "--normalize", "--json"],
    ];
    for arguments in cases {
        let output = run(arguments, "the cat\n");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        assert!(!output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_trained_run_goes_out_and_comes_back_with_its_logits() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("text.txt"), "the dog and the cat and the bird\n".repeat(40)).unwrap();
    let data = serde_json::Value::from(at("text.txt"));
    let train = |out: &str, more: &str| {
        let settings = format!(
            "[data]\nsource = {{ kind = 'text', path = {data} }}\n[model]\nwidth = 32\nlayers = 2\n{more}\n[model.attention]\nheads = 4\n[training]\nsteps = 1\nbatch = 2\n\
             length = 16\nevaluate_batches = 1\n"
        );
        std::fs::write(at("settings.toml"), settings).unwrap();
        let trained = run(&["train", &at("settings.toml"), "--out", &at(out)], "");
        assert!(trained.status.success(), "{}", text(&trained.stderr));
    };
    for (name, family, more) in [
        ("llama", "llama", "activation = 'swiglu'\ntied = false"),
        (
            "gpt2",
            "gpt2",
            "activation = 'gelu_tanh'\nnorm = 'layer'\nbias = true\nalternate = [{ bias = true, position = 'learned' }]",
        ),
    ] {
        train(name, more);
        let exported = run(
            &[
                "export",
                &at(name),
                "--to",
                "huggingface",
                "--out",
                &at(&format!("{name}-hf")),
                "--json",
            ],
            "",
        );
        assert!(exported.status.success(), "{}", text(&exported.stderr));
        let said: serde_json::Value = serde_json::from_slice(&exported.stdout).unwrap();
        assert_eq!(said["family"], family);
        let imported =
            run(&["import", &at(&format!("{name}-hf")), "--out", &at(&format!("{name}-back"))], "");
        assert!(imported.status.success(), "{}", text(&imported.stderr));
        let logits = |out: &str| text(&run(&["logits", &at(out), "--json"], "1 2 3 4\n").stdout);
        let (first, again) = (logits(name), logits(&format!("{name}-back")));
        assert!(first.starts_with("{\"logits\"") && first == again);
    }
    for kind in ["f32", "f16", "q8_0"] {
        let file = at(&format!("{kind}.gguf"));
        let exported =
            run(&["export", &at("llama"), "--to", "gguf", "--weights", kind, "--out", &file], "");
        assert!(exported.status.success(), "{}", text(&exported.stderr));
        let imported = run(&["import", &file, "--out", &at(&format!("{kind}-back"))], "");
        assert!(imported.status.success(), "{}", text(&imported.stderr));
    }
    let logits = |out: &str| text(&run(&["logits", &at(out), "--json"], "1 2 3 4\n").stdout);
    assert_eq!(logits("llama"), logits("f32-back"));
    let tokens =
        |out: &str| text(&run(&["generate", &at(out), "the cat", "--temperature", "0"], "").stdout);
    assert_eq!(tokens("llama"), tokens("f32-back"));
    train("polar", "alternate = [{ position = 'polar' }]");
    let exported = run(&["export", &at("polar"), "--to", "onnx", "--out", &at("polar-onnx")], "");
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    assert!(folder.path().join("polar-onnx/model.onnx").is_file());
    for target in ["huggingface", "gguf"] {
        let refused = run(&["export", &at("polar"), "--to", target, "--out", &at("no")], "");
        let message = text(&refused.stderr);
        assert!(message.contains("--to onnx carries every setting"), "{message}");
        assert!(!folder.path().join("no").exists());
    }
    let refused = run(&["export", &at("polar"), "--to", "huggingface", "--out", &at("no")], "");
    assert!(
        text(&refused.stderr).contains("no family of transformers"),
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn a_run_is_quantized_and_says_what_it_costs() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let trained = run(
        &[
            "train",
            "--out",
            &at("run"),
            "--set",
            "steps=3",
            "--set",
            "model.width=32",
            "--set",
            "model.layers=1",
            "--set",
            "training.length=64",
            "--set",
            "training.batch=512",
        ],
        "",
    );
    assert!(trained.status.success(), "{}", text(&trained.stderr));
    let quantized = run(&["quantize", &at("run"), "--out", &at("int8"), "--json"], "");
    assert!(quantized.status.success(), "{}", text(&quantized.stderr));
    let said: serde_json::Value = serde_json::from_slice(&quantized.stdout).unwrap();
    assert!(said["bytes"].as_u64().unwrap() < said["bytes_before"].as_u64().unwrap() / 2);
    let again = run(&["quantize", &at("run"), "--out", &at("int8")], "");
    assert_eq!(again.status.code(), Some(2), "{}", text(&again.stderr));
    let evaluate = |run_: &str, more: &[&str]| {
        let mut arguments = vec!["evaluate", run_, "--batches", "2"];
        arguments.extend(more);
        let evaluated = run(&arguments, "");
        assert!(evaluated.status.success(), "{}", text(&evaluated.stderr));
        text(&evaluated.stdout)
    };
    let said = evaluate(&at("run"), &["--weights", "int8"]);
    let line = said.lines().find(|line| line.starts_with("int8 costs")).unwrap();
    let cost: f64 = line.split(['\t', ' ']).find_map(|word| word.parse().ok()).unwrap();
    assert!(cost.abs() < 0.005 && line.contains("bits per byte"), "{line}");
    let json = |run: &str, more: &[&str]| -> serde_json::Value {
        serde_json::from_str(&evaluate(run, &[more, &["--json"]].concat())).unwrap()
    };
    let (direct, stored) = (json(&at("run"), &["--weights", "int8"]), json(&at("int8"), &[]));
    assert_eq!(direct["loss"], stored["loss"]);
    let exact = json(&at("run"), &[]);
    assert_eq!(direct["f32"]["loss"], exact["loss"]);
    assert!(exact["f32"].is_null() && stored["f32"].is_null());
    assert_ne!(direct["loss"], exact["loss"]);
    for weights in ["f32", "int8"] {
        let written =
            run(&["generate", &at("run"), "a", "--tokens", "5", "--weights", weights], "");
        assert!(written.status.success(), "{}", text(&written.stderr));
    }
    let refused = run(&["generate", &at("run"), "a", "--weights", "int4"], "");
    assert!(text(&refused.stderr).contains("int8"), "{}", text(&refused.stderr));
}

#[test]
fn the_doctor_ends_with_a_code_that_says_whether_all_agrees() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let model = fixture("families/llama").to_str().unwrap().to_owned();
    let golden = fixture("families/llama/golden.safetensors").to_str().unwrap().to_owned();
    let good = run(&["doctor", &model, "--logits", &golden], "");
    assert!(good.status.success(), "{}", text(&good.stderr));
    assert!(text(&good.stdout).contains(": agrees, logits differ by"), "{}", text(&good.stdout));
    let itself = run(&["doctor", &model, "--json"], "");
    assert!(itself.status.success(), "{}", text(&itself.stderr));
    let said: serde_json::Value = serde_json::from_slice(&itself.stdout).unwrap();
    assert_eq!(said["checks"].as_array().unwrap().len(), 4);
    // The logits of the one against the other layout, by lines of JSON with the ids beside them.
    run(&["import", &model, "--out", &at("run")], "");
    let convert = ["convert", &at("run"), "--kv-heads", "4", "--out", &at("more"), "--json"];
    let converted = run(&convert, "");
    assert!(converted.status.success(), "{}", text(&converted.stderr));
    let said: serde_json::Value = serde_json::from_slice(&converted.stdout).unwrap();
    assert_eq!((&said["exact"], &said["loss"]), (&true.into(), &serde_json::Value::Null));
    let ids = "1 2 3 4 5 6 7 8 9 10 11 12\n";
    let logits = run(&["logits", &at("run"), "--json"], ids);
    std::fs::write(at("logits.json"), &logits.stdout).unwrap();
    std::fs::write(at("ids.txt"), ids).unwrap();
    let same =
        run(&["doctor", &at("more"), "--logits", &at("logits.json"), "--ids", &at("ids.txt")], "");
    assert!(same.status.success(), "{}", text(&same.stdout));
    let config = std::fs::read_to_string(at("more/config.toml")).unwrap();
    assert!(config.contains("epsilon = 0.01"), "{config}");
    std::fs::write(at("more/config.toml"), config.replace("epsilon = 0.01", "epsilon = 1e-5"))
        .unwrap();
    let broken =
        run(&["doctor", &at("more"), "--logits", &at("logits.json"), "--ids", &at("ids.txt")], "");
    assert_eq!(broken.status.code(), Some(1));
    let said = text(&broken.stdout);
    assert!(
        said.contains("diagnosis: epsilon\n") && said.contains("1e-2 instead of 1e-5"),
        "{said}"
    );
    let kit = run(&["doctor", "--write-kit", &at("kit"), "--json"], "");
    assert!(kit.status.success(), "{}", text(&kit.stderr));
    assert!(Path::new(&at("kit")).join("kit.safetensors").is_file());
    assert_eq!(run(&["doctor"], "").status.code(), Some(2));
}

#[test]
fn a_conversion_that_is_not_exact_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("text.txt"), "the dog and the cat and the bird\n".repeat(60)).unwrap();
    let data = serde_json::Value::from(at("text.txt"));
    let settings = format!(
        "[data]\nsource = {{ kind = 'text', path = {data} }}\ntokenizer = 'characters'\n[model]\nwidth = 32\nlayers = 2\n\
         [model.attention]\nheads = 4\n[training]\nsteps = 60\nbatch = 4\nlength = 32\nevaluate_batches = 2\n"
    );
    std::fs::write(at("settings.toml"), settings).unwrap();
    let trained = run(&["train", &at("settings.toml"), "--out", &at("run")], "");
    assert!(trained.status.success(), "{}", text(&trained.stderr));
    let loss = |arguments: &[&str], out: &str| -> serde_json::Value {
        let run_folder = at("run");
        let out = at(out);
        let all = [&["convert", &run_folder, "--out", &out, "--json"], arguments].concat();
        let converted = run(&all, "");
        assert!(converted.status.success(), "{}", text(&converted.stderr));
        let asked = run(&["generate", &out, "the ", "--tokens", "3"], "");
        assert!(asked.status.success(), "{}", text(&asked.stderr));
        serde_json::from_slice(&converted.stdout).unwrap()
    };
    for (name, arguments) in [
        ("polar", vec!["--position", "polar", "--recover", "40", "--html", &at("polar.html")]),
        ("pooled", vec!["--kv-heads", "1", "--recover", "40"]),
    ] {
        let said = loss(&arguments, name);
        assert_eq!(said["exact"], false, "{said}");
        let number = |value: &serde_json::Value| value.as_f64().unwrap();
        let (before, after) = (number(&said["loss"]["before"]), number(&said["loss"]["after"]));
        let last = said["loss"]["recovered"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last[0], 40);
        assert!(after > before + 0.05 && number(&last[1]) < after - 0.05, "{name}: {said}");
    }
    let page = std::fs::read_to_string(at("polar.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("not exact"), "{page}");
    let layout = "{ kind = 'rotary', layout = 'interleaved' }";
    let said = loss(&["--position", layout, "--data", &at("text.txt")], "turned");
    assert_eq!(said["exact"], true);
    let (before, after) = (&said["loss"]["before"], &said["loss"]["after"]);
    assert!((before.as_f64().unwrap() - after.as_f64().unwrap()).abs() < 1e-4, "{said}");
    let refused = run(&["convert", &at("run"), "--position", "shaw", "--out", &at("no")], "");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("no path from rotary to shaw; there are: sinusoidal"));
    let again = run(&["convert", &at("run"), "--kv-heads", "2", "--out", &at("polar")], "");
    assert_eq!(again.status.code(), Some(2));
}
