//! Where the sender's token comes from, and whoever keeps it.

use super::tasks::Tasks;
use crate::config::checked::{Config, Crm, TokenFrom};
use callbridge_model::secret_source::SecretPlace;
use callbridge_model::status::Requests;
use callbridge_oauth::{command, keeper};
use callbridge_sender::status::SenderStatus;
use callbridge_sender::token::TokenSource;
use callbridge_sender::token_update::TokenUpdate;
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

/// The source of a token that nobody has to keep.
pub(crate) fn of_place(place: &SecretPlace) -> TokenSource {
    match (place.fixed(), place.file()) {
        (Some(token), _) => TokenSource::Fixed(token),
        (None, Some(path)) => TokenSource::File(path.to_owned()),
        (None, None) => TokenSource::Missing,
    }
}
