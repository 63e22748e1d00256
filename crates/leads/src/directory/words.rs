//! What is found, in words for people.

use super::find::{Finding, Holder, Standing};
use callbridge_call::EpochSeconds;
use callbridge_mapping::LeadAnswer;

/// Holders named in one answer.
const NAMED_MAX: usize = 3;

impl Finding {
    /// Returns the lead that it gives, with the reason.
    pub fn answer(&self) -> LeadAnswer {
        match self.leads()[..] {
            [] => LeadAnswer::None(self.nobody()),
            [lead] => LeadAnswer::One(lead, self.because()),
            [a, b, ..] => {
                let words = format!("the directory has leads {a} and {b} for the number");
                LeadAnswer::Two(a, b, words)
            }
        }
    }

    fn nobody(&self) -> String {
        let had = self.holders.iter().take(NAMED_MAX).map(Holder::words);
        let had: Vec<String> = had.collect();
        match had.len() {
            0 => "the directory knows no lead with the number".to_owned(),
            _ => format!(
                "the directory has no lead in force for the number: {}",
                had.join(", ")
            ),
        }
    }

    fn because(&self) -> String {
        let mut has = self
            .holders
            .iter()
            .filter(|it| it.standing == Standing::Has);
        let words = has.next().map(Holder::words).unwrap_or_default();
        format!("the directory: {words}")
    }
}

impl Holder {
    /// `lead 4001 (LEAD_CREATED, 2026-11-20T10:00:00Z), merged into 4002`
    pub fn words(&self) -> String {
        let (lead, source, since) = (self.lead, self.source.word(), moment(self.since));
        let merged = if self.lead == self.now {
            String::new()
        } else {
            format!(", merged into {}", self.now)
        };
        let end = match self.standing {
            Standing::Has => String::new(),
            Standing::Deleted(at) => format!(", deleted {}", moment(at)),
            Standing::GaveUp(at) => format!(", had it until {}", moment(at)),
        };
        format!("lead {lead} ({source}, {since}){merged}{end}")
    }
}

/// Writes a second in UTC, `2026-11-20T10:00:00Z`; one outside of the calendar as a bare number.
pub fn moment(at: EpochSeconds) -> String {
    let moment = jiff::Timestamp::from_second(at.get());
    moment.map_or_else(|_| format!("{at} s"), |moment| moment.to_string())
}
