//! Text from outside on its way into HTML: it does nothing, hides nothing, turns nothing around
//! and is not endless.

use askama::filters::HtmlSafe;
use callbridge_model::safe;
use std::fmt;

/// Of a value in a line.
const VALUE_CHARS: usize = 120;
/// Of a sentence: the CRM's words, a finding.
const SENTENCE_CHARS: usize = 1500;

/// HTML that was made here; templates write it as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Markup(String);

impl fmt::Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Markup {}

impl Markup {
    /// HTML as it is: every value in it was escaped.
    pub(crate) const fn made(html: String) -> Self {
        Self(html)
    }

    /// A value in a line, apart from the direction of what stands around it.
    pub(crate) fn value(text: &str) -> Self {
        Self(format!("<bdi>{}</bdi>", escaped(&cut(text, VALUE_CHARS))))
    }

    /// Escapes a sentence, cut at 1,500 characters.
    pub(crate) fn sentence(text: &str) -> Self {
        Self(format!(
            "<bdi>{}</bdi>",
            escaped(&cut(text, SENTENCE_CHARS))
        ))
    }

    /// Lines as they stand, whole: for what may be long and is asked for.
    pub(crate) fn lines(text: &str) -> Self {
        let mut shown = String::with_capacity(text.len());
        for (at, line) in text.split('\n').enumerate() {
            if at > 0 {
                shown.push('\n');
            }
            shown.push_str(&safe::safe(line));
        }
        Self(escaped(&shown))
    }

    /// Escapes a telephone number, which is never masked here.
    pub(crate) fn number(phone: &str) -> Self {
        let shown = escaped(&cut(phone, VALUE_CHARS));
        Self(format!("<bdi class=\"number\">{shown}</bdi>"))
    }

    /// The same as much as is needed to know it again: its first 4 and last 2 characters.
    pub(crate) fn masked(phone: &str) -> Self {
        Self::number(&masked(phone))
    }
}

/// Returns a number for lists: its first 4 and last 2 characters, the rest as dots; of a short one
/// less.
pub(crate) fn masked(phone: &str) -> String {
    let chars: Vec<char> = phone.chars().take(VALUE_CHARS).collect();
    let (head, tail) = match chars.len() {
        0..=2 => (0, 0),
        3..=7 => (0, 2),
        _ => (4, 2),
    };
    let hidden = (chars.len() - head - tail).min(12);
    let mut shown: String = chars[..head].iter().collect();
    shown.extend(std::iter::repeat_n('•', hidden));
    shown.extend(&chars[chars.len() - tail..]);
    shown
}

/// The beginning of a text, with what is hostile shown escaped.
pub(crate) fn cut(text: &str, chars: usize) -> String {
    let mut rest = text.char_indices();
    match rest.nth(chars) {
        None => safe::safe(text),
        Some((end, _)) => format!("{}…", safe::safe(&text[..end])),
    }
}

/// For HTML, between tags and in attributes.
pub(crate) fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '&' => html.push_str("&amp;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hostile_is_shown_and_does_nothing() {
        let evil = "<script>alert('1')</script>\u{202e}\u{1b}[2J\0&";
        let html = Markup::value(evil).to_string();
        assert_eq!(
            html,
            "<bdi>&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;\\u{202e}\\u{1b}[2J\\0&amp;</bdi>"
        );
        assert_eq!(Markup::lines("a\n<b>\r").to_string(), "a\n&lt;b&gt;\\r");
    }

    #[test]
    fn a_megabyte_is_cut_and_said_to_be() {
        let html = Markup::value(&"я".repeat(1 << 20)).to_string();
        assert!(
            html.len() < 400 && html.ends_with("…</bdi>"),
            "{}",
            html.len()
        );
        let lines = Markup::lines(&"я".repeat(1 << 20)).to_string();
        assert_eq!(lines.chars().count(), 1 << 20, "what is asked for is whole");
    }

    #[test]
    fn of_a_number_its_beginning_and_its_end_are_left() {
        for (phone, left) in [
            ("+998901110001", "+998•••••••01"),
            ("901110001", "9011•••01"),
            ("101", "•01"),
            ("7", "•"),
            ("", ""),
        ] {
            assert_eq!(masked(phone), left);
        }
        assert!(masked(&"9".repeat(1 << 20)).chars().count() < 30);
    }
}
