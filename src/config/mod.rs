//! Reads and checks the command line before anything is opened.
//!
//! ```text
//! arguments ─▶ Options (texts) ─▶ Command (checked; all errors at once, exit 64)
//! ```
//!
//! | module | what it contains |
//! |---|---|
//! | [`options`] | the commands as typed, with their help; [`flags`]: the flags of `run` |
//! | [`arguments`] | `@FILE`, environment, unknown variables, clap and its errors |
//! | [`faults`] | all errors in one command line |
//! | [`doubts`] | settings that are probably mistakes |
//! | [`checked`] | the flags of `run`, `explain`, `check`, checked |
//! | [`command`] | every command, checked. `checking` creates them |
//! | [`trunk_problem`] | a trunk whose calls cannot be logged with these flags |
//! | [`manual`] | `man` and `completions` |

pub(crate) mod arguments;
pub(crate) mod checked;
mod checking;
pub(crate) mod command;
pub(crate) mod doubts;
pub(crate) mod faults;
pub(crate) mod flags;
pub(crate) mod manual;
pub(crate) mod options;
pub(crate) mod trunk_problem;

pub(crate) use checked::{
    BrokerTarget, Checking, Config, Crm, LookupConfig, PageConfig, STATES, SourceConfig, TokenFrom,
    Webhooks,
};
pub(crate) use checking::init::{INSTANCE, InitFlags, missing_answers, secret_kind};
pub(crate) use command::{
    Asking, Audit, Check, Command, Demo, DemoPbx, Explain, StateAction, StateCommand, StatusMode,
};
pub(crate) use faults::Faults;
