//! `whatwhere view` as people meet it: a run and a text in, one file out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;

use tempfile::TempDir;

use common::run;

fn trained() -> TempDir {
    let folder = TempDir::new().unwrap();
    let text = "what a token looks at, and where it stands\n".repeat(20);
    fs::write(folder.path().join("text.txt"), text).unwrap();
    let settings = [
        "model.width=16",
        "model.layers=1",
        "model.attention.heads=2",
        "training.steps=3",
        "training.length=24",
        "training.evaluate_batches=1",
        "model.attention.position=rotary",
    ];
    let mut args = vec!["train", "--preset", "tiny", "--data", "text.txt", "--out", "run"];
    args.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    assert!(run(folder.path(), &args).status.success());
    folder
}

#[test]
fn a_page_has_everything_inside() {
    let folder = trained();
    let text = "what <b>and</b> where </script>";
    let args = ["view", "run", "--text", text, "--first", "1000", "--set", "position.base=500"];
    let args: Vec<&str> =
        args.into_iter().chain(["--beside", "run", "--save", "out/page.html", "--json"]).collect();
    let made = run(folder.path(), &args);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let said: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    let page = fs::read_to_string(folder.path().join("out/page.html")).unwrap();
    assert_eq!(said["bytes"], page.len());
    assert_eq!(page.matches("</script>").count(), 2, "the text ends no element");
    for outside in ["src=", "<link rel=\"stylesheet\"", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    let data = page.split("application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let readings = data["readings"].as_array().unwrap();
    assert_eq!(readings.len(), 3);
    assert_eq!(readings[0]["opening"]["text"], text);
    assert_eq!(readings[1]["opening"]["first"], 1000);
    for answer in ["about", "surprise?from=0&to=31", "layer?site=decoder&layer=0&cells=48"] {
        assert!(readings[2]["answers"][answer].is_string(), "{answer}");
    }
    assert!(data["choices"]["position?name=rotary"].is_string());
}

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    let folder = trained();
    let cases: [(&[&str], &str, i32); 6] = [
        (
            &["run", "--text", "a", "--module", "text.txt", "--save", "a.html"],
            "--module text.txt: expected the packed module",
            1,
        ),
        (&["run", "--text", "a"], "--save", 2),
        (&["run", "--save", "a.html"], "--text", 2),
        (&["nowhere", "--text", "a", "--save", "a.html"], "nowhere holds no run", 1),
        (&["run", "--text", "", "--save", "a.html"], "the text has no tokens", 1),
        (
            &["run", "--text", "a", "--set", "model.width=8", "--save", "a.html"],
            "the settings ask for",
            1,
        ),
    ];
    for (args, expected, code) in cases {
        let args: Vec<&str> = ["view"].into_iter().chain(args.iter().copied()).collect();
        let output = run(folder.path(), &args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(expected), "{args:?}: {error}");
        assert_eq!(output.status.code(), Some(code), "{args:?}");
    }
    assert!(!folder.path().join("a.html").exists(), "nothing is written");
}
