//! Signals sent to a process of its own: this test, started again.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use whatwhere_training::interrupt::{EXIT_CODE, Interrupt};

#[test]
fn the_first_signal_asks_and_the_second_ends() {
    for signal in ["-INT", "-TERM"] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "run", "--ignored", "--nocapture"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        wait_for(&mut out, "listening");
        send(signal, &child);
        wait_for(&mut out, "asked to stop");
        assert!(child.try_wait().unwrap().is_none(), "{signal} ended the process at once");
        send(signal, &child);
        assert_eq!(child.wait().unwrap().code(), Some(EXIT_CODE), "{signal}");
    }
}

/// The process that is interrupted.
#[test]
#[ignore = "started by the other test"]
fn run() {
    let interrupt = Interrupt::new().unwrap();
    println!("\nlistening");
    while !interrupt.requested() {
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("\nasked to stop");
    // Long enough for the second signal, short enough not to outlive a test that failed.
    std::thread::sleep(Duration::from_secs(20));
}

fn wait_for(out: &mut BufReader<ChildStdout>, text: &str) {
    let mut line = String::new();
    while line.trim() != text {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "ended before {text:?}");
    }
}

fn send(signal: &str, child: &Child) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}
