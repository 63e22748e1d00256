//! A rate in requests per window, as in `--rate 60/60s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("--rate {0}: give it as REQUESTS/WINDOW, 1 to 10000 in 1s to 1h, such as 60/60s")]
pub struct RateError(String);

/// Maximum number of requests per window. The CRM's own rate is 60 per 60 s (Limits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    limit: u32,
    window: Duration,
}

impl Default for Rate {
    fn default() -> Self {
        Self::SERVICE
    }
}

impl Rate {
    /// The CRM's rate for one token.
    pub const SERVICE: Self = Self {
        limit: 60,
        window: Duration::from_secs(60),
    };

    /// Returns the number of requests per window, from 1 to 10,000.
    pub const fn limit(self) -> u32 {
        self.limit
    }

    /// Returns the window, from 1 s to 1 h.
    pub const fn window(self) -> Duration {
        self.window
    }

    /// Returns the maximum number of requests within one of the CRM's windows, in which several of
    /// this rate's windows can begin.
    pub fn most_in_service_window(self) -> u128 {
        let service = Self::SERVICE.window.as_millis();
        let own = self.window.as_millis();
        service.div_ceil(own.max(1)) * u128::from(self.limit)
    }

    /// Returns the longest window in which requests count: this rate's window or the CRM's,
    /// whichever is longer. If this rate exceeds the CRM's (loopback only), only this rate's window
    /// counts.
    pub fn longest_window(self) -> Duration {
        if self.exceeds_service() {
            self.window
        } else {
            self.window.max(Self::SERVICE.window)
        }
    }

    /// Returns `true` if this rate is higher than the CRM's. Such a rate is rejected unless the
    /// CRM's address is loopback.
    pub fn exceeds_service(self) -> bool {
        self.most_in_service_window() > u128::from(Self::SERVICE.limit)
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        parse(text).ok_or_else(|| RateError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Rate> {
    let (limit, window) = text.trim().split_once('/')?;
    let limit = limit.trim().parse().ok()?;
    let window = window.trim();
    let units = [('s', 1), ('m', 60), ('h', 3600)];
    let (number, seconds) = units
        .iter()
        .find_map(|(unit, seconds)| Some((window.strip_suffix(*unit)?, *seconds)))?;
    let number: u64 = match number {
        "" => 1,
        number => number.parse().ok()?,
    };
    let window = Duration::from_secs(number.checked_mul(seconds)?);
    let bounds = Duration::from_secs(1)..=Duration::from_secs(3600);
    if !(1..=10_000).contains(&limit) || !bounds.contains(&window) {
        return None;
    }
    Some(Rate { limit, window })
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}s", self.limit, self.window.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_text_round_trips_and_invalid_text_is_refused() {
        for (text, shown) in [("60/60s", "60/60s"), ("30/1m", "30/60s"), ("5/s", "5/1s")] {
            let rate: Rate = text.parse().expect("good");
            assert_eq!(rate.to_string(), shown);
            assert_eq!(shown.parse(), Ok(rate));
        }
        for text in [
            "",
            "60",
            "0/60s",
            "60/0s",
            "60/60",
            "-1/60s",
            "60/2h",
            "10001/60s",
            "6/ss",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn rate_above_the_crm_limit_is_reported() {
        for (text, expected) in [
            ("60/60s", false),
            ("30/60s", false),
            // All 120 may be sent within a single minute.
            ("120/120s", true),
            ("30/50s", false),
            ("1/1s", false),
            ("60/6s", true),
            ("61/60s", true),
            ("2/1s", true),
        ] {
            let rate: Rate = text.parse().expect("good");
            assert_eq!(rate.exceeds_service(), expected, "{text}");
        }
    }
}
