//! Where the sender's token comes from, and whoever keeps it.

use super::tasks::Tasks;
use crate::config::{Config, Crm, TokenFrom};
use callbridge_model::environment::{ETC, credstore};
use callbridge_model::status::Requests;
use callbridge_model::{SecretKind, SecretPlace};
use callbridge_oauth::{command, keeper};
use callbridge_sender::status::SenderStatus;
use callbridge_sender::status::TokenPlace;
use callbridge_sender::token::TokenSource;
use callbridge_sender::token_update::TokenUpdate;
use std::path::{Path, PathBuf};
use tokio::sync::watch;

/// The source of the token, its keeper started where it has one; and the requests that one makes.
pub(crate) fn keep(
    config: &Config,
    crm: &Crm,
    sender: &watch::Receiver<SenderStatus>,
    tasks: &mut Tasks,
) -> (TokenSource, watch::Receiver<Requests>) {
    let (requests, counted) = watch::channel(Requests::new());
    let (told, hears) = watch::channel(TokenUpdate::default());
    let (sender, stop) = (sender.clone(), tasks.stop());
    let source = match &crm.token {
        None => TokenSource::Missing,
        Some(TokenFrom::Place(place)) => of_place(place),
        Some(TokenFrom::Command(command)) => {
            let command = command.clone();
            let keeper = command::Keeper { command, told };
            tasks.start(async move { keeper.run(sender, stop).await });
            TokenSource::Kept(hears)
        }
        Some(TokenFrom::Connection) => {
            let keeper = keeper::Keeper {
                dir: config.state.clone().unwrap_or_default(),
                setup: crm.setup.clone(),
                auth: crm.auth.clone(),
                rebind: config.rebind,
                told,
                requests,
            };
            tasks.start(async move { keeper.run(sender, stop).await });
            TokenSource::Kept(hears)
        }
    };
    (source, counted)
}

/// A path that systemd tells.
pub(crate) fn told(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// Where a person puts a new token. A credential of systemd's is a copy that the service was given
/// at its start; its file is the one of which that copy is made.
pub(crate) fn place(
    token: Option<&TokenFrom>,
    told: impl Fn(&str) -> Option<PathBuf>,
) -> TokenPlace {
    let Some(TokenFrom::Place(place)) = token else {
        return TokenPlace::default();
    };
    let Some(path) = place.file() else {
        return TokenPlace {
            name: SecretKind::Token.variable().to_owned(),
            then: Some("restart callbridge".to_owned()),
        };
    };
    let copied = told("CREDENTIALS_DIRECTORY").is_some_and(|folder| path.starts_with(folder));
    let of_copy = || {
        told("STATE_DIRECTORY")?
            .file_name()?
            .to_str()
            .map(str::to_owned)
    };
    let stored = || {
        let name = path.file_name()?.to_str()?;
        let name = name.strip_prefix("callbridge.")?.strip_suffix(".token")?;
        Some(name.to_owned())
    };
    let service = if copied { of_copy() } else { stored() };
    let file = match &service {
        Some(service) if copied => {
            credstore(Path::new(ETC)).join(format!("callbridge.{service}.token"))
        }
        Some(_) | None => path.to_path_buf(),
    };
    let then = match service {
        Some(service) => Some(format!("`systemctl restart callbridge@{service}`")),
        None if place.fixed().is_some() || copied => Some("restart callbridge".to_owned()),
        None => None,
    };
    let name = file.display().to_string();
    TokenPlace { name, then }
}

/// The source of a token that nobody has to keep.
pub(crate) fn of_place(place: &SecretPlace) -> TokenSource {
    match (place.fixed(), place.file()) {
        (Some(token), _) => TokenSource::Fixed(token),
        (None, Some(path)) => TokenSource::File(path.to_owned()),
        (None, None) => TokenSource::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::secret::Secret;

    #[test]
    fn a_new_token_goes_where_it_is_read_from_and_counts_after_a_restart_where_it_is_a_copy() {
        let secret = || Secret::from("t".to_owned());
        let credentials = "/run/credentials/callbridge@hq.service";
        let copied = |name: &str| match name {
            "CREDENTIALS_DIRECTORY" => Some(PathBuf::from(credentials)),
            _ => Some(PathBuf::from("/var/lib/callbridge/hq")),
        };
        let file = |path: &str| SecretPlace::File(PathBuf::from(path));
        let stored = "/etc/credstore/callbridge.hq.token";
        let restarted =
            "/etc/credstore/callbridge.hq.token, then `systemctl restart callbridge@hq`";
        for (place, in_service, wants) in [
            (file("/etc/t"), true, "/etc/t, it is read again by itself"),
            (file(&format!("{credentials}/token")), true, restarted),
            (file(stored), false, restarted),
            (
                SecretPlace::Held(PathBuf::from("/root/t"), secret()),
                false,
                "/root/t, then restart callbridge",
            ),
            (
                SecretPlace::Variable(secret()),
                false,
                "CALLBRIDGE_TOKEN, then restart callbridge",
            ),
        ] {
            let token = Some(TokenFrom::Place(place));
            let told = |name: &str| in_service.then(|| copied(name)).flatten();
            assert_eq!(super::place(token.as_ref(), told).to_string(), wants);
        }
        assert_eq!(super::place(None, copied), TokenPlace::default());
    }
}
