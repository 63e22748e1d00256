//! Does a hub take each call of its branches once, and does a collector keep calls until then?

mod collectors;
mod going_back;
mod judge;
mod lossy;
mod requests;
mod stage;
