//! The command as people and scripts meet it: words, exit codes, files.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whatwhere"));
    command.args(args);
    command
}

fn run(args: &[&str]) -> Output {
    command(args).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command writes UTF-8")
}

#[test]
fn help_is_what_was_agreed() {
    for flag in ["-h", "--help"] {
        assert_eq!(text(&run(&[flag]).stdout), include_str!("help.txt"));
    }
}

#[test]
fn the_list_goes_to_stdout_and_nothing_to_a_stderr_that_is_no_terminal() {
    let output = run(&["config", "--choices"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
    let list = text(&output.stdout);
    for word in ["scaled_dot", "strided", "transformer_xl", "rotary"] {
        assert!(list.contains(word), "{word} in {list}");
    }
    assert!(!list.contains('\x1b'), "no color outside a terminal");
}

#[test]
fn wrong_arguments_are_refused_with_a_hint_and_code_2() {
    let cases: [(&[&str], &str); 4] = [
        (
            &["show", "position", "--length", "0"],
            "error: --length 0 is outside 1 to 65536\nhint: try --length 256\n",
        ),
        (&["show", "position", "--length", "long"], "invalid value 'long'"),
        (&["show", "position", "--lenght", "9"], "--length"),
        (&["shwo"], "'show'"),
    ];
    for (args, words) in cases {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(words), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
    }
}

#[cfg(not(feature = "serve"))]
#[test]
fn a_build_without_the_server_names_the_feature() {
    let output = run(&["serve", "somewhere", "--port", "1"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("cannot serve 1 run on 127.0.0.1:1"), "{said}");
    assert!(said.contains("--features serve"), "{said}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut command = command(&["config", "--choices"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn pictures_replace_their_files_and_leave_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overview.svg");
    fs::write(&path, "old").unwrap();
    let output = run(&["show", "overview", "--out", folder.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read_to_string(&path).unwrap().starts_with("<svg "));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "the picture and its page");
}

#[test]
fn a_file_in_place_of_the_folder_is_named_and_a_taken_path_leaves_no_temporary_file() {
    let folder = tempfile::tempdir().unwrap();
    let (file, taken) = (folder.path().join("file"), folder.path().join("taken"));
    fs::write(&file, "").unwrap();
    fs::create_dir_all(taken.join("index.html")).unwrap();
    for (path, words) in [(file.join("no"), "could not be made"), (taken.clone(), "index.html")] {
        let output = run(&["show", "overview", "--out", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
    assert_eq!(fs::read_dir(&taken).unwrap().count(), 1);
}

/// The picture of the README is the one that `whatwhere show overview` draws; WHATWHERE_WRITE=1 writes it again.
#[test]
fn the_picture_of_the_readme_is_the_one_that_show_draws() {
    const APART: f64 = 0.05; // of a pixel: mathematical functions differ in the last digit between machines
    let folder = tempfile::tempdir().unwrap();
    assert!(run(&["show", "overview", "--out", folder.path().to_str().unwrap()]).status.success());
    let drawn = fs::read_to_string(folder.path().join("overview.svg")).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/overview.svg");
    if std::env::var_os("WHATWHERE_WRITE").is_some() {
        fs::write(path, &drawn).unwrap();
    }
    let kept = fs::read_to_string(path).unwrap();
    let [drawn, kept] = [&drawn, &kept].map(|text| words(text));
    assert_eq!(
        drawn.len(),
        kept.len(),
        "run WHATWHERE_WRITE=1 cargo test --release --test command"
    );
    for (drawn, kept) in drawn.iter().zip(&kept) {
        let alike = match (drawn.parse::<f64>(), kept.parse::<f64>()) {
            (Ok(drawn), Ok(kept)) => (drawn - kept).abs() <= APART,
            _ => drawn == kept,
        };
        assert!(alike, "found {kept}, drawn {drawn}");
    }
}

/// Numbers, and what stands between them.
fn words(text: &str) -> Vec<&str> {
    let is_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    let parts = text.as_bytes().chunk_by(|a, b| is_number(a) == is_number(b));
    parts.map(|part| std::str::from_utf8(part).expect("cut at ASCII")).collect()
}
