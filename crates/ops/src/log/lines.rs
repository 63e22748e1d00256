//! The format of log lines. An empty field (`reason=`) is left out, in text and in JSON.

use crate::log::limit::LeftOut;
use callbridge_model::{is_hostile, safe, safe_json};
use serde_json::{Map, Value};
use std::fmt::{self, Debug, Write as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::{field::RecordFields, fmt::FmtContext, registry::LookupSpan};

/// The field that holds the line's text. All other fields are written with their names.
const MESSAGE: &str = "message";

/// Fields of a text line: `message name=value …`. No value can look like several fields.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TextFields;

impl<'w> FormatFields<'w> for TextFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut said = LineFields::default();
        fields.record(&mut said);
        let (dim, plain) = if writer.has_ansi_escapes() {
            ("\x1b[2m", "\x1b[0m")
        } else {
            ("", "")
        };
        for (at, (name, value)) in said.0.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            let text = match value {
                Value::String(text) if *name == MESSAGE => safe(text),
                // The end of a value must be visible, and no value can look like a field or a line.
                Value::String(text) if is_quoted(text) => format!("{text:?}"),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            match *name {
                MESSAGE => write!(writer, "{space}{text}")?,
                name => write!(writer, "{space}{dim}{name}={plain}{text}")?,
            }
        }
        Ok(())
    }
}

/// A line of JSON: `{"timestamp", "level", "message", …}`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JsonLine;

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut said = LineFields::default();
        event.record(&mut said);
        let mut line = Map::new();
        line.insert("timestamp".to_owned(), now_text().into());
        line.insert("level".to_owned(), event.metadata().level().as_str().into());
        let said = said.0.into_iter();
        line.extend(said.map(|(name, value)| (name.to_owned(), value)));
        writeln!(writer, "{}", safe_json(&Value::Object(line).to_string()))
    }
}

/// Returns `true` if the value is ambiguous without quotes.
fn is_quoted(text: &str) -> bool {
    text.contains(|c: char| is_hostile(c) || c.is_whitespace() || matches!(c, '"' | '=' | '\\'))
}

/// The text of a line about lost lines. Their number is a field of the line.
const LOST: &str = "lines of the log are lost: stderr did not accept them";

fn now_text() -> String {
    let mut at = String::new();
    // Writing into a String does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut at));
    at
}

/// Makes a line about lost lines.
pub(super) fn lost_line(json: bool, lines: u64) -> String {
    own_line(json, Level::WARN, LOST, &[("lines", lines.into())])
}

/// The text of a line about too many lines of one kind. Their number is a field of the line.
const LEFT_OUT: &str = "more than ten lines of one kind in a second: the rest are left out";

/// Makes a line about left-out lines.
pub(super) fn left_out_line(json: bool, left_out: &LeftOut) -> String {
    let kind = left_out.message.as_str().into();
    let fields = [("kind", kind), ("lines", left_out.lines.into())];
    own_line(json, left_out.level, LEFT_OUT, &fields)
}

/// Makes a line that the log writes about itself, such as about lost lines.
fn own_line(json: bool, level: Level, message: &str, fields: &[(&str, Value)]) -> String {
    let now = now_text();
    if json {
        let mut line = serde_json::json!({
            "timestamp": now, "level": level.as_str(), "message": message,
        });
        for (name, value) in fields {
            line[name] = value.clone();
        }
        return format!("{line}\n");
    }
    let fields = fields.iter().map(|(name, value)| match value {
        Value::String(text) => format!(" {name}={text:?}"),
        other => format!(" {name}={other}"),
    });
    format!("{now} {level:>5} {message}{}\n", fields.collect::<String>())
}

/// The fields of an event that are not empty, in their order, with the message first.
#[derive(Debug, Default)]
struct LineFields(Vec<(&'static str, Value)>);

impl LineFields {
    fn add(&mut self, field: &Field, value: Value) {
        let name = field.name().trim_start_matches("r#");
        let empty = matches!(&value, Value::String(text) if text.is_empty());
        if empty {
            return;
        }
        match name {
            MESSAGE => self.0.insert(0, (MESSAGE, value)),
            name => self.0.push((name, value)),
        }
    }
}

impl Visit for LineFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // A value that cannot be written is shown up to the error.
        let _ = write!(text, "{value:?}");
        self.add(field, text.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::fmt::MakeWriter;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("ours alone").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Paper {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    fn log_line() {
        let (reason, nothing): (&str, Option<u64>) = ("", None);
        tracing::info!(
            source = "ami://x", reason, trunk = %"", id = 7, nothing, ok = true,
            words = "two words", odd = "\u{1b}[2J", "done"
        );
    }

    fn written_text(paper: &Paper) -> String {
        String::from_utf8(paper.0.lock().expect("ours alone").clone()).expect("text")
    }

    #[test]
    fn empty_fields_are_omitted_from_a_text_line() {
        let paper = Paper::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(paper.clone())
            .with_target(false)
            .with_ansi(false)
            .fmt_fields(TextFields)
            .finish();
        tracing::subscriber::with_default(subscriber, log_line);
        let line = written_text(&paper);
        let (_, line) = line.split_once("INFO ").expect("a level");
        let expected = "done source=ami://x id=7 ok=true words=\"two words\" \
                     odd=\"\\u{1b}[2J\"\n";
        assert_eq!(line, expected);
    }

    #[test]
    fn empty_fields_are_omitted_from_a_json_line() {
        let paper = Paper::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(paper.clone())
            .event_format(JsonLine)
            .finish();
        tracing::subscriber::with_default(subscriber, log_line);
        let line: Value = serde_json::from_str(&written_text(&paper)).expect("JSON");
        let names: Vec<&str> = line
            .as_object()
            .expect("an object")
            .keys()
            .map(|name| &**name)
            .collect();
        let expected = [
            "id",
            "level",
            "message",
            "odd",
            "ok",
            "source",
            "timestamp",
            "words",
        ];
        let mut names = names;
        names.sort_unstable();
        assert_eq!(names, expected);
        assert_eq!((&line["id"], &line["ok"]), (&7.into(), &true.into()));
    }

    #[test]
    fn left_out_lines_are_reported_in_an_ordinary_log_line() {
        let left_out = LeftOut {
            level: tracing::Level::INFO,
            message: "a \"kind\"\n".to_owned(),
            lines: 7,
        };
        let text = super::left_out_line(false, &left_out);
        let (_, message) = text.split_once("  INFO ").expect("a level");
        let expected = format!("{LEFT_OUT} kind=\"a \\\"kind\\\"\\n\" lines=7\n");
        assert_eq!(message, expected);
        let line: Value =
            serde_json::from_str(&super::left_out_line(true, &left_out)).expect("JSON");
        assert_eq!(
            (&line["level"], &line["lines"], &line["kind"]),
            (&"INFO".into(), &7.into(), &"a \"kind\"\n".into())
        );
    }

    fn log_evil(evil: &str) {
        tracing::info!(reason = evil, words = evil.to_owned(), "{evil}");
    }

    fn logged_line(json: bool, evil: &str) -> String {
        let paper = Paper::default();
        let written = paper.clone();
        let builder = tracing_subscriber::fmt()
            .with_writer(paper)
            .with_target(false)
            .with_ansi(false);
        if json {
            let all = builder.event_format(JsonLine).finish();
            tracing::subscriber::with_default(all, || log_evil(evil));
        } else {
            let all = builder.fmt_fields(TextFields).finish();
            tracing::subscriber::with_default(all, || log_evil(evil));
        }
        written_text(&written)
    }

    #[test]
    fn hostile_value_adds_no_line_and_no_field() {
        let evil = "x\u{85}2026\u{2028}INFO\u{202e}\nid=8\u{a0}id=9";
        for line in [logged_line(false, evil), logged_line(true, evil)] {
            let (all, end) = line.split_at(line.len() - 1);
            assert!(end == "\n" && !all.contains(is_hostile), "{all:?}");
        }
        let line = logged_line(false, evil);
        let shown = r#"reason="x\u{85}2026\u{2028}INFO\u{202e}\nid=8\u{a0}id=9" words="x"#;
        assert!(line.contains(shown), "{line}");
        let line: Value = serde_json::from_str(&logged_line(true, evil)).expect("JSON");
        assert_eq!(line["reason"], evil);
    }

    #[test]
    fn lost_lines_are_reported_in_an_ordinary_log_line() {
        let text = lost_line(false, 7);
        let (_, message) = text.split_once(" WARN ").expect("a level");
        let expected = "lines of the log are lost: stderr did not accept them lines=7\n";
        assert_eq!(message, expected);
        let line: Value = serde_json::from_str(&lost_line(true, 7)).expect("JSON");
        assert_eq!(
            (&line["level"], &line["lines"]),
            (&"WARN".into(), &7.into())
        );
    }
}
