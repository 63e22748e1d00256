//! The sender against the CRM of the document, under a virtual clock: hours in a second.

mod calls;
mod five_minutes;
mod full;
mod seeds;
mod single_calls;
mod trouble;
mod world;
