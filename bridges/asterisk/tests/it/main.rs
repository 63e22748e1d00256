//! Tests of the decoders, both with bytes that a PBX sends and with bytes that no PBX should send.

mod ami1;
mod cdr_csv;
mod cel;
mod cel_tables;
mod events;
mod hostile;
mod old_releases;
mod recordings;
mod wazo;
