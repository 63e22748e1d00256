//! Divides the outside lines into calls.
//!
//! ```text
//! carrier 1  |--x                                 refused
//! carrier 2     |-----x                           the same attempt, not answered
//! carrier 1                 |----------|          dialed more than 5 s later: another attempt,
//!                                                 unless the same command dialed again
//! carrier 1                              |-----|  dialed after an answered line: another one
//! ```

use super::sets::Sets;
use super::view::AT_ONCE;
use crate::facts::Leg;
use crate::talk::Talk;
use crate::{Direction, EventTime};
use std::collections::BTreeMap;
use std::time::Duration;

/// A line dialed within this time after an unanswered one continues the same attempt.
const ATTEMPT_GAP: Duration = Duration::from_secs(5);

/// Returns how long after a line goes unanswered the same attempt may dial another one. `pause` is
/// how long the command that dialed the line waits before redialing.
pub(crate) fn patience(pause: Duration) -> Duration {
    ATTEMPT_GAP + pause
}

/// Returns how long after this line goes unanswered the API command that dialed it may dial another
/// one. A command that doesn't redial tries its next line at once.
pub(crate) fn command_patience(line: &Leg) -> Duration {
    if line.is_dialed_repeatedly() {
        patience(line.pause())
    } else {
        AT_ONCE
    }
}

/// A trunk channel that was dialed.
#[derive(Clone, Debug, Default)]
pub(super) struct DialedLine {
    /// The party that dialed it, the number if an API dialed it, or else the call in which the
    /// channel was created.
    pub(super) origin: String,
    /// The digits of the dialed number, or empty if it's unknown.
    pub(super) number: String,
    /// The customer in whose call the line was dialed, if any, in which case the line itself isn't
    /// a customer's.
    pub(super) customer: Option<usize>,
    /// Set once the line's call has been emitted, after which no other line can join it.
    pub(super) is_emitted: bool,
    pub(super) answered: bool,
    /// How long the command that dialed the line waits before redialing, or zero if it doesn't.
    pub(super) pause: Duration,
    /// When the channel was created.
    pub(super) from: EventTime,
    /// When the channel hung up.
    pub(super) to: EventTime,
}

impl DialedLine {
    /// Returns `true` if both lines called the same number at the same time.
    fn is_to_number_of(&self, other: &Self) -> bool {
        let overlaps = self.from <= other.to && other.from <= self.to;
        let can_join = self.is_emitted == other.is_emitted;
        overlaps && can_join && !self.number.is_empty() && self.number == other.number
    }
}

/// The lines dialed so far in one attempt to reach a customer.
struct Attempt<'l> {
    /// The attempt's first line, as an index.
    first: usize,
    /// How long the commands that dialed each number wait before redialing it.
    pauses: BTreeMap<&'l str, Duration>,
    to: EventTime,
    answered: bool,
}

impl<'l> Attempt<'l> {
    /// Returns `true` if `next` is part of this attempt, meaning that it was dialed while another
    /// line was up, soon after lines that weren't answered, or by a command that dials the number
    /// repeatedly.
    fn goes_on(&self, next: &DialedLine) -> bool {
        let pause = self.pauses.get(next.number.as_str());
        let patience = patience(pause.copied().unwrap_or_default());
        next.from <= self.to || !self.answered && next.from.since(self.to) <= patience
    }

    fn add(&mut self, line: &'l DialedLine) {
        let pause = self.pauses.entry(&line.number).or_default();
        *pause = line.pause.max(*pause);
        self.to = self.to.max(line.to);
        self.answered |= line.answered;
    }
}

/// Divides these trunk channels into calls, oldest first, and returns the customer's channels in
/// each.
///
/// Every customer who called in has a call, and so does every attempt to reach a customer unless
/// its lines were dialed in another customer's call. An attempt's lines are one call, because the
/// first carrier may refuse and the second one answer. They're only several calls if people talked
/// on several numbers, or if some of the lines have already been emitted.
pub(super) fn divide_by_customer(
    trunks: impl Iterator<Item = usize>,
    came_in: impl Fn(usize) -> bool,
    line: impl Fn(usize) -> DialedLine,
    talk: impl Fn(&[usize]) -> Talk,
) -> Vec<(Direction, Vec<usize>)> {
    let mut calls = Vec::new();
    let mut lines = Vec::new();
    for i in trunks {
        if came_in(i) {
            calls.push((Direction::Inbound, vec![i]));
        } else {
            lines.push((i, line(i)));
        }
    }
    lines.retain(|(_, line)| line.customer.is_none());
    for lines in divide_by_attempt(&lines) {
        let mut numbers = divide_by_number(&lines);
        numbers.retain(|customers| talk(customers).is_answer());
        if numbers.len() < 2 {
            numbers = vec![lines.iter().map(|(i, _)| *i).collect()];
        }
        calls.extend(
            numbers
                .into_iter()
                .map(|lines| (Direction::Outbound, lines)),
        );
    }
    calls.sort_by_key(|(_, customers)| customers[0]);
    calls
}

/// Groups dialed lines by attempt. Simultaneous attempts to reach the same number count as one,
/// even if they were made in different calls.
fn divide_by_attempt(lines: &[(usize, DialedLine)]) -> Vec<Vec<&(usize, DialedLine)>> {
    let mut of_one_attempt = Sets::new(lines.len());
    for (later, (_, line)) in lines.iter().enumerate() {
        for (earlier, (_, other)) in lines[..later].iter().enumerate() {
            if line.is_to_number_of(other) {
                of_one_attempt.join(earlier, later);
            }
        }
    }
    let mut by_time: Vec<usize> = (0..lines.len()).collect();
    by_time.sort_by_key(|&i| lines[i].1.from);
    let mut attempts: BTreeMap<(bool, &str), Attempt<'_>> = BTreeMap::new();
    for i in by_time {
        let line = &lines[i].1;
        let dialer = (line.is_emitted, line.origin.as_str());
        match attempts.get_mut(&dialer) {
            Some(attempt) if attempt.goes_on(line) => {
                of_one_attempt.join(attempt.first, i);
                attempt.add(line);
            }
            Some(_) | None => {
                let mut attempt = Attempt {
                    first: i,
                    pauses: BTreeMap::new(),
                    to: line.to,
                    answered: false,
                };
                attempt.add(line);
                attempts.insert(dialer, attempt);
            }
        }
    }
    let mut divided: BTreeMap<usize, Vec<&(usize, DialedLine)>> = BTreeMap::new();
    for (i, line) in lines.iter().enumerate() {
        divided
            .entry(of_one_attempt.find(i))
            .or_default()
            .push(line);
    }
    divided.into_values().collect()
}

/// Groups dialed lines by number, keeping the numbers in the order they were first dialed.
fn divide_by_number(lines: &[&(usize, DialedLine)]) -> Vec<Vec<usize>> {
    let mut numbers: Vec<(&str, Vec<usize>)> = Vec::new();
    for (i, line) in lines {
        match numbers
            .iter_mut()
            .find(|(number, _)| *number == line.number)
        {
            Some((_, those)) => those.push(*i),
            None => numbers.push((&line.number, vec![*i])),
        }
    }
    numbers.into_iter().map(|(_, lines)| lines).collect()
}
