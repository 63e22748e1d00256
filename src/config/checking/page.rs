//! `page` and its verbs.

use crate::config::checked::Checking;
use crate::config::command::Command;
use crate::config::faults::Faults;
use crate::config::options::page::{PageCommandFlags, PageVerb};
use callbridge_admin::page_role::PageRole;
use callbridge_admin::protocol::ControlRequest;

pub(super) fn check(
    mut checking: Checking<'_>,
    flags: PageCommandFlags,
) -> Result<Command, Faults> {
    match flags.verb {
        None => {
            let role = checking
                .faults
                .take("--role", flags.role.parse::<PageRole>());
            let role = role.unwrap_or(PageRole::View);
            checking.ask(ControlRequest::PageLink { role }, false, flags.state)
        }
        Some(PageVerb::Password { name, role }) => {
            let role = checking.faults.take("ROLE", role.parse::<PageRole>());
            let role = role.unwrap_or(PageRole::View);
            checking.faults.or(Command::PagePassword { name, role })
        }
    }
}
