//! What a question says besides its word: names and values, as in a query string.

use std::{fmt::Display, ops::Range, str::FromStr};

use whatwhere_transformer::Site;

use crate::Error;

/// Names with values, in the order given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// The values of these names; a name may come several times.
    pub fn new<N: Into<String>, V: Into<String>>(all: impl IntoIterator<Item = (N, V)>) -> Self {
        Self(all.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// As they stand in a query string, where nothing needs to be escaped.
    pub(super) fn query(&self) -> String {
        let pairs = self.0.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join("&")
    }

    /// Refuses names that the question does not know.
    pub(super) fn known(&self, names: &[&str]) -> Result<(), Error> {
        match self.0.iter().find(|(name, _)| !names.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) if names.is_empty() => {
                Err(Error::Request(format!("found {name}, expected no parameters")))
            }
            Some((name, _)) => {
                let names = names.join(", ");
                Err(Error::Request(format!("no parameter is called {name}; there are {names}")))
            }
        }
    }

    /// The last value of a name.
    pub(super) fn word(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Every value of a name.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let of_name = self.0.iter().filter(|(found, _)| found == name);
        of_name.map(|(_, value)| value.clone()).collect()
    }

    /// A value that must be there.
    pub(super) fn needed(&self, name: &str) -> Result<&str, Error> {
        self.word(name).ok_or_else(|| Error::Request(format!("{name} is missing")))
    }

    /// A whole number in a range that must be there.
    pub(super) fn index(&self, name: &str, range: Range<usize>) -> Result<usize, Error> {
        number(name, self.needed(name)?, range)
    }

    /// A whole number in a range, or what it is without.
    pub(super) fn index_or(
        &self,
        name: &str,
        range: Range<usize>,
        without: usize,
    ) -> Result<usize, Error> {
        self.word(name).map_or(Ok(without), |text| number(name, text, range))
    }

    /// A number that is not checked further, or what it is without.
    pub(super) fn value_or<T: FromStr>(&self, name: &str, without: T) -> Result<T, Error> {
        let Some(text) = self.word(name) else { return Ok(without) };
        text.parse().map_err(|_| Error::Request(format!("{name} = {text}: expected a number")))
    }

    /// Where an attention stands.
    pub(super) fn site(&self) -> Result<Site, Error> {
        let name = self.needed("site")?;
        let sites = [Site::Encoder, Site::Decoder, Site::Cross];
        sites.into_iter().find(|site| word_of(*site) == name).ok_or_else(|| {
            Error::Request(format!("site = {name}: expected encoder, decoder or cross"))
        })
    }

    /// Numbers and ranges with both ends, `3,7,10-12`, ascending and each once; at most so many, each below `end`.
    pub(super) fn list(&self, name: &str, end: usize, most: usize) -> Result<Vec<usize>, Error> {
        let text = self.needed(name)?;
        let mut found = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(name, first, 0..end)?, number(name, last, 0..end)?);
            if last < first || found.len() + (last - first) >= most {
                let what = format!("at most {most} numbers or ranges such as 3,7,10-12");
                return Err(Error::Request(format!("{name} = {part}: expected {what}")));
            }
            found.extend(first..=last);
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

fn number(name: &str, text: &str, range: Range<usize>) -> Result<usize, Error> {
    let wrong =
        |expected: &dyn Display| Error::Request(format!("{name} = {text}: expected {expected}"));
    let last = range.end.saturating_sub(1);
    let bounds = format!("{} to {last}", range.start);
    text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| wrong(&bounds))
}

/// A site as questions call it.
pub(super) fn word_of(site: Site) -> &'static str {
    match site {
        Site::Encoder => "encoder",
        Site::Decoder => "decoder",
        Site::Cross => "cross",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        let given = Parameters::new([("at", "3,7,10-12,7"), ("head", "4"), ("site", "here")]);
        assert_eq!(given.list("at", 13, 9).unwrap(), [3, 7, 10, 11, 12]);
        let refused = |found: Result<usize, Error>| found.unwrap_err().to_string();
        let list = |end, most| given.list("at", end, most).map(|all| all.len());
        assert!(refused(list(12, 9)).contains("at = 12: expected 0 to 11"));
        assert!(refused(list(13, 4)).contains("expected at most 4"));
        assert!(refused(given.index("head", 0..4)).contains("head = 4: expected 0 to 3"));
        assert!(refused(given.index("layer", 0..4)).contains("layer is missing"));
        assert!(refused(given.site().map(|_| 0)).contains("expected encoder, decoder or cross"));
        assert!(refused(given.known(&["at"]).map(|()| 0)).contains("called head; there are at"));
        assert!(given.known(&["at", "head", "site"]).is_ok());
    }
}
