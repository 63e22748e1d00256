//! How whoever may ask at the control socket comes to the administrator's page.

use callbridge_page::links::Links;
use callbridge_page::role::PageRole;

/// Gives out links.
#[derive(Clone, Debug)]
pub struct PageDoor {
    /// Gives out the tokens.
    pub links: Links,
    /// `http://127.0.0.1:9470`
    pub origin: String,
}

impl PageDoor {
    /// A link for this user; `None` where the system gives no random bytes.
    pub fn link(&self, who: &str, role: PageRole) -> Option<String> {
        let path = self.links.issue(who, role)?;
        Some(format!("{}{path}", self.origin))
    }
}
