//! Settings that come with the program: the files of `configs/`.

/// Settings with a name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// What it is called.
    pub name: &'static str,
    /// Its TOML, with comments.
    pub text: &'static str,
}

impl Preset {
    /// The first line of its comments.
    pub fn about(&self) -> &'static str {
        self.text.lines().next().unwrap_or("").trim_start_matches(['#', ' '])
    }
}

/// The preset of a name.
pub fn find(name: &str) -> Option<&'static Preset> {
    ALL.iter().find(|preset| preset.name == name)
}

/// The TOML of a preset that there is; asked for in a constant, a wrong name does not compile.
///
/// # Panics
/// If no preset has this name.
pub const fn text(name: &str) -> &'static str {
    let mut index = 0;
    while index < ALL.len() {
        if are_equal(ALL[index].name.as_bytes(), name.as_bytes()) {
            return ALL[index].text;
        }
        index += 1;
    }
    panic!("no preset has this name")
}

const fn are_equal(a: &[u8], b: &[u8]) -> bool {
    let mut index = 0;
    while index < a.len() && index < b.len() && a[index] == b[index] {
        index += 1;
    }
    index == a.len() && index == b.len()
}

macro_rules! presets {
    ($($name:literal,)*) => {
        /// Every preset.
        pub const ALL: &[Preset] = &[$(
            Preset { name: $name, text: include_str!(concat!("../configs/", $name, ".toml")) },
        )*];
    };
}

presets! {
    "tiny",
    "shakespeare",
    "translation",
    "recurrent",
    "masked",
    "classify",
    "listops",
    "music",
    "piano",
    "genome",
    "long",
    "tasks",
    "pathfinder",
    "compare-text",
    "compare-indexing",
    "transformer-base",
    "pope-indirect",
    "pope-jsb",
    "pope-maestro",
    "pope-genome",
    "pope-124m",
    "pope-253m",
    "pope-774m",
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::RunSettings;

    #[test]
    fn every_preset_reads_and_says_what_it_is() {
        for preset in ALL {
            assert!(!preset.about().is_empty(), "{}", preset.name);
            assert_eq!(text(preset.name), preset.text);
            let settings = RunSettings::read(preset.text, &[]);
            assert!(settings.is_ok(), "{}: {}", preset.name, settings.unwrap_err());
        }
    }

    #[test]
    fn every_file_of_configs_is_a_preset() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/configs");
        for file in fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(find(&name).is_some(), "{name} is in configs/ but not a preset");
        }
    }
}
