//! What transformers adds to Jinja, which chat templates rely on.

use std::{
    io::{self, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use minijinja::{Environment, Error, ErrorKind, Value, value::Kwargs};
use minijinja_contrib::pycompat;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Adds its functions, its filter and Python's methods.
pub(crate) fn extend(environment: &mut Environment) {
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_unknown_method_callback(pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<Value, _> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |format: String| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        strftime(&format, now.as_secs() as i64)
    });
    environment.add_filter("tojson", to_json);
}

/// A template without the marks of what a model is trained on, which say nothing about its text.
pub(crate) fn without_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else { break };
        let (before, tag, after) =
            (&rest[..start], &rest[start..start + length], &rest[start + length..]);
        let is_around = |letter: char| letter.is_whitespace() || "{%-+".contains(letter);
        out.push_str(before);
        // What trims blanks around them stays.
        match tag.trim_matches(is_around) {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        out.push_str("%}");
        rest = &after[2..];
    }
    out + rest
}

/// JSON as Python writes it, without escapes for HTML.
fn to_json(value: Value, indent: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let indent = options.get::<Option<usize>>("indent")?.or(indent);
    let mut out = Vec::new();
    let written = match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut out, Spaced)),
        Some(blanks) => {
            let blanks = " ".repeat(blanks.min(16));
            let pretty = PrettyFormatter::with_indent(blanks.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, pretty))
        }
    };
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    String::from_utf8(out)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

/// With a blank after each comma and colon.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: Write + ?Sized>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: Write + ?Sized>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// A time in seconds since 1970, UTC, by Python's directives; one that is not known stays as it is.
fn strftime(format: &str, seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let half = (hour + 11) % 12 + 1;
    let (month_name, day_name) =
        (MONTHS[month as usize - 1], DAYS[(days + 4).rem_euclid(7) as usize]);
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let mut directive = letters.next();
        let is_short = directive == Some('-');
        if is_short {
            directive = letters.next();
        }
        let number = |value: i64| if is_short { format!("{value}") } else { format!("{value:02}") };
        match directive {
            Some('Y') => out += &year.to_string(),
            Some('y') => out += &number(year.rem_euclid(100)),
            Some('m') => out += &number(month),
            Some('d') => out += &number(day),
            Some('H') => out += &number(hour),
            Some('I') => out += &number(half),
            Some('M') => out += &number(minute),
            Some('S') => out += &number(second % 60),
            Some('p') => out += if hour < 12 { "AM" } else { "PM" },
            Some('B') => out += month_name,
            Some('b') => out += &month_name[..3],
            Some('A') => out += day_name,
            Some('a') => out += &day_name[..3],
            Some('F') => out += &format!("{year}-{month:02}-{day:02}"),
            Some('T') => out += &format!("{hour:02}:{minute:02}:{:02}", second % 60),
            Some('%') => out.push('%'),
            other => {
                out += if is_short { "%-" } else { "%" };
                out.extend(other);
            }
        }
    }
    out
}

/// Year, month and day of a day since 1970. Hinnant, <https://howardhinnant.github.io/date_algorithms.html>.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    fn rendered(source: &str) -> Result<String, String> {
        let mut environment = Environment::new();
        extend(&mut environment);
        let source = without_marks(source);
        let value = serde_json::json!([{ "content": "<é> \"a\"", "list": [1, 2.5, null, true] }]);
        let all = context! { all => Value::from_serialize(&value) };
        environment.render_str(&source, all).map_err(|error| error.to_string())
    }

    #[test]
    fn dates_are_pythons() {
        for (format, seconds, expected) in [
            ("%d %b %Y", 1_721_952_000, "26 Jul 2024"),
            ("%A, %B %-d, %Y", 951_782_400, "Tuesday, February 29, 2000"),
            ("%F %T %I%p %a %y", 1_735_689_599, "2024-12-31 23:59:59 11PM Tue 24"),
            ("%-H:%M %% %Z %", 0, "0:00 % %Z %"),
            ("%Y-%m-%d", -1, "1969-12-31"),
        ] {
            assert_eq!(strftime(format, seconds), expected);
        }
        assert_eq!(rendered("{{ strftime_now('%Y') | length }}").unwrap(), "4");
    }

    #[test]
    fn json_is_pythons() {
        assert_eq!(
            rendered("{{ all | tojson }}").unwrap(),
            r#"[{"content": "<é> \"a\"", "list": [1, 2.5, null, true]}]"#
        );
        assert_eq!(
            rendered("{{ all[0].list[:2] | tojson(indent=2) }}").unwrap(),
            "[\n  1,\n  2.5\n]"
        );
        assert_eq!(rendered("{{ {} | tojson(ensure_ascii=False) }}").unwrap(), "{}");
    }

    #[test]
    fn marks_of_what_is_trained_on_leave_the_text() {
        let marked = "{% for one in all %} {%- generation -%}  {{ one.list[0] }} {% endgeneration %}x{% endfor %}";
        assert_eq!(rendered(marked).unwrap(), "1 x");
        for other in ["{{ 'generation' }}", "{% if true %}generation{% endif %}", "{%", "{% x"] {
            assert_eq!(without_marks(other), other);
        }
    }
}
