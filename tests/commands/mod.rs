//! Tests commands as an administrator runs them.
//!
//! | module | tests |
//! |---|---|
//! | `cli` | all errors are named at once, and exit codes, environment, and help are right |
//! | `check` | every check fails when it should, and shows a fix |
//! | `dead_letters` | dead letters occur, and commands retry or discard them |
//! | `demo_stay` | `demo --stay` ends on request |
//! | `init` | the first setup detects and asks for settings, and writes them |
//! | `state_move` | a state is restored completely from one exported file |
//! | `status` | status for supervisors and for operators on SSH |
//! | `page` | who can see the administrator's page, and what they can do there |
//! | `owner` | root opens nothing in another user's folder |
//! | `deploy_files` | every deployed file is well-formed |
//! | `deploy`, `pages` | installed files and commands in the documentation work |

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
