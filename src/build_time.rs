//! The time at which this program was built. A correct clock cannot show an earlier time.

use callbridge_call::EventTime;

/// Epoch seconds of the build. If the build script did not set them, a fixed time before the build.
const BUILT: i64 = match option_env!("CALLBRIDGE_BUILT") {
    Some(digits) => seconds_of(digits.as_bytes()),
    None => 1_795_132_800,
};

const fn seconds_of(digits: &[u8]) -> i64 {
    let mut seconds = 0;
    let mut at = 0;
    while at < digits.len() {
        seconds = seconds * 10 + (digits[at] - b'0') as i64;
        at += 1;
    }
    seconds
}

/// Returns the time at which this program was built, or at which its newest commit was made.
pub(crate) const fn built_at() -> EventTime {
    EventTime::from_seconds(BUILT)
}

/// Returns the earliest time that a correct clock can show: a day before this program was built.
/// While the system clock shows an earlier time, calls are held and nothing is sent.
pub(crate) const fn right_from() -> EventTime {
    const DAY: i64 = 86_400;
    EventTime::from_seconds(BUILT - DAY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::clock;
    use std::time::Duration;

    #[test]
    fn clock_is_right_now_and_from_one_day_before_the_build() {
        assert!(clock::now().wall >= right_from());
        assert!(right_from() < built_at());
        let day = Duration::from_secs(24 * 60 * 60);
        assert_eq!(built_at().since(right_from()), day);
        assert_eq!(seconds_of(b"1795151317"), 1_795_151_317);
    }
}
