//! Files of secrets, read again when they change.

use callbridge_model::{ExposeSecret as _, Secret, SecretPlace};
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Has what stands in the place of this flag put into force whenever it is another text; what
/// cannot be used changes nothing, and is said once.
pub(super) async fn follow(
    place: SecretPlace,
    flag: &str,
    mut put_into_force: impl FnMut(&SecretPlace) -> Result<(), String>,
) -> anyhow::Result<()> {
    let bare = |text: &Option<Secret>| text.as_ref().map(|it| it.expose_secret().to_owned());
    let mut look = tokio::time::interval(LOOK_EVERY);
    let (mut last, mut told) = (place.text().ok(), None);
    loop {
        look.tick().await;
        let text = place.text().ok();
        if bare(&text) == bare(&last) {
            continue;
        }
        last = text;
        match put_into_force(&place) {
            Ok(()) => told = None,
            Err(words) if told.as_ref() != Some(&words) => {
                tracing::warn!(error = %words, "{flag}: those before stay in force");
                told = Some(words);
            }
            Err(_) => {}
        }
    }
}
