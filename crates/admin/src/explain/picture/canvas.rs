//! SVG, element by element: numbers to a tenth, texts escaped.

use callbridge_model::safe::safe;
use std::fmt::Write as _;

/// The elements so far.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    out: String,
}

impl Canvas {
    /// An element without children: `rect` with `class="stay" x="1"…`.
    pub(super) fn element(&mut self, name: &str, class: &str, numbers: &[(&str, f64)]) {
        self.open(name, class, numbers);
        self.out.insert(self.out.len() - 2, '/');
    }

    /// Opens an element; [`Canvas::close`] closes it.
    pub(super) fn open(&mut self, name: &str, class: &str, numbers: &[(&str, f64)]) {
        let _ = write!(self.out, "<{name}");
        if !class.is_empty() {
            let _ = write!(self.out, " class=\"{class}\"");
        }
        for (key, value) in numbers {
            let _ = write!(self.out, " {key}=\"{}\"", tenth(*value));
        }
        self.out.push_str(">\n");
    }

    pub(super) fn close(&mut self, name: &str) {
        let _ = writeln!(self.out, "</{name}>");
    }

    /// A path of straight lines.
    pub(super) fn path(&mut self, class: &str, data: &[(char, f64, f64)]) {
        let steps = data.iter();
        let steps = steps.map(|(step, x, y)| format!("{step}{} {}", tenth(*x), tenth(*y)));
        let data = steps.collect::<Vec<_>>().join("");
        let _ = writeln!(self.out, "<path class=\"{class}\" d=\"{data}\"/>");
    }

    /// What a pointer that rests on the element before shows.
    pub(super) fn title(&mut self, text: &str) {
        let _ = writeln!(self.out, "<title>{}</title>", escaped(text));
    }

    /// A line of text that begins at `x`, or ends or has its middle there by its class.
    pub(super) fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let (x, y, text) = (tenth(x), tenth(y), escaped(text));
        let _ = writeln!(
            self.out,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>"
        );
    }

    pub(super) fn file(self, width: f64, height: f64, title: &str, style: &str) -> String {
        let (width, height, title) = (tenth(width), tenth(height), escaped(title));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{title}</title>\n\
             <style>{style}</style>\n<rect class=\"page\" width=\"{width}\" \
             height=\"{height}\"/>\n{}</svg>\n",
            self.out
        )
    }
}

/// `12.5`, `12`
fn tenth(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Text as XML holds it: names come from outside.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in safe(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // No characters of XML.
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
