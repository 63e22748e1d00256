//! The first company of a state: shown and asked for before the state is bound to it, for whoever
//! answered the consent page may have been logged in as another one.

use super::typed::StdinLines;
use crate::config::checked::connect::Wanted;
use callbridge_crm::TokenInfo;
use callbridge_ops::log::say;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Whether a state may be bound to a company.
#[derive(Debug)]
pub(crate) struct Consent<'a> {
    /// What was said beforehand.
    pub wanted: Wanted,
    /// What a person types.
    pub typed: &'a mut StdinLines,
    /// So long an answer is waited for.
    pub within: Duration,
}

impl Consent<'_> {
    /// The company is the one that `--company` names, if it names one.
    ///
    /// # Errors
    /// In words that it is another.
    pub(crate) fn fits(&self, info: &TokenInfo, named: &str) -> Result<(), String> {
        match self.wanted.company.filter(|it| *it != info.company) {
            Some(other) => Err(format!(
                "the consent is of {named}, and --company is {other}"
            )),
            None => Ok(()),
        }
    }

    /// The state may be bound to it, for the first time. Where nobody can be asked it is, and said.
    ///
    /// # Errors
    /// In words why not.
    pub(crate) async fn binds(&mut self, info: &TokenInfo, named: &str) -> Result<(), String> {
        self.fits(info, named)?;
        if self.wanted.yes || self.wanted.company.is_some() {
            return Ok(());
        }
        if !self.typed.person {
            say(&format!(
                "this state is bound to {named} from now on: nobody was asked, for stdin is no \
                 terminal; --company {} would have made sure of it",
                info.company
            ));
            return Ok(());
        }
        self.typed.forget();
        say(&format!(
            "bind this state to {named}? Its calls go there from now on, and to no other. [y/N]"
        ));
        let until = Instant::now() + self.within;
        let answer = timeout_at(until, self.typed.line()).await;
        let answer = answer.ok().flatten().unwrap_or_default();
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(format!(
                "the consent is of {named}, which was not confirmed"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(company: i64) -> TokenInfo {
        TokenInfo {
            company,
            company_name: "Uy".to_owned(),
            application: Some(7),
            application_name: String::new(),
            kind: "ACCESS".to_owned(),
            expires_at: None,
            expires_in_days: None,
            grants: None,
        }
    }

    async fn answered(person: bool, lines: &[&str], company: Option<i64>, yes: bool) -> bool {
        let mut typed = StdinLines::scripted(person, lines);
        let mut consent = Consent {
            wanted: Wanted { company, yes },
            typed: &mut typed,
            within: Duration::from_secs(60),
        };
        consent.binds(&info(12), "company Uy (12)").await.is_ok()
    }

    #[tokio::test]
    async fn a_person_is_asked_a_script_is_told_and_a_flag_decides_for_both() {
        for (line, yes) in [("y", true), (" YES ", true), ("n", false), ("", false)] {
            assert_eq!(answered(true, &[line], None, false).await, yes, "{line}");
        }
        assert!(!answered(true, &[], None, false).await, "stdin has ended");
        assert!(answered(true, &[], None, true).await, "--yes");
        assert!(answered(false, &[], None, false).await, "nobody to ask");
        for person in [true, false] {
            assert!(answered(person, &[], Some(12), false).await, "--company");
            assert!(!answered(person, &["y"], Some(13), true).await, "another");
        }
    }
}
