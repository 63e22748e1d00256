//! HTML created by code. Text from the CRM or the PBX is escaped, so it can't add markup, hide
//! other text, or change its direction. Long values are truncated.

use askama::filters::HtmlSafe;
use callbridge_model::safe;
use std::fmt;

/// Maximum length in characters of a value in a line.
const VALUE_CHARS: usize = 120;

/// HTML that can safely be written into a template without escaping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Markup(String);

impl fmt::Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Markup {}

impl Markup {
    /// Marks HTML as safe. All values in it must already be escaped.
    pub(crate) const fn from_html(html: String) -> Self {
        Self(html)
    }

    /// Creates HTML for a value in a line, which is escaped, truncated, and isolated from the
    /// direction of the text around it.
    pub(crate) fn value(text: &str) -> Self {
        Self(format!("<bdi>{}</bdi>", escape(&cut(text, VALUE_CHARS))))
    }

    /// Creates HTML for multiline text, which is escaped but not truncated.
    pub(crate) fn lines(text: &str) -> Self {
        let lines: Vec<String> = text.split('\n').map(safe::safe).collect();
        Self(escape(&lines.join("\n")))
    }

    /// Creates HTML for a complete phone number, without masking it.
    pub(crate) fn number(phone: &str) -> Self {
        let shown = escape(&cut(phone, VALUE_CHARS));
        Self(format!("<bdi class=\"number\">{shown}</bdi>"))
    }

    /// Draws an icon on a grid of 24 units, in the color of the text around it. An unknown name
    /// results in a dot.
    pub(crate) fn icon(name: &str) -> Self {
        let lines = match name {
            "today" => "M3 12h4l3-8 4 16 3-8h4",
            "calls" => {
                "M5 4h4l2 5-2.500 1.500a11 11 0 0 0 5 5L15 13l5 2v4a2 2 0 0 1-2 2A16 16 0 0 1 3 \
                 6a2 2 0 0 1 2-2z"
            }
            "dead_letters" => {
                "M4 5h16a1 1 0 0 1 1 1v12a1 1 0 0 1-1 1H4a1 1 0 0 1-1-1V6a1 1 0 0 1 1-1zM3.500 \
                 6.500l8.500 6.500 8.500-6.500"
            }
            "numbers" => "M5 9h14M5 15h14M10 4L8 20M16 4l-2 16",
            "missed" => "M4 8l7 7 8-8M13 7h6v6",
            "employees" => {
                "M9 11a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7zM3 20v-1a5 5 0 0 1 5-5h2a5 5 0 \
                 0 1 5 5v1M16 4.500a3.500 3.500 0 0 1 0 6M18 14.500a5 5 0 0 1 3 4.500v1"
            }
            "branches" => "M12 8v4M6 16v-2h12v2M9 3h6v5H9zM3 16h6v5H3zM15 16h6v5h-6z",
            "pbx" => "M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01",
            "check" => "M9 11l3 3 8-8M20 12v6a2 2 0 0 1-2 2H6a2 2 0 0 1-2-2V6a2 2 0 0 1 2-2h9",
            "well" => "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM8.500 12l2.500 2.500 4.500-5",
            "attention" => "M12 4l9 16H3zM12 10v4M12 17h.01",
            "down" => "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9.500 9.500l5 5M14.500 9.500l-5 5",
            "waiting" => "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3 2",
            "fix" => {
                "M9 18h6M10 21h4M12 3a6 6 0 0 0-3.500 10.900c.5.400.500 1 .500 1.600h6c0-.600 \
                 0-1.200.500-1.600A6 6 0 0 0 12 3z"
            }
            "export" => "M12 4v11M8 11l4 4 4-4M5 20h14",
            "inbound" => "M17 7L7 17M7 9v8h8",
            "outbound" => "M7 17L17 7M9 7h8v8",
            _ => "M12 12h.01",
        };
        Self(format!(
            "<svg class=\"icon\" viewBox=\"0 0 24 24\" aria-hidden=\"true\" focusable=\"false\">\
             <path d=\"{lines}\"/></svg>"
        ))
    }
}

/// Masks a number for lists, keeping its first 4 and last 2 characters, or fewer of a short number,
/// and replacing the rest with dots.
pub(crate) fn mask(phone: &str) -> String {
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

/// Returns the first `chars` characters of a text, with hostile characters visibly escaped.
pub(crate) fn cut(text: &str, chars: usize) -> String {
    let mut rest = text.char_indices();
    match rest.nth(chars) {
        None => safe::safe(text),
        Some((end, _)) => format!("{}…", safe::safe(&text[..end])),
    }
}

/// Escapes text for use in HTML, both between tags and in attributes.
pub(crate) fn escape(text: &str) -> String {
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
    fn hostile_text_is_escaped_and_shown() {
        let evil = "<script>alert('1')</script>\u{202e}\u{1b}[2J\0&";
        let html = Markup::value(evil).to_string();
        assert_eq!(
            html,
            "<bdi>&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;\\u{202e}\\u{1b}[2J\\0&amp;</bdi>"
        );
        assert_eq!(Markup::lines("a\n<b>\r").to_string(), "a\n&lt;b&gt;\\r");
    }

    #[test]
    fn value_of_a_megabyte_is_cut_with_an_ellipsis() {
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
    fn masked_number_keeps_only_its_first_and_last_digits() {
        for (phone, left) in [
            ("+998901110001", "+998•••••••01"),
            ("901110001", "9011•••01"),
            ("101", "•01"),
            ("7", "•"),
            ("", ""),
        ] {
            assert_eq!(mask(phone), left);
        }
        assert!(mask(&"9".repeat(1 << 20)).chars().count() < 30);
    }
}
