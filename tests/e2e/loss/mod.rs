//! Does callbridge lose a call, or log one twice, when it, the CRM, or its disk fails?

mod deaf;
mod frozen;
mod kills;
mod stopping;
mod survival;
