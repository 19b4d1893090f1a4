//! The command as people and scripts meet it: words, exit codes, files.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Output, Stdio, id},
};

const SMALL: [&str; 7] = ["tour", "--length", "16", "--heads", "2", "--head-dim", "4"];

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

/// A fresh folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("whatwhere-{name}-{}", id()));
    fs::create_dir_all(&folder).expect("the temporary folder is writable");
    folder
}

#[test]
fn help_is_what_was_agreed() {
    for flag in ["-h", "--help"] {
        assert_eq!(text(&run(&[flag]).stdout), include_str!("help.txt"));
    }
}

#[test]
fn the_table_goes_to_stdout_and_nothing_to_a_stderr_that_is_no_terminal() {
    let output = run(&SMALL);
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
    let table = text(&output.stdout);
    for word in ["scaled_dot", "big_bird", "transformer_xl", "tokens/s", "grad err"] {
        assert!(table.contains(word), "{word} in {table}");
    }
    assert!(!table.contains('\x1b'), "no colour outside a terminal");
}

#[test]
fn wrong_arguments_are_refused_with_a_hint_and_code_2() {
    let cases: [(&[&str], &str); 6] = [
        (
            &["tour", "--length", "0"],
            "error: --length 0 is outside 1 to 8192\nhint: try --length 1024\n",
        ),
        (&["tour", "--heads", "65"], "error: --heads 65 is outside 1 to 64\nhint: try --heads 8\n"),
        (&["tour", "--head-dim", "7"], "try --head-dim 8"),
        (&["tour", "--length", "long"], "invalid value 'long'"),
        (&["tour", "--lenght", "9"], "--length"),
        (&["picture", "choices.png"], "hint: try choices.svg"),
    ];
    for (args, words) in cases {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(words), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = command(&SMALL).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn the_picture_replaces_its_file_and_leaves_nothing_else() {
    let folder = folder("picture");
    let path = folder.join("choices.svg");
    fs::write(&path, "old").unwrap();
    let output = run(&["picture", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read_to_string(&path).unwrap().starts_with("<svg "));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_missing_folder_is_named_and_a_taken_path_leaves_no_temporary_file() {
    let folder = folder("missing");
    let taken = folder.join("taken.svg");
    fs::create_dir(&taken).unwrap();
    for (path, words) in [(folder.join("no/choices.svg"), "is not a folder"), (taken, "taken.svg")]
    {
        let output = run(&["picture", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    fs::remove_dir_all(folder).unwrap();
}
