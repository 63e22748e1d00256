//! Binds a spool to a single CRM address, company, and application.

use serde::{Deserialize, Serialize};

/// Address, company, and application that a spool is bound to, each `None` until it's bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The CRM's base address, without a trailing slash.
    pub address: Option<String>,
    /// ID of the company (§2.2), as text.
    pub company: Option<String>,
    /// ID of the application (§2.2), as text.
    pub application: Option<String>,
}

/// Whether a value matches the bound one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    Unbound,
    Same,
    Other,
}

impl Binding {
    /// Compares an address with the bound one, ignoring a trailing slash.
    pub fn fits_address(&self, address: &str) -> Fit {
        fit(self.address.as_deref(), address.trim_end_matches('/'))
    }

    /// Compares a token's company and application with the bound ones.
    pub fn fits_company(&self, company: &str, application: &str) -> Fit {
        let bound = match (self.company.as_deref(), self.application.as_deref()) {
            (None, None) => None,
            bound => Some(bound),
        };
        fit(bound, (Some(company), Some(application)))
    }

    /// Compares an event's company (§6.5) with the bound one. Events don't mention an application.
    pub fn fits_their_company(&self, company: &str) -> Fit {
        fit(self.company.as_deref(), company)
    }
}

fn fit<T: PartialEq>(bound: Option<T>, given: T) -> Fit {
    match bound {
        None => Fit::Unbound,
        Some(bound) if bound == given => Fit::Same,
        Some(_) => Fit::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_with_trailing_slash_counts_as_the_same() {
        let bound = Binding {
            address: Some("https://crm.example".into()),
            ..Binding::default()
        };
        assert_eq!(bound.fits_address("https://crm.example/"), Fit::Same);
        assert_eq!(bound.fits_address("https://crm.example.org"), Fit::Other);
        assert_eq!(Binding::default().fits_address("x"), Fit::Unbound);
    }

    #[test]
    fn other_application_of_same_company_does_not_fit_binding() {
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
