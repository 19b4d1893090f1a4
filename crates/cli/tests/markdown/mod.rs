//! Markdown with one sentence per line, so that a change to a sentence is a change to a line.

/// Words that end in a full stop inside a sentence.
const ABBREVIATIONS: [&str; 10] =
    ["e.g", "i.e", "al", "cf", "vs", "etc", "approx", "Fig", "Eq", "No"];

/// Breaks lines of prose after each sentence; headings, tables and code stay as they are.
pub(crate) fn one_sentence_per_line(text: &str) -> String {
    let mut out = String::new();
    let mut in_code = false;
    for line in text.lines() {
        let start = line.trim_start();
        let is_fence = start.starts_with("```");
        in_code ^= is_fence;
        if in_code || is_fence || start.starts_with(['|', '#', '<']) {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let (prefix, body) = line.split_at(line.len() - start.len() + marker(start));
        let indent: String = prefix.chars().map(|c| if c == '>' { '>' } else { ' ' }).collect();
        for (i, sentence) in sentences(body).into_iter().enumerate() {
            out.push_str(if i == 0 { prefix } else { &indent });
            out.push_str(sentence);
            out.push('\n');
        }
    }
    out
}

/// The length of a list's or quotation's mark at the start of a line.
fn marker(line: &str) -> usize {
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    match line {
        _ if digits > 0 && line[digits..].starts_with(". ") => digits + 2,
        _ if line.starts_with("- ") || line.starts_with("* ") || line.starts_with("> ") => 2,
        _ => 0,
    }
}

fn sentences(body: &str) -> Vec<&str> {
    let (mut found, mut begin, mut in_code) = (Vec::new(), 0, false);
    for (at, c) in body.char_indices() {
        in_code ^= c == '`';
        if c == ' ' && !in_code && begin < at && ends(&body[begin..at]) && starts(&body[at + 1..]) {
            found.push(&body[begin..at]);
            begin = at + 1;
        }
    }
    found.push(&body[begin..]);
    found
}

fn ends(text: &str) -> bool {
    let text = text.trim_end_matches(['*', '_', ')', '"', '\'', ']', '`', '”']);
    let Some(rest) = text.strip_suffix(['.', '!', '?']) else { return false };
    let word = rest.rsplit([' ', '(', '*', '[']).next().unwrap_or("");
    !word.is_empty() && !ABBREVIATIONS.contains(&word)
}

fn starts(text: &str) -> bool {
    let text = text.trim_start_matches(['*', '_', '(', '"', '[', '“']);
    text.starts_with(|c: char| c.is_uppercase() || c == '`')
}

/// Where links and pictures lead, those in code left out.
pub(crate) fn links(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    let prose = text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    });
    prose.flat_map(|line| {
        let ends = line.match_indices("](").filter_map(|(at, _)| {
            let is_code = line[..at].matches('`').count() % 2 == 1;
            let link = line[at + 2..].split(')').next()?;
            (!is_code).then_some(link)
        });
        ends.collect::<Vec<_>>()
    })
}

#[test]
fn sentences_are_told_from_abbreviations_code_and_tables() {
    let cases = [
        ("One. Two! Three? Four.", "One.\nTwo!\nThree?\nFour."),
        (
            "- **Bold.** Then `a. B` and 3.5 more. `End`.",
            "- **Bold.**\n  Then `a. B` and 3.5 more.\n  `End`.",
        ),
        ("1. First. Second.", "1. First.\n   Second."),
        ("Shaw et al. 2018, e.g. Fig. A, is one.", "Shaw et al. 2018, e.g. Fig. A, is one."),
        ("| a. B | c |", "| a. B | c |"),
        ("> Quoted. Twice.", "> Quoted.\n> Twice."),
        ("```\na. B\n```\n# A. B", "```\na. B\n```\n# A. B"),
    ];
    for (text, right) in cases {
        assert_eq!(one_sentence_per_line(text).trim_end(), right);
        assert_eq!(one_sentence_per_line(right).trim_end(), right, "nothing left to break");
    }
}

#[test]
fn links_are_told_from_code() {
    let text =
        "[a](b.md) ![`c`](d/e.svg#f) `x[0](1)` [g](https://h)\n```\nlet a = b[i](j);\n```\n[k](l)";
    assert_eq!(links(text).collect::<Vec<_>>(), ["b.md", "d/e.svg#f", "https://h", "l"]);
}
