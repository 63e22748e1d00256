//! `page` and its verbs.

use super::Checking;
use crate::config::command::Command;
use crate::config::faults::Faults;
use crate::config::options::page::{PageCommandFlags, PageVerb};
use callbridge_page::role::Role;

impl Checking<'_> {
    pub(super) fn page(mut self, flags: PageCommandFlags) -> Result<Command, Faults> {
        match flags.verb {
            None => {
                let role = self.faults.take("--role", flags.role.parse::<Role>());
                let role = role.unwrap_or(Role::View);
                let at = self.asking(flags.state)?;
                Ok(Command::Page { role, at })
            }
            Some(PageVerb::Password { name, role }) => {
                let role = self.faults.take("ROLE", role.parse::<Role>());
                let role = role.unwrap_or(Role::View);
                self.faults.or(Command::PagePassword { name, role })
            }
        }
    }
}
