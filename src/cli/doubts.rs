//! What is no fault and still likely to be a mistake: said by `check`, and by `run` in its log.

use super::config::{Config, TokenFrom};
use super::secrets::Place;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The flag or variable.
    pub what: String,
    /// What is odd about it, and what to do. Never a secret.
    pub words: String,
}

/// All of them. Reads the files of secrets; one that cannot be read is told elsewhere.
pub fn of(config: &Config) -> Vec<Doubt> {
    let variables = config.unread_variables.iter().map(|name| Doubt {
        what: name.clone(),
        words: "nothing reads this variable; remove it, or see `callbridge run --help` for the \
                flag that was meant"
            .to_owned(),
    });
    let quoted = places(config).filter(|(_, place)| place.is_quoted());
    let quoted = quoted.map(|(what, _)| Doubt {
        what: format!("secret of {what}"),
        words: "it stands in quotes, which are taken for a part of it; remove them if they are not"
            .to_owned(),
    });
    variables.chain(quoted).chain(wide(config)).collect()
}

/// Trunks whose pattern takes telephones in, too.
fn wide(config: &Config) -> impl Iterator<Item = Doubt> {
    config.rules.trunks.iter().filter_map(|trunk| {
        let telephone = trunk.telephone_within()?;
        Some(Doubt {
            what: format!("endpoint of trunk {}", trunk.name),
            words: format!(
                "{} takes in telephones, too, as {telephone}: calls between them would be taken \
                 for customers'; name the lines to the outside alone, several with a --trunk each",
                trunk.endpoint
            ),
        })
    })
}

/// Every secret, by what it is for.
fn places(config: &Config) -> impl Iterator<Item = (String, &Place)> {
    let sources = config.sources.iter();
    let sources = sources.filter_map(|it| Some((it.url.to_string(), it.secret.as_ref()?)));
    let token = config.crm.as_ref().and_then(|crm| crm.token.as_ref());
    let token = token.and_then(|from| match from {
        TokenFrom::Place(place) => Some(("the CRM (token)".to_owned(), place)),
        TokenFrom::Command(_) | TokenFrom::Connection => None,
    });
    let letters = config.dead_letters.iter();
    let letters = letters.map(|it| (it.url.to_string(), &it.secret));
    let webhooks = config.webhooks.iter();
    let webhooks =
        webhooks.filter_map(|it| Some(("webhooks".to_owned(), it.application.as_ref()?)));
    sources.chain(token).chain(letters).chain(webhooks)
}
