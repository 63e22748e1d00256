//! Decides when the pair is refreshed, and what follows from the result. This module has no clock
//! and does no I/O. Its input is events and the time `now`, and its output is the time of the next
//! refresh.
//!
//! ```text
//!            5 min before it expires, or half of a short life; 401
//! Waiting ────────────────────────────────────────────────────▶ UnderWay ── a new pair ──▶ Waiting
//!    ▲  nothing was sent, too early, not the CRM, or it may         │
//!    │  have happened: retried later, at least every 5 minutes      │
//!    ├──────────────────────────────────────────────────────────────┤
//!    │  an hour later, or once a token that                         │
//!    │  was refused with it is good again                       401 │
//!    └────────────────────────────────────────────── ClientRefused ◀┤
//!                                                                   ▼ 400
//!                                                       Over: consent again
//! ```
//! The access token stays in use until it expires, no matter how a refresh turns out. Only the
//! CRM's own 400 ends a connection (§5.6.6). Any other failure says nothing about the refresh
//! token, which lives for 30 days.

use super::store::REFRESH_WITHIN;
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::{Now, TokenFingerprint};
use callbridge_sender::jitter::Jitter;
use std::time::Duration;

/// How long before it expires a token is refreshed (§5.6.6).
const EARLY: Duration = Duration::from_secs(300);
/// Wait between two refreshes caused by a 401, which doubles after each refresh that didn't help.
const BY_401: Duration = Duration::from_secs(60);
/// Upper limit for the wait between two refreshes caused by a 401.
const BY_401_MAX: Duration = Duration::from_secs(900);
/// Waits in seconds after the first attempts that failed or were rate-limited (§7.7: 3 to 5
/// attempts). Each wait is at least half of the token's remaining time, up to [`RARELY`].
const TRIES: [u64; 4] = [2, 8, 20, 60];
/// Maximum random addition to the wait after a failed attempt (§7.7).
const JITTER_MAX: Duration = Duration::from_millis(500);
/// Wait after each further failed attempt, which is also the upper limit for the waits in
/// [`TRIES`].
const RARELY: Duration = Duration::from_secs(300);
/// Upper limit for the waits if no connection can be established, which are 2, 4, 8 … s.
const MISS_MAX: Duration = Duration::from_secs(60);
/// Wait after the CRM rejected the client, which may become valid again once a blocked company has
/// paid.
const CLIENT_AGAIN: Duration = Duration::from_secs(3_600);

/// Facts about a stored pair that determine its next refresh. They don't include its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub access: TokenFingerprint,
    /// When the pair was requested.
    pub issued_at: EpochSeconds,
    /// When the access token expires.
    pub expires_at: EpochSeconds,
    /// Whether a refresh of this pair was started and its outcome isn't known.
    pub began: bool,
    /// When a 401 last caused a refresh.
    pub refused_at: Option<EpochSeconds>,
    /// Whether the CRM has rejected this pair's refresh token, so that consent must be given again.
    pub over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefreshOutcome {
    /// A new pair, which has been stored.
    Rotated(Facts),
    /// 400: the refresh token is no longer valid, and consent must be given again.
    Refused,
    /// 401: the client ID or secret isn't valid, or the company is blocked.
    WrongClient,
    /// There was no response or an unclear one, so the pair may have been replaced at the CRM.
    Unsure,
    /// Nothing was sent, because there's no network connection or the state can't be written.
    NotSent,
    /// The refresh wasn't done, because the response was 429 or didn't come from the CRM.
    NotDone,
}

/// A time on both clocks, which is reached as soon as either clock reaches it.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    wall: EventTime,
    boot: Duration,
}

impl Moment {
    fn from_wall(wall: EventTime, now: Now) -> Self {
        let boot = now.boot + wall.since(now.wall);
        Self { wall, boot }
    }

    fn is_reached(self, now: Now) -> bool {
        now.wall >= self.wall || now.boot >= self.boot
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Waiting,
    /// The value is `by_401` from before this refresh, which is restored if the refresh isn't done.
    UnderWay(Option<Duration>),
    /// The CRM rejected the client, so there's no refresh until this time since boot.
    ClientRefused(Duration),
    Over,
}

/// Decides when the pair of tokens is refreshed. Without a connection, there's no pair.
#[derive(Clone, Debug, Default)]
pub struct Refresher {
    /// Fingerprint of the access token, or `None` without a connection.
    access: Option<TokenFingerprint>,
    issued: EventTime,
    due: Moment,
    end: Moment,
    phase: Phase,
    /// Whether the CRM rejected the access token.
    refused: bool,
    /// Time since boot of the last refresh caused by a 401.
    by_401: Option<Duration>,
    /// Number of refreshes caused by a 401 since the CRM last accepted a token.
    futile: u32,
    /// Whether a refresh of this pair may have happened at the CRM without its response being
    /// known.
    unsure: bool,
    /// Number of consecutive failed attempts.
    failures: u32,
    /// Number of consecutive attempts that couldn't send anything.
    misses: u32,
    /// Time since boot before which there won't be another attempt.
    not_before: Duration,
}

impl Refresher {
    /// Starts over with a connection's pair that was stored by another process or existed at
    /// startup.
    pub fn adopt(&mut self, now: Now, facts: &Facts) {
        *self = Self::holding(now, facts);
        self.by_401 = facts.refused_at.map(|at| {
            let since = now.wall.since(EventTime::from_seconds(at.get()));
            now.boot.saturating_sub(since)
        });
        self.futile = u32::from(self.by_401.is_some());
    }

    /// If a refresh's outcome isn't known, delays the next attempt by [`REFRESH_WITHIN`], because
    /// another process may still store the new pair. Returns `false` if no refresh was noted.
    pub fn await_other(&mut self, now: Now) -> bool {
        if self.unsure {
            self.not_before = now.boot + REFRESH_WITHIN;
        }
        self.unsure
    }

    fn holding(now: Now, facts: &Facts) -> Self {
        let mut held = Self {
            access: Some(facts.access.clone()),
            issued: EventTime::from_seconds(facts.issued_at.get()),
            phase: if facts.over {
                Phase::Over
            } else {
                Phase::Waiting
            },
            unsure: facts.began,
            ..Self::default()
        };
        held.learn_end(now, &facts.access, facts.expires_at);
        held
    }

    /// Removes the pair, because there's no connection, or no longer is.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Records whether the CRM accepted the token `access`. Returns `true` if a rejected client can
    /// be tried again, which is the case if the token was rejected before and is accepted now,
    /// because that means that the company was blocked (§3.1) and no longer is.
    pub fn on_token_used(&mut self, access: &TokenFingerprint, good: bool) -> bool {
        if self.access.as_ref() != Some(access) {
            return false;
        }
        let before = std::mem::replace(&mut self.refused, !good);
        if !good {
            return false;
        }
        self.futile = 0;
        let again = before && self.is_client_refused();
        if again {
            self.phase = Phase::Waiting;
        }
        again
    }

    /// Returns the time since boot at which the next refresh is due, where a time in the past means
    /// now, or `None` if none is due until an event changes that.
    pub fn next(&self, now: Now) -> Option<Duration> {
        match self.phase {
            Phase::UnderWay(_) | Phase::Over => None,
            Phase::ClientRefused(again) => Some(again),
            Phase::Waiting => self.access.as_ref().map(|_| self.next_try(now)),
        }
    }

    pub fn is_due(&self, now: Now) -> bool {
        self.next(now).is_some_and(|at| at <= now.boot)
    }

    /// Returns how long until a refresh is due, but no more than `most`.
    pub fn wait(&self, now: Now, most: Duration) -> Duration {
        (self.next(now)).map_or(most, |at| at.saturating_sub(now.boot).min(most))
    }

    /// Records the start of a refresh, and returns `true` if it was caused by a 401.
    pub fn begin(&mut self, now: Now) -> bool {
        if self.access.is_none() {
            return false;
        }
        self.phase = Phase::UnderWay(self.by_401);
        let asked = self.refused && !self.due.is_reached(now);
        if asked {
            self.by_401 = Some(now.boot);
        }
        asked
    }

    /// Records the result of the refresh, and plans the next one.
    pub fn ended(&mut self, now: Now, ended: RefreshOutcome) {
        let Phase::UnderWay(before) = self.phase else {
            return;
        };
        self.phase = Phase::Waiting;
        match ended {
            RefreshOutcome::Rotated(facts) => {
                *self = Self {
                    by_401: self.by_401,
                    futile: self.futile + u32::from(self.by_401 != before),
                    ..Self::holding(now, &facts)
                };
            }
            RefreshOutcome::Refused => self.phase = Phase::Over,
            RefreshOutcome::WrongClient => {
                self.phase = Phase::ClientRefused(now.boot + CLIENT_AGAIN);
            }
            RefreshOutcome::Unsure => {
                self.unsure = true;
                self.failed(now);
            }
            RefreshOutcome::NotSent => {
                self.by_401 = before;
                self.misses = (self.misses + 1).min(6);
                self.not_before = now.boot + Duration::from_secs(1 << self.misses).min(MISS_MAX);
            }
            RefreshOutcome::NotDone => {
                self.by_401 = before;
                self.failed(now);
            }
        }
    }

    /// Returns `true` if the access token can be used, which means that it hasn't expired, and if
    /// it was rejected, that it can be refreshed. If both the token and the client are rejected,
    /// the company may be blocked, in which case the sender still uses the token to find out when
    /// the company is unblocked.
    pub fn is_usable(&self, now: Now) -> bool {
        let lives = self.access.is_some() && !self.end.is_reached(now);
        lives && !(self.is_over() && self.refused)
    }

    /// Sets when the access token expires, as reported by the CRM.
    pub fn learn_end(&mut self, now: Now, access: &TokenFingerprint, expires_at: EpochSeconds) {
        if self.access.as_ref() != Some(access) {
            return;
        }
        let end = EventTime::from_seconds(expires_at.get());
        let early = EARLY.min(end.since(self.issued) / 2);
        self.due = Moment::from_wall(end.minus(early), now);
        self.end = Moment::from_wall(end, now);
    }

    pub fn is_refused(&self) -> bool {
        self.refused
    }

    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    pub fn is_client_refused(&self) -> bool {
        matches!(self.phase, Phase::ClientRefused(_))
    }

    /// Returns the time since boot of the next attempt, where a time in the past means now.
    fn next_try(&self, now: Now) -> Duration {
        if self.unsure && self.not_before > Duration::ZERO {
            return self.not_before;
        }
        let mut next = if self.due.is_reached(now) {
            now.boot
        } else {
            self.due.boot
        };
        if self.refused {
            let doubled = BY_401 * (1 << self.futile.saturating_sub(1).min(6));
            let wait = doubled.min(BY_401_MAX);
            next = next.min(self.by_401.map_or(now.boot, |last| last + wait));
        }
        if self.unsure {
            next = next.min(now.boot);
        }
        next.max(self.not_before)
    }

    /// Records a failed attempt and sets the time of the next one. The first few waits are short,
    /// and later ones are five minutes.
    fn failed(&mut self, now: Now) {
        let left = if self.refused {
            Duration::ZERO
        } else {
            self.end.boot.saturating_sub(now.boot)
        };
        let pause = match TRIES.get(self.failures as usize) {
            Some(seconds) => Duration::from_secs(*seconds).max(left / 2),
            None => RARELY,
        };
        self.failures = self.failures.saturating_add(1);
        self.misses = 0;
        // The random part keeps clients of the same CRM from all coming back at the same time.
        let digits = self.access.as_ref().map_or("", TokenFingerprint::as_str);
        let seed = u64::from_str_radix(digits, 16).unwrap_or_default();
        let jitter = Jitter::new(seed.wrapping_add(u64::from(self.failures))).up_to(JITTER_MAX);
        self.not_before = now.boot + pause.min(RARELY) + jitter;
    }
}

#[cfg(test)]
#[path = "refresh_tests.rs"]
mod tests;
