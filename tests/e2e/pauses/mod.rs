//! Does callbridge say why it does not send, keep each call, and continue automatically?

mod reasons;
mod rights;
