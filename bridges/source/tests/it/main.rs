//! Tests of sources with fake PBXs: the bytes on the connection, and the reported items.

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
