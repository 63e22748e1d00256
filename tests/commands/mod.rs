//! Commands, run as an administrator runs them.
//!
//! | module | its question |
//! |---|---|
//! | `cli` | are all faults named at once, and codes, environment and help right? |
//! | `check` | does every check fail where it should, and say what to do? |
//! | `letters` | do dead letters come to be, and leave as the commands say? |
//! | `demo_stay` | does `demo --stay` end when it is told to? |
//! | `init` | does the first set-up find out, ask and write what it should? |
//! | `state_move` | does a state come back whole from its one file? |
//! | `status` | does it tell supervisors and those who watch? |
//! | `page` | who sees the administrator's page, and what can be done there? |
//! | `owner` | is root safe in another user's folder? |
//! | `deploy_files` | is every deployed file well-formed? |
//! | `deploy`, `pages` | does what is installed, or copied from a page, do what it says? |

mod check;
mod cli;
mod dead_letters;
mod demo_stay;
mod deploy;
mod deploy_files;
mod init;
mod owner;
mod page;
mod pages;
mod sidecar;
mod state_move;
mod status;
mod terminal;
