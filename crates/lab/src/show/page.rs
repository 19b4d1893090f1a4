//! A page of pictures, and the folder it is saved to.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use whatwhere_files as files;

use crate::{
    Error,
    chart::{self, escape, inline},
};

/// Pictures with words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// What it shows.
    pub title: String,
    /// Paragraphs below the title: what was drawn of what.
    pub words: Vec<String>,
    /// The text that was read, in full; none if empty.
    pub text: String,
    /// From the top.
    pub sections: Vec<Section>,
}

/// A part of a page under its own heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// What it shows.
    pub heading: String,
    /// Paragraphs before the pictures.
    pub words: Vec<String>,
    /// The pictures.
    pub pictures: Vec<Picture>,
    /// Whether pictures are small ones, to be compared side by side.
    pub side_by_side: bool,
    /// Rows of a table, the first of them its head; none if empty.
    pub table: Vec<Vec<String>>,
}

/// A chart with its name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// Its file's name without the ending.
    pub name: String,
    /// The `<svg>` element.
    pub svg: String,
    /// How to read it.
    pub caption: String,
}

impl Picture {
    /// A chart with its name and a sentence on how to read it.
    pub fn new(name: impl Into<String>, svg: String, caption: impl Into<String>) -> Self {
        Self { name: name.into(), svg, caption: caption.into() }
    }
}

impl Page {
    /// The page as HTML that needs nothing else.
    pub fn html(&self) -> String {
        let mut body = format!("<h1>{}</h1>\n", escape(&self.title));
        body.extend(self.words.iter().map(|words| format!("<p>{}</p>\n", inline(words))));
        if !self.text.is_empty() {
            body += &format!("<blockquote>{}</blockquote>\n", escape(&self.text));
        }
        for section in &self.sections {
            section.write(&mut body);
        }
        chart::page(&self.title, &body)
    }

    /// Writes `index.html` and an SVG for each picture into a folder, which is made if need be. Returns their paths, the page
    /// first. Every file is replaced whole or not at all.
    pub fn save(&self, folder: &Path) -> Result<Vec<PathBuf>, Error> {
        fs::create_dir_all(folder).map_err(|found| {
            Error::Request(format!("{} could not be made: {found}", folder.display()))
        })?;
        let pictures = self.sections.iter().flat_map(|section| &section.pictures);
        let svgs = pictures
            .map(|picture| (format!("{}.svg", picture.name), chart::standalone(&picture.svg)));
        let mut paths = Vec::new();
        for (name, text) in [("index.html".to_owned(), self.html())].into_iter().chain(svgs) {
            let path = folder.join(name);
            files::replace(&path, |out| out.write_all(text.as_bytes()))?;
            paths.push(path);
        }
        Ok(paths)
    }
}

impl Section {
    fn write(&self, body: &mut String) {
        body.push_str(&format!("<h2>{}</h2>\n", escape(&self.heading)));
        for words in &self.words {
            body.push_str(&format!("<p>{}</p>\n", inline(words)));
        }
        if self.side_by_side {
            body.push_str("<div class=\"panels\">\n");
        }
        for picture in &self.pictures {
            let caption = match picture.caption.as_str() {
                "" => String::new(),
                caption => format!("<figcaption>{}</figcaption>", escape(caption)),
            };
            body.push_str(&format!("<figure>{}{caption}</figure>\n", picture.svg));
        }
        if self.side_by_side {
            body.push_str("</div>\n");
        }
        if let Some((head, rows)) = self.table.split_first() {
            // Numbers stand below each other, words begin at the left.
            let is_number =
                |cell: &String| cell.trim_end_matches([' ', '%']).parse::<f64>().is_ok();
            let words: Vec<bool> = (0..head.len())
                .map(|i| rows.first().and_then(|row| row.get(i)).is_some_and(|c| !is_number(c)))
                .collect();
            let line = |cells: &[String], tag: &str| {
                let cell = |(i, cell): (usize, &String)| {
                    let class = if words.get(i) == Some(&true) { " class=\"words\"" } else { "" };
                    format!("<{tag}{class}>{}</{tag}>", escape(cell))
                };
                let cells: String = cells.iter().enumerate().map(cell).collect();
                format!("<tr>{cells}</tr>\n")
            };
            let rows: String = rows.iter().map(|row| line(row, "td")).collect();
            let head = line(head, "th");
            body.push_str(&format!(
                "<div class=\"scroll\"><table>\n<thead>{head}</thead>\n<tbody>{rows}</tbody>\n</table></div>\n"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_saved_with_every_picture() {
        let svg = chart::Bars { title: "a & b".into(), ..Default::default() }.svg();
        let section = Section {
            heading: "1 < 2".into(),
            words: vec!["words".into()],
            pictures: vec![Picture::new("bars", svg.clone(), "how to read it")],
            table: vec![vec!["x".into()], vec!["<1>".into()]],
            ..Default::default()
        };
        let words = vec!["of `this`".into()];
        let text = "a `b` <c>".into();
        let page = Page { title: "page".into(), words, text, sections: vec![section] };
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("made/here");
        let paths = page.save(&out).unwrap();
        assert_eq!(paths, [out.join("index.html"), out.join("bars.svg")]);
        let html = fs::read_to_string(&paths[0]).unwrap();
        for part in [
            svg.as_str(),
            "of <code>this</code>",
            "<blockquote>a `b` &lt;c&gt;</blockquote>",
            "1 &lt; 2",
            "<td class=\"words\">&lt;1&gt;</td>",
            "how to read it",
        ] {
            assert!(html.contains(part), "{part}");
        }
        fs::write(folder.path().join("file"), "").unwrap();
        let error = page.save(&folder.path().join("file")).unwrap_err().to_string();
        assert!(error.contains("file could not be made"), "{error}");
    }
}
