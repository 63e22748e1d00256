//! Finds customers who have waited too long for a callback and were not reported. Pure: no clock,
//! no process.
//!
//! Customers who pass the limit together are reported in one message. The time between two messages
//! is at least [`REST`].

use crate::notify::history::{Notification, REST, Turn};
use callbridge_model::status::seconds_in_words;
use callbridge_spool::MissedCustomer;
use std::{collections::BTreeMap, time::Duration};

/// The kind of message about missed customers.
pub const KIND: &str = "missed_customers";
/// Maximum numbers that one message names.
const NAMED_MAX: usize = 10;

/// Customers who wait longer than the limit and were reported. Each wait is reported once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitingCustomers {
    /// Phone numbers, each with the epoch second at which the reported wait began.
    notified: BTreeMap<String, i64>,
    /// Time since boot of the last run of the command.
    ran: Option<Duration>,
}

impl WaitingCustomers {
    /// Restores the customers that an earlier run has reported, from the text of
    /// [`WaitingCustomers::to_json`]. Empty if the text cannot be read.
    pub fn restore(text: Option<&str>) -> Self {
        let read = text.and_then(|text| serde_json::from_str(text).ok());
        Self {
            notified: read.unwrap_or_default(),
            ran: None,
        }
    }

    /// Returns the reported customers who still wait, as JSON for the next start.
    pub fn to_json(&self) -> String {
        // Strings and numbers always serialize.
        serde_json::to_string(&self.notified).unwrap_or_default()
    }

    /// Returns the message that is due at the epoch second `at`. `waiting` has all waiting
    /// customers, longest wait first. `boot` is the time since boot, which never steps. `command`
    /// lists the customers.
    pub fn update(
        &mut self,
        waiting: &[MissedCustomer],
        limit: Duration,
        (at, boot): (i64, Duration),
        command: &str,
    ) -> Option<Notification> {
        if let Some(ran) = self.ran
            && boot.saturating_sub(ran) < REST
        {
            return None;
        }
        let before = at.saturating_sub_unsigned(limit.as_secs());
        let first = self.notified.values().min().copied();
        let late: Vec<&MissedCustomer> = waiting
            .iter()
            .filter(|customer| customer.first_at.get() <= before)
            .collect();
        let mut still: BTreeMap<&str, i64> = BTreeMap::new();
        for customer in &late {
            still.insert(customer.phone.as_str(), customer.first_at.get());
        }
        // A customer who was talked to and missed again starts a new wait.
        self.notified
            .retain(|phone, since| still.get(&**phone).is_some_and(|now| now <= since));
        let mut new = Vec::new();
        for customer in late {
            if !self.notified.contains_key(customer.phone.as_str()) {
                new.push(customer);
            }
        }
        let longer = span(limit.as_secs());
        let (state, since, message) = match (new.first(), first) {
            (Some(oldest), _) => (Turn::Begins, oldest.first_at.get(), list(&new, &longer, at)),
            (None, Some(first)) if self.notified.is_empty() => {
                let message = format!("no customer has waited for a callback longer than {longer}");
                (Turn::Ends, first, message)
            }
            (None, _) => return None,
        };
        for customer in &new {
            let phone = customer.phone.as_str().to_owned();
            self.notified.insert(phone, customer.first_at.get());
        }
        self.ran = Some(boot);
        Some(Notification {
            kind: KIND,
            state,
            since,
            message,
            command: command.to_owned(),
        })
    }
}

/// Returns the message: `2 customers have waited for a callback longer than 30 min: +99890…
/// (47 min, 2 tries), …`.
fn list(new: &[&MissedCustomer], longer: &str, at: i64) -> String {
    let mut named = Vec::new();
    for customer in new.iter().take(NAMED_MAX) {
        let waited = span(at.saturating_sub(customer.first_at.get()).unsigned_abs());
        let tries = customer.tries;
        let word = if tries == 1 { "try" } else { "tries" };
        named.push(format!(
            "{} ({waited}, {tries} {word})",
            customer.phone.as_str()
        ));
    }
    if new.len() > NAMED_MAX {
        named.push(format!("and {} more", new.len() - NAMED_MAX));
    }
    let who = match new.len() {
        1 => "1 customer has waited".to_owned(),
        count => format!("{count} customers have waited"),
    };
    let named = named.join(", ");
    format!("{who} for a callback longer than {longer}: {named}")
}

/// Formats a span: `47 min`, `2 h 05 min`.
fn span(seconds: u64) -> String {
    match seconds {
        60..3600 => format!("{} min", seconds / 60),
        _ => seconds_in_words(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1800);

    fn customer(phone: &str, since: i64) -> MissedCustomer {
        let json = serde_json::json!({
            "phone": phone, "trunk": "city", "firstAt": since, "lastAt": since, "tries": 2,
        });
        serde_json::from_value(json).expect("a customer")
    }

    fn update(
        notified: &mut WaitingCustomers,
        waiting: &[MissedCustomer],
        at: i64,
    ) -> Option<(Turn, String)> {
        let boot = Duration::from_secs(at.unsigned_abs());
        let found = notified.update(waiting, LIMIT, (at, boot), "callbridge missed");
        found.map(|line| (line.state, line.message))
    }

    #[test]
    fn customers_waiting_too_long_are_reported_once_and_together() {
        let mut notified = WaitingCustomers::default();
        let both = [customer("+1", 10_000), customer("+2", 10_060)];
        assert_eq!(update(&mut notified, &both, 11_799), None);
        let (turn, message) = update(&mut notified, &both, 11_860).expect("a message");
        assert_eq!(turn, Turn::Begins);
        let names = "+1 (31 min, 2 tries), +2 (30 min, 2 tries)";
        assert_eq!(
            message,
            format!("2 customers have waited for a callback longer than 30 min: {names}")
        );
        // The two customers are also not reported again after a restart.
        let mut notified = WaitingCustomers::restore(Some(&notified.to_json()));
        assert_eq!(update(&mut notified, &both, 12_000), None);
        // One customer is called back and another arrives. Only the new customer is named.
        let now = [customer("+2", 10_060), customer("+3", 10_300)];
        let (_, message) = update(&mut notified, &now, 12_100).expect("a message");
        assert!(message.starts_with("1 customer has waited"), "{message}");
        assert!(
            message.contains("+3") && !message.contains("+2"),
            "{message}"
        );
        assert_eq!(
            update(&mut notified, &[], 12_120),
            None,
            "messages are at least a minute apart"
        );
        let (turn, message) = update(&mut notified, &[], 12_160).expect("a message");
        assert_eq!((turn, notified.to_json().as_str()), (Turn::Ends, "{}"));
        assert_eq!(
            message,
            "no customer has waited for a callback longer than 30 min"
        );
        assert_eq!(update(&mut notified, &[], 13_000), None);
    }

    #[test]
    fn customer_missed_again_after_a_talk_is_reported_again() {
        let mut notified = WaitingCustomers::default();
        assert!(update(&mut notified, &[customer("+1", 0)], 2_000).is_some());
        // A call that arrives late extends the wait, and does not start another one.
        assert!(update(&mut notified, &[customer("+1", -500)], 3_000).is_none());
        assert!(update(&mut notified, &[customer("+1", 2_500)], 5_000).is_some());
    }

    #[test]
    fn longest_waiting_customers_are_named_when_many_wait() {
        let many: Vec<MissedCustomer> = (0..51).map(|n| customer(&format!("+{n}"), n)).collect();
        let (_, message) =
            update(&mut WaitingCustomers::default(), &many, 9_000).expect("a message");
        assert!(message.starts_with("51 customers have waited"), "{message}");
        assert!(
            message.contains("+9 (") && !message.contains("+10 ("),
            "{message}"
        );
        assert!(message.ends_with(", and 41 more"), "{message}");
    }
}
