//! The secrets of one set of flags, wherever they were given.

use super::{Config, TokenFrom};
use crate::privilege::Needs;
use callbridge_model::SecretPlace;
use callbridge_oauth::{shown_once, store};
use std::path::{Path, PathBuf};

impl Config {
    /// Where its secrets are, each by what it is for.
    pub fn places(&self) -> Vec<(String, &SecretPlace)> {
        let sources = self.sources.iter();
        let sources = sources.filter_map(|it| Some((it.url.public(), it.secret.as_ref()?)));
        let mut all: Vec<(String, &SecretPlace)> = sources.collect();
        if let Some(TokenFrom::Place(place)) = self.crm.as_ref().and_then(|it| it.token.as_ref()) {
            all.push(("the CRM (token)".to_owned(), place));
        }
        if let Some(webhooks) = &self.webhooks {
            let own = webhooks
                .application
                .iter()
                .chain(webhooks.installations.values());
            all.extend(own.map(|it| ("webhooks".to_owned(), it)));
        }
        let passwords = self.page.iter().flat_map(|it| &it.passwords);
        all.extend(passwords.map(|it| ("the page".to_owned(), it)));
        let lookup = self.lookup.iter().flat_map(|it| &it.secret);
        all.extend(lookup.map(|it| ("the look-up".to_owned(), it)));
        all.extend(
            self.dead_letters
                .iter()
                .map(|it| (it.url.public(), &it.secret)),
        );
        all.extend(self.forward.iter().map(|it| (it.url.public(), &it.secret)));
        all
    }

    /// What a daemon with these flags works with.
    pub(crate) fn needs(&mut self) -> Needs<'_> {
        let addresses = [
            self.listen,
            self.webhooks.as_ref().map(|it| it.listen),
            self.page.as_ref().map(|it| it.listen),
            self.lookup.as_ref().map(|it| it.listen),
        ];
        let sources = self.sources.iter_mut();
        let mut all: Vec<&mut SecretPlace> = sources.flat_map(|it| &mut it.secret).collect();
        if let Some(TokenFrom::Place(place)) = self.crm.as_mut().and_then(|it| it.token.as_mut()) {
            all.push(place);
        }
        if let Some(webhooks) = &mut self.webhooks {
            all.extend(&mut webhooks.application);
            all.extend(webhooks.installations.values_mut());
        }
        all.extend(self.page.iter_mut().flat_map(|it| &mut it.passwords));
        all.extend(self.lookup.iter_mut().flat_map(|it| &mut it.secret));
        all.extend(self.dead_letters.as_mut().map(|it| &mut it.secret));
        all.extend(self.forward.as_mut().map(|it| &mut it.secret));
        Needs {
            state: self.state.as_mut(),
            secrets: all,
            listen: addresses.into_iter().flatten().collect(),
            held: Some(&mut self.held),
            holds_secrets: true,
            ..Needs::default()
        }
    }

    /// Every file that holds a secret: those of the flags, the certificate's key, and what
    /// `connect` has left in the state folder.
    pub fn secret_files(&self) -> Vec<PathBuf> {
        let places = self.places().into_iter();
        let named = places.filter_map(|(_, place)| place.file());
        let mut all: Vec<PathBuf> = named.map(Path::to_path_buf).collect();
        let tls = self.webhooks.as_ref().and_then(|it| it.tls.as_ref());
        let page = self.page.as_ref().and_then(|it| it.tls.as_ref());
        all.extend(tls.into_iter().chain(page).map(|it| it.key.clone()));
        if let Some(state) = &self.state {
            all.push(state.join(store::FILE));
            all.push(state.join(shown_once::FILE));
        }
        all.sort();
        all.dedup();
        all
    }
}
