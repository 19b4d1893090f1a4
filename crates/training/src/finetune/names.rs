//! Parameters by patterns of their names.

use crate::Error;

/// Whether a name fits a pattern, in which `*` stands for any letters, none included.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        // The part before this one may lie anywhere; this one perhaps at the end.
        if let Some(part) = last.replace(part) {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
    }
    match last {
        Some(end) => rest.ends_with(end),
        None => rest.is_empty(),
    }
}

/// Whether a name fits any of the patterns.
pub(crate) fn fits_any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| fits(pattern, name))
}

/// Refuses a pattern of this setting that fits no name.
pub(crate) fn check(
    setting: &'static str,
    patterns: &[String],
    names: &[&str],
) -> Result<(), Error> {
    match patterns.iter().find(|pattern| !names.iter().any(|name| fits(pattern, name))) {
        None => Ok(()),
        Some(pattern) => {
            let example = names.first().copied().unwrap_or_default();
            let reason = format!(
                "fits no parameter; names are such as {example}, and * stands for any letters"
            );
            Err(whatwhere_settings::Refuses::setting(setting, format!("{pattern:?}"), reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_letters() {
        for (pattern, name, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a.b.c", false),
            ("a.*", "a.b.c", true),
            ("*", "", true),
            ("*.weight", "a.weight", true),
            ("*.weight", "a.weight.b", false),
            ("a*b*c", "a12b3c", true),
            ("a*b*c", "a12c3b", false),
            ("ab*b", "ab", false),
            ("*a*a", "aa", true),
            ("*a*a", "a", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_that_fits_nothing_is_named() {
        let patterns = ["a.*".into(), "x.*".into()];
        let error = check("training.freeze", &patterns, &["a.b"]).unwrap_err().to_string();
        assert!(error.contains("training.freeze = \"x.*\"") && error.contains("a.b"), "{error}");
    }
}
