//! Recordings of conversations (§6.8 `record`): links that are signed and end. What they lead to is
//! a second of silence.
//!
//! ```text
//! GET /sandbox/files/FILE?expires=EPOCH&signature=…    200 audio/wav, from `expires` on 403
//! ```
//! The signature shows that the link was given out, and with which end; it is no secret's.

use super::Recording;
use crate::admin::whole;
use crate::core::Sandbox;
use crate::envelope::{Request, Response};
use callbridge_call::EventTime;
use serde_json::{Map, Value, json};

/// Longest life of a link (§6.8, Limits).
pub const LIFE_SECONDS: i64 = 5 * 86_400;
/// Files lie below it, beside the service.
pub const PREFIX: &str = "files/";
const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x2b61_d7e4_93c0_4f1a_8e55_6a0b_d94c_17f3);
const FILE: i64 = 9;

/// `call.record` of an ordered event made whole: `{}` is enough, `fileId`, `durationSec` and
/// `expiresInSec` can be given, or `url` with `expiresAt`.
///
/// # Errors
/// In words: the link would live longer than the document lets it.
pub(super) fn filled(
    core: &Sandbox,
    now: EventTime,
    fields: &Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let mut fields = fields.clone();
    let call = fields.get_mut("call").and_then(Value::as_object_mut);
    let record = call.and_then(|call| call.get_mut("record"));
    if let Some(Value::Object(given)) = record {
        let made = made(core, now, given)?;
        *given = made;
    }
    Ok(fields)
}

fn made(
    core: &Sandbox,
    now: EventTime,
    given: &Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let second = now.floor_seconds().get();
    let file_id = whole(given, "fileId")?.unwrap_or(FILE);
    let life = whole(given, "expiresInSec")?.unwrap_or(LIFE_SECONDS);
    let expires_at = whole(given, "expiresAt")?.unwrap_or(second.saturating_add(life));
    if expires_at > second.saturating_add(LIFE_SECONDS) {
        return Err(format!(
            "`record`: a link lives at most {LIFE_SECONDS} s, five days"
        ));
    }
    let base = &core.settings.base_url;
    let signature = signature(core, file_id, expires_at);
    let own =
        || format!("{base}/sandbox/{PREFIX}{file_id}?expires={expires_at}&signature={signature}");
    let url = given.get("url").and_then(Value::as_str);
    let record = Recording {
        file_id,
        url: url.map_or_else(own, str::to_owned),
        expires_at,
        duration_sec: whole(given, "durationSec")?,
    };
    match json!(record) {
        Value::Object(record) => Ok(record),
        _ => Ok(Map::new()),
    }
}

fn signature(core: &Sandbox, file: i64, expires_at: i64) -> String {
    let words = format!("{} {file} {expires_at}", core.settings.seed);
    uuid::Uuid::new_v5(&NAMESPACE, words.as_bytes())
        .simple()
        .to_string()
}

/// Answers a link; `file` is what stands behind the prefix.
pub(crate) fn answer(core: &Sandbox, now: EventTime, file: &str, request: &Request) -> Response {
    let refused = |words: &str| Response::json(403, &json!({ "error": words }));
    let field = |name: &str| {
        let mut fields = url::form_urlencoded::parse(request.query.as_bytes());
        let found = fields.find(|(given, _)| given == name);
        found.map(|(_, value)| value.into_owned())
    };
    let expires_at = field("expires").and_then(|text| text.parse().ok());
    let (Ok(file), Some(expires_at)) = (file.parse(), expires_at) else {
        return refused("no link of a recording");
    };
    if field("signature") != Some(signature(core, file, expires_at)) {
        return refused("the link was not given out so");
    }
    if now.floor_seconds().get() >= expires_at {
        return refused("the link has expired");
    }
    Response {
        content_type: "audio/wav",
        body: silence(),
        ..Response::json(200, &Value::Null)
    }
}

/// A second of silence: mono, 8 kHz, 8 bits.
fn silence() -> Vec<u8> {
    const RATE: u32 = 8_000;
    let mut wav = Vec::with_capacity(44 + RATE as usize);
    wav.extend_from_slice(b"RIFF");
    wav.extend_from_slice(&(36 + RATE).to_le_bytes());
    wav.extend_from_slice(b"WAVEfmt ");
    wav.extend_from_slice(&16_u32.to_le_bytes());
    wav.extend_from_slice(&[1, 0, 1, 0]);
    wav.extend_from_slice(&RATE.to_le_bytes());
    wav.extend_from_slice(&RATE.to_le_bytes());
    wav.extend_from_slice(&[1, 0, 8, 0]);
    wav.extend_from_slice(b"data");
    wav.extend_from_slice(&RATE.to_le_bytes());
    wav.resize(44 + RATE as usize, 0x80);
    wav
}
