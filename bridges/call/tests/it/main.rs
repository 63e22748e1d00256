//! Tests that send events of calls to the assembler and check the finished calls. Each file tests
//! one subject.

mod cdrs;
mod clocks;
mod dialed;
mod direction;
mod durability;
mod employee;
mod estimates;
mod evidence;
mod fold;
mod fold_properties;
mod gaps;
mod joined;
mod joining;
mod late;
mod limits;
mod lists;
mod lost;
mod number;
mod occupancies;
mod processes;
mod properties;
mod reception;
mod reconcile;
mod rooms;
mod settling;
mod story;
mod talk;
mod technology;
mod timeline;
mod unnamed;
mod unreadable;
mod variables;
mod why;
