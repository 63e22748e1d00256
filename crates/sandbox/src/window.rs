//! The fixed window of a token value (Limits): it opens with a first request and lasts 60 s. How
//! rates and spans are written.

use crate::TokenKey;
use callbridge_call::EventTime;
use callbridge_model::dates;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The number of requests that one window of some length holds.
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

/// The fullest that windows and sliding spans of the same length have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fullest {
    /// Most counted requests in one fixed window.
    pub in_a_window: u32,
    /// Most counted requests in any span as long as a window: information, no rule.
    pub in_any_span: u32,
    /// Number of windows opened by all tokens.
    pub windows: u64,
}

/// Counted requests remembered for the sliding span, per token.
const SPAN_MAX: usize = 100_000;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Window {
    opened: EventTime,
    counted: u32,
    span: VecDeque<EventTime>,
}

/// The windows of all token values.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Windows {
    /// The rate that requests are held to.
    #[serde(skip)]
    pub rate: Rate,
    by_token: BTreeMap<TokenKey, Window>,
    /// The fullest window and span of all tokens so far.
    pub fullest: Fullest,
}

/// The place of a counted request in its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The request's number within its window, from 1.
    pub number: u32,
    /// The moment of the window's first request.
    pub opened: EventTime,
    /// The request is within the limit, and not answered with 429.
    pub within: bool,
}

impl Windows {
    /// No window is open, and nothing counted.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            ..Self::default()
        }
    }

    /// Counts a request that got past the token check. A request above the limit counts too; it
    /// does not move the window.
    pub fn count(&mut self, token: TokenKey, now: EventTime) -> Counted {
        let length = self.rate.window;
        let window = self.by_token.entry(token).or_default();
        if window.counted == 0 || now >= window.opened.plus(length) {
            (window.opened, window.counted) = (now, 0);
            self.fullest.windows += 1;
        }
        window.counted = window.counted.saturating_add(1);
        let (span, over) = (&mut window.span, |at: &EventTime| now >= at.plus(length));
        while span.front().is_some_and(over) {
            span.pop_front();
        }
        if span.len() < SPAN_MAX {
            span.push_back(now);
        }
        let span = u32::try_from(span.len()).unwrap_or(u32::MAX);
        self.fullest.in_a_window = self.fullest.in_a_window.max(window.counted);
        self.fullest.in_any_span = self.fullest.in_any_span.max(span);
        Counted {
            number: window.counted,
            opened: window.opened,
            within: window.counted <= self.rate.requests,
        }
    }
}

/// Reads a rate written as requests and window: `60/60s`.
///
/// # Errors
/// What is wrong, in words.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    let wrong = || format!("`{text}` is not a rate such as 60/60s");
    let (requests, window) = text.split_once('/').ok_or_else(wrong)?;
    let requests = requests.trim().parse::<u32>().map_err(|_| wrong())?;
    let window = parse_duration(window.trim())?;
    if requests == 0 || window.is_zero() {
        return Err(wrong());
    }
    Ok(Rate { requests, window })
}

/// A span written `500ms`, `6s`, `2m`, `24h` or `365d`.
///
/// # Errors
/// What is wrong, in words.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time span such as 500ms, 6s, 2m, 24h, 365d");
    dates::span(text).ok_or_else(wrong)
}
