//! Tests of the spool, filed by the question they answer.

mod call;
mod durability;
mod finish;
