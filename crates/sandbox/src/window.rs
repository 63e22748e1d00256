//! The fixed window of a token (Limits): it opens with the first request and lasts 60 s. Also
//! parses rates and durations.

use crate::TokenKey;
use callbridge_call::EventTime;
use callbridge_model::dates;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A request limit: the number of requests that a window of this length holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests that one window holds.
    pub requests: u32,
    /// Length of a window from its first request.
    pub window: Duration,
}

impl Default for Rate {
    fn default() -> Self {
        Self {
            requests: 60,
            window: Duration::from_secs(60),
        }
    }
}

/// The highest counts of requests in windows, and in sliding spans of the same length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fullest {
    /// Most counted requests in one fixed window.
    pub in_a_window: u32,
    /// Most counted requests in any span as long as a window. This is information, not a rule.
    pub in_any_span: u32,
    /// Number of windows opened by all tokens.
    pub windows: u64,
}

/// Most counted requests per token that are remembered for the sliding span.
const SPAN_MAX: usize = 100_000;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Window {
    opened: EventTime,
    counted: u32,
    span: VecDeque<EventTime>,
}

/// The current window of each token, and the highest counts so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Windows {
    /// The limit of requests per window.
    #[serde(skip)]
    pub rate: Rate,
    by_token: BTreeMap<TokenKey, Window>,
    /// The highest counts of all tokens so far.
    pub fullest: Fullest,
}

/// The position of a counted request in its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The request's number within its window, from 1.
    pub number: u32,
    /// The moment of the window's first request.
    pub opened: EventTime,
    /// `true` if the request is within the limit. Otherwise it is answered with 429.
    pub within: bool,
}

impl Windows {
    /// Creates the state in which no window is open and nothing is counted.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            ..Self::default()
        }
    }

    /// Counts a request that passed the token check. A request above the limit counts too, and does
    /// not move the window.
    pub fn count(&mut self, token: TokenKey, now: EventTime) -> Counted {
        let length = self.rate.window;
        let window = self.by_token.entry(token).or_default();
        if window.counted == 0 || now >= window.opened.plus(length) {
            window.opened = now;
            window.counted = 0;
            self.fullest.windows += 1;
        }
        window.counted = window.counted.saturating_add(1);
        let span = &mut window.span;
        while span.front().is_some_and(|at| now >= at.plus(length)) {
            span.pop_front();
        }
        if span.len() < SPAN_MAX {
            span.push_back(now);
        }
        let in_span = u32::try_from(span.len()).unwrap_or(u32::MAX);
        self.fullest.in_a_window = self.fullest.in_a_window.max(window.counted);
        self.fullest.in_any_span = self.fullest.in_any_span.max(in_span);
        Counted {
            number: window.counted,
            opened: window.opened,
            within: window.counted <= self.rate.requests,
        }
    }
}

/// Reads a rate such as `60/60s`: requests and the length of the window.
///
/// # Errors
/// A message if the text is not a rate.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    let (requests, window) = text.split_once('/').ok_or_else(|| not_a_rate(text))?;
    let requests = requests
        .trim()
        .parse::<u32>()
        .map_err(|_| not_a_rate(text))?;
    let window = parse_duration(window.trim())?;
    if requests == 0 || window.is_zero() {
        return Err(not_a_rate(text));
    }
    Ok(Rate { requests, window })
}

fn not_a_rate(text: &str) -> String {
    format!("`{text}` is not a rate such as 60/60s")
}

/// Reads a duration such as `500ms`, `6s`, `2m`, `24h`, or `365d`.
///
/// # Errors
/// A message if the text is not a duration.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    dates::span(text)
        .ok_or_else(|| format!("`{text}` is not a time span such as 500ms, 6s, 2m, 24h, 365d"))
}
