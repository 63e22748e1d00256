//! Tests that compare the fixed window with a slow and obvious model.

use super::{NOW, info, sandbox};
use crate::token::TokenKey;
use crate::window::{Rate, Windows};
use callbridge_call::EventTime;
use proptest::prelude::*;
use std::time::Duration;

/// Returns for each request whether it is within the rate, according to the document. `moments` has
/// the times of the requests.
fn model(moments: &[EventTime], rate: Rate) -> Vec<bool> {
    let mut opened: Option<EventTime> = None;
    let mut counted = 0;
    moments
        .iter()
        .map(|&at| {
            let over = opened.is_none_or(|opened| at.since(opened) >= rate.window);
            if over {
                opened = Some(at);
                counted = 0;
            }
            counted += 1;
            counted <= rate.requests
        })
        .collect()
}

/// Returns times that follow each other by these milliseconds, from [`NOW`] on.
fn moments(gaps: &[u32]) -> Vec<EventTime> {
    let mut at = NOW;
    gaps.iter()
        .map(|&gap| {
            at = at.plus(Duration::from_millis(u64::from(gap)));
            at
        })
        .collect()
}

proptest! {
    #[test]
    fn rate_windows_match_a_simple_model(
        gaps in prop::collection::vec(
            prop_oneof![0..40_u32, 900..1_100_u32, 0..70_000_u32],
            1..400,
        ),
        requests in 1..70_u32,
        seconds in 1..70_u64,
    ) {
        let rate = Rate { requests, window: Duration::from_secs(seconds) };
        let mut windows = Windows::new(rate);
        let moments = moments(&gaps);
        let counts: Vec<_> =
            moments.iter().map(|&at| windows.count(TokenKey::from_value("one"), at)).collect();
        let within: Vec<bool> = counts.iter().map(|counted| counted.within).collect();
        prop_assert_eq!(within, model(&moments, rate));
        for (at, counted) in moments.iter().zip(&counts) {
            prop_assert!(*at >= counted.opened);
            prop_assert!(at.since(counted.opened) < rate.window, "counted in a window gone by");
            prop_assert!(moments.contains(&counted.opened), "opened by a request");
        }
    }

    #[test]
    fn rate_window_accepts_at_most_sixty_requests(
        later in prop::collection::vec(0..1_000_u32, 1..400),
    ) {
        let mut core = sandbox();
        // A burst fills the first window. The later requests fill more windows.
        let mut gaps = vec![0; 61];
        gaps.extend(later);
        let moments = moments(&gaps);
        let answers: Vec<u16> =
            moments.iter().map(|&at| core.handle(at, &info()).status).collect();
        prop_assert_eq!(&answers[..60], [200_u16; 60]);
        prop_assert_eq!(answers[60], 429, "the last request of the burst");
        let mut opened = moments[0];
        let mut accepted = 0;
        for (at, status) in moments.iter().zip(&answers) {
            if at.since(opened) >= Duration::from_secs(60) {
                (opened, accepted) = (*at, 0);
            }
            accepted += u32::from(*status == 200);
            prop_assert!(accepted <= 60);
            prop_assert!(*status == 200 || accepted == 60, "refused before it was full");
        }
    }
}

#[test]
fn fullest_window_and_span_are_remembered() {
    let mut windows = Windows::new(Rate::default());
    let key = TokenKey::from_value("one");
    // The client sends 40 requests at the end of one window and 40 at the start of the next window.
    // No window has more than 41 requests, but a span of 60 seconds has 80.
    windows.count(key, NOW);
    for second in [55, 61] {
        for _ in 0..40 {
            windows.count(key, super::now_plus(second));
        }
    }
    let fullest = windows.fullest;
    assert_eq!(
        (fullest.in_a_window, fullest.in_any_span, fullest.windows),
        (41, 80, 2)
    );
}
