//! The two texts of a scrape: OpenMetrics, and the older one made of it.

use std::fmt::Write as _;

/// The text format of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, for scrapers that ask for it.
    Open,
    /// Prometheus text 0.0.4: `promtool check metrics` and older scrapers read no other.
    Classic,
}

impl Format {
    /// The one that this `Accept` header asks for.
    pub fn of(accept: &str) -> Self {
        match accept.contains("application/openmetrics-text") {
            true => Self::Open,
            false => Self::Classic,
        }
    }

    /// The media type of what [`render`](super::render) returns.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The same in the older format: a counter is known by its whole name there, and no mark ends it.
pub(super) fn classic(open: &str) -> String {
    let counters: Vec<&str> = (open.lines())
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut text = String::with_capacity(open.len());
    for line in open.lines().filter(|line| *line != "# EOF") {
        let mark_of = |mark| Some((mark, line.strip_prefix(mark)?.split_once(' ')?));
        match mark_of("# HELP ").or_else(|| mark_of("# TYPE ")) {
            Some((mark, (name, words))) if counters.contains(&name) => {
                let _ = writeln!(text, "{mark}{name}_total {words}");
            }
            _ => {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    text
}
