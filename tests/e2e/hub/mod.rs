//! Tests that a hub stores each of its branches' calls once, and that a collector keeps calls until
//! then.

mod audit;
mod busy;
mod collectors;
mod distant;
mod drill;
mod flood;
mod full_disk;
mod going_back;
mod judge;
mod lossy;
mod outages;
mod pair;
mod pair_faults;
mod points;
mod pooled;
mod refused;
mod requests;
mod runs;
mod secured;
mod split;
mod stage;
mod standby;
mod watchdog;
mod windows;
