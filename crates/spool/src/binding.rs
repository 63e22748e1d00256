//! Whose calls these are: a spool belongs to one CRM address, company and application.

use serde::{Deserialize, Serialize};

/// Address, company and application that a spool is bound to; each `None` until first use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The CRM's base address, without a slash at its end.
    pub address: Option<String>,
    /// Id of the company (§2.2), as text.
    pub company: Option<String>,
    /// Id of the application (§2.2), as text.
    pub application: Option<String>,
}

/// Relation of something given to what is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Nothing is bound yet: bind it.
    Unbound,
    /// The same is bound already.
    Same,
    /// Another one is bound already.
    Other,
}

impl Binding {
    /// An address against the bound one. A slash at its end does not matter.
    pub fn fits_address(&self, address: &str) -> Fit {
        match &self.address {
            None => Fit::Unbound,
            Some(bound) if bound == address.trim_end_matches('/') => Fit::Same,
            Some(_) => Fit::Other,
        }
    }

    /// A token's company and application against the bound ones.
    pub fn fits_company(&self, company: &str, application: &str) -> Fit {
        match (self.company.as_deref(), self.application.as_deref()) {
            (None, None) => Fit::Unbound,
            (Some(c), Some(a)) if c == company && a == application => Fit::Same,
            (Some(_) | None, Some(_) | None) => Fit::Other,
        }
    }

    /// The company of an event (§6.5) against the bound one: events name no application.
    pub fn fits_their_company(&self, company: &str) -> Fit {
        match self.company.as_deref() {
            None => Fit::Unbound,
            Some(bound) if bound == company => Fit::Same,
            Some(_) => Fit::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_at_the_end_is_no_other_address() {
        let bound = Binding {
            address: Some("https://crm.example".into()),
            ..Binding::default()
        };
        assert_eq!(bound.fits_address("https://crm.example/"), Fit::Same);
        assert_eq!(bound.fits_address("https://crm.example.org"), Fit::Other);
        assert_eq!(Binding::default().fits_address("x"), Fit::Unbound);
    }

    #[test]
    fn another_application_of_the_same_company_is_another() {
        let bound = Binding {
            company: Some("Alpha".into()),
            application: Some("PBX".into()),
            ..Binding::default()
        };
        assert_eq!(bound.fits_company("Alpha", "PBX"), Fit::Same);
        assert_eq!(bound.fits_company("Alpha", "Site"), Fit::Other);
        assert_eq!(bound.fits_company("Beta", "PBX"), Fit::Other);
        assert_eq!(Binding::default().fits_company("Beta", "PBX"), Fit::Unbound);
    }
}
