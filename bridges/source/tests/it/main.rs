//! Tests of sources with the tests' own listeners: the transferred bytes, and the reported items.

mod ami;
mod esl;
mod file;
mod hearing;
mod listener;
mod ring;
mod stage;
mod tls;
mod url;
mod websocket;
