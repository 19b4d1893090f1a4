//! How tests start the command, in a folder of their own, and what they ask of it.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    path::Path,
    process::{Command, Output},
};

/// The command with `args`, to be started in `folder`.
pub(crate) fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whatwhere"));
    command.args(args).current_dir(folder);
    command
}

/// What the command has made of `args`, well or not.
pub(crate) fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().expect("the command starts")
}

/// Standard output and standard error of a command that must succeed.
pub(crate) fn works(folder: &Path, args: &[&str]) -> (String, String) {
    let output = run(folder, args);
    let error = text(&output.stderr).to_owned();
    assert!(output.status.success(), "{args:?}: {error}");
    (text(&output.stdout).to_owned(), error)
}

/// Standard output of a command that must succeed.
pub(crate) fn out(folder: &Path, args: &[&str]) -> String {
    works(folder, args).0
}

/// Standard error of a command that must fail without a word on standard output, and its code.
pub(crate) fn refused(folder: &Path, args: &[&str]) -> (String, Option<i32>) {
    let output = run(folder, args);
    assert!(!output.status.success(), "{args:?} must fail");
    assert!(output.stdout.is_empty(), "{args:?}: stdout is data");
    (text(&output.stderr).to_owned(), output.status.code())
}

/// Standard error of a command that must fail without a word on standard output.
pub(crate) fn refusal(folder: &Path, args: &[&str]) -> String {
    refused(folder, args).0
}

/// What the command writes.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command writes UTF-8")
}
