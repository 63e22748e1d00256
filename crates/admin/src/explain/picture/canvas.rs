//! Writes SVG element by element. Numbers are rounded to a tenth, and texts are escaped.

use callbridge_model::safe;
use std::fmt::Write as _;

/// The elements written so far, without the `svg` element around them.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    out: String,
}

impl Canvas {
    /// Draws a rectangle, optionally with round corners.
    pub(super) fn rect(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        is_round: bool,
    ) {
        let numbers = [
            ("x", x),
            ("y", y),
            ("width", width),
            ("height", height),
            ("rx", 3.0),
        ];
        self.element("rect", class, &numbers[..4 + usize::from(is_round)]);
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ends = [("x1", from.0), ("x2", to.0), ("y1", from.1), ("y2", to.1)];
        self.element("line", class, &ends);
    }

    /// Writes an element without children: `rect` with `class="stay" x="1"…`.
    fn element(&mut self, name: &str, class: &str, numbers: &[(&str, f64)]) {
        self.open(name, class, numbers);
        self.out.insert(self.out.len() - 2, '/');
    }

    /// Opens an element. Close it with [`Canvas::close`].
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

    /// Draws a path of straight lines through these points.
    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        self.strokes(class, &[points]);
    }

    /// Draws the cross that marks a channel's hangup.
    pub(super) fn cross(&mut self, x: f64, y: f64) {
        let falls = [(x - 4.0, y - 4.0), (x + 4.0, y + 4.0)];
        let rises = [(x - 4.0, y + 4.0), (x + 4.0, y - 4.0)];
        self.strokes("hangup", &[&falls, &rises]);
    }

    fn strokes(&mut self, class: &str, strokes: &[&[(f64, f64)]]) {
        let _ = write!(self.out, "<path class=\"{class}\" d=\"");
        for (at, (x, y)) in strokes.iter().flat_map(|points| points.iter().enumerate()) {
            let step = if at == 0 { 'M' } else { 'L' };
            let _ = write!(self.out, "{step}{} {}", tenth(*x), tenth(*y));
        }
        self.out.push_str("\"/>\n");
    }

    /// Writes the tooltip of the element just opened.
    pub(super) fn title(&mut self, text: &str) {
        let _ = writeln!(self.out, "<title>{}</title>", escape(text));
    }

    /// Writes a line of text that begins, ends, or is centered at `x`, depending on its class.
    pub(super) fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let _ = writeln!(
            self.out,
            "<text class=\"{class}\" x=\"{}\" y=\"{}\">{}</text>",
            tenth(x),
            tenth(y),
            escape(text)
        );
    }

    pub(super) fn file(self, width: f64, height: f64, title: &str, style: &str) -> String {
        let width = tenth(width);
        let height = tenth(height);
        let title = escape(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{title}</title>\n\
             <style>{style}</style>\n<rect class=\"page\" width=\"{width}\" \
             height=\"{height}\"/>\n{}</svg>\n",
            self.out
        )
    }
}

/// Formats the number to a tenth, without a trailing zero: `12.5`, `12`.
fn tenth(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Escapes text for XML, because names come from the PBX.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in safe(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML does not allow these two characters.
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
