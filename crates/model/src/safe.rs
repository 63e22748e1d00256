//! Makes text from outside safe for a terminal, a log, or a spreadsheet. Names, reasons, and
//! messages of the PBX, the CRM, a browser, or a file can contain anything.
//!
//! | function | for |
//! |---|---|
//! | [`safe`] | a value in a line |
//! | [`safe_lines`] | a message of several lines |
//! | [`safe_json`] | JSON, whose values stay the same |
//! | [`safe_cell`] | a cell of CSV |

use std::fmt::Write as _;

/// Returns `true` for characters that a terminal can take as a command, that end a line, that
/// change the direction of text, or that are invisible.
pub fn is_hostile(c: char) -> bool {
    // Control characters (including C0, DEL, and C1), direction marks and overrides, zero-width
    // characters, the other line and paragraph ends, and tags.
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Returns a value on one line that is safe to print on a terminal. Hostile characters are escaped
/// (`\u{1b}`, `\n`).
pub fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hostile(c) {
            shown.extend(c.escape_debug());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns a message that keeps its line ends. Every line after the first is indented, so that none
/// of them looks like a separate message.
pub fn safe_lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            shown.push('\n');
            if !line.is_empty() && !line.starts_with("  ") {
                shown.push_str("  ");
            }
        }
        shown.push_str(&safe(line));
    }
    shown
}

/// Returns JSON on one line. Its values stay the same, and it contains no terminal commands.
pub fn safe_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hostile(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing into a String does not fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns a CSV cell that no spreadsheet takes as a formula. In some locales, cells end at `;` or
/// at a tab, even inside quotes. So the text after such a character is also treated as a cell.
pub fn safe_cell(text: &str) -> String {
    if is_number(text) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len() + 1);
    let mut begins = true;
    for c in text.chars() {
        if begins && is_formula(c) {
            shown.push('\'');
        }
        begins = matches!(c, ',' | ';' | '\t' | '\n' | '\r' | '|' | '"') || (begins && c == ' ');
        if is_hostile(c) && !matches!(c, '\t' | '\n') {
            shown.extend(c.escape_debug());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns `true` if a cell that begins with this character is calculated. The full-width forms
/// count as well.
const fn is_formula(c: char) -> bool {
    matches!(c, '=' | '+' | '-' | '@' | '＝' | '＋' | '－' | '＠')
}

/// Returns `true` for `+998901110001` and `-5`, which are not formulas.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn control_codes_line_ends_and_bidi_marks_are_escaped() {
        let evil = "a\u{1b}[2J\u{9b}31m\u{7}\r\nb\u{202e}c\u{2066}d\u{2028}e\u{200b}\u{feff}\u{7f}";
        insta::assert_snapshot!(
            safe(evil),
            @r"a\u{1b}[2J\u{9b}31m\u{7}\r\nb\u{202e}c\u{2066}d\u{2028}e\u{200b}\u{feff}\u{7f}"
        );
        assert_eq!(safe("Ўткир Öz 李 \\n '\""), "Ўткир Öz 李 \\n '\"");
    }

    #[test]
    fn continuation_lines_of_a_message_are_indented() {
        let evil = "refused: \u{1b}[2J\n2026-11-20T05:08:37Z  INFO all is well\n  todo";
        insta::assert_snapshot!(safe_lines(evil), @r"
        refused: \u{1b}[2J
          2026-11-20T05:08:37Z  INFO all is well
          todo
        ");
    }

    #[test]
    fn formulas_are_quoted_after_every_separator() {
        for (text, shown) in [
            ("=1+1", "'=1+1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("+998901110001", "+998901110001"),
            ("-5", "-5"),
            ("-5+cmd", "'-5+cmd"),
            ("a;=1", "a;'=1"),
            ("a\t-1+2", "a\t'-1+2"),
            ("a; +1+2", "a; '+1+2"),
            ("a\n=1", "a\n'=1"),
            ("a\";@b", "a\";'@b"),
            ("a,=1", "a,'=1"),
            (" =1", " '=1"),
            ("＝1", "'＝1"),
            ("a=b-c+d@e", "a=b-c+d@e"),
            ("a\u{1b}\r=1", "a\\u{1b}\\r'=1"),
        ] {
            assert_eq!(safe_cell(text), shown, "{text:?}");
        }
    }

    proptest! {
        /// Promise: Text from outside controls no terminal, forges no log line, and is no formula.
        #[test]
        fn hostile_characters_never_remain_in_safe_text(text in any::<String>()) {
            prop_assert!(!safe(&text).chars().any(is_hostile));
            let lines = safe_lines(&text);
            prop_assert!(!lines.chars().any(|c| is_hostile(c) && c != '\n'));
            for line in lines.split('\n').skip(1) {
                prop_assert!(line.is_empty() || line.starts_with("  "));
            }
            let json = Value::from(text.clone()).to_string();
            let shown = safe_json(&json);
            prop_assert!(!shown.chars().any(is_hostile));
            let read: Value = serde_json::from_str(&shown).expect("JSON");
            prop_assert_eq!(read, Value::from(text));
        }

        #[test]
        fn pieces_of_a_cell_are_never_formulas(text in "[-=+@;,\t\n\" a1]{0,12}") {
            let cell = safe_cell(&text);
            prop_assume!(!is_number(&text));
            for piece in cell.split([';', '\t', '\n', ',', '"']) {
                prop_assert!(!piece.trim_start().starts_with(is_formula), "{:?}", cell);
            }
        }
    }
}
