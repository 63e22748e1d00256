//! The state of a story's channels over the course of the story, and the texts that Asterisk uses
//! for them. All tellers use it to walk through a story.

use crate::switch::{Act, Br, Ch, Deed, Deeds, Role};
use crate::telling::{self, Linkedids, Manner, Voice};
use std::collections::{BTreeMap, BTreeSet};

/// The caller number shown on the company's own calls.
pub const COMPANY: &str = "712000000";
/// The customer's lead, as a channel variable's name and value.
pub const LEAD: (&str, &str) = ("LEAD_ID", "4001");

const MANNER: Manner = Manner {
    voice: Voice::Channel,
    linkedids: Linkedids::AtOnce,
    cel_behind: 0,
    named: false,
};

pub struct Scene<'s> {
    pub story: &'s Deeds,
    apps: BTreeMap<Ch, &'static str>,
    /// How many times each channel has run `Dial`.
    dials: BTreeMap<Ch, usize>,
    /// `DIALSTATUS` of each channel that has dialed.
    statuses: BTreeMap<Ch, &'static str>,
    up: BTreeSet<Ch>,
    pub places: BTreeMap<Ch, Br>,
}

impl<'s> Scene<'s> {
    pub fn new(story: &'s Deeds) -> Self {
        Self {
            story,
            apps: BTreeMap::new(),
            dials: BTreeMap::new(),
            statuses: BTreeMap::new(),
            up: BTreeSet::new(),
            places: BTreeMap::new(),
        }
    }

    pub fn follow(&mut self, deed: &Deed) {
        let channel = deed.channel;
        match deed.act {
            Act::Runs(application) => {
                self.apps.insert(channel, application);
                if application == "Dial" {
                    self.statuses.remove(&channel);
                    *self.dials.entry(channel).or_default() += 1;
                }
            }
            Act::Up => {
                self.up.insert(channel);
            }
            Act::DialEnd { by: Some(by) } if self.application(by).0 == "Dial" => {
                let status = self.dial_status(channel);
                if self.status(by) != "ANSWER" {
                    self.statuses.insert(by, status);
                }
            }
            Act::Enter(bridge) => {
                self.places.insert(channel, bridge);
            }
            Act::Leave(_) | Act::Hangup => {
                let was_parked = self.apps.get(&channel) == Some(&"Park");
                if self.places.remove(&channel).is_some() && was_parked {
                    self.apps.insert(channel, "Dial");
                }
            }
            _ => {}
        }
    }

    pub fn is_up(&self, channel: Ch) -> bool {
        self.up.contains(&channel)
    }

    /// Returns the other channels in the channel's bridge.
    pub fn partners(&self, channel: Ch) -> Vec<Ch> {
        let Some(here) = self.places.get(&channel) else {
            return Vec::new();
        };
        let inside = self.places.iter().filter(|(_, bridge)| *bridge == here);
        let others = inside.map(|(&other, _)| other);
        others.filter(|&other| other != channel).collect()
    }

    /// Returns the `DIALSTATUS` of the channel's last `Dial`, or an empty text.
    pub fn status(&self, channel: Ch) -> &'static str {
        self.statuses.get(&channel).copied().unwrap_or_default()
    }

    /// Returns the result of a dialing attempt that ends now.
    pub fn dial_status(&self, dialed: Ch) -> &'static str {
        match &self.story.channels[dialed].role {
            _ if self.is_up(dialed) => "ANSWER",
            Role::DialedOut { .. } => "CONGESTION",
            _ => "NOANSWER",
        }
    }

    /// Returns the application that the channel is running, along with its arguments.
    pub fn application(&self, channel: Ch) -> (&'static str, String) {
        let born = &self.story.channels[channel];
        let own = self.apps.get(&channel).copied();
        let Some(name) = own else {
            let dialed = match (&born.role, born.dialed_by) {
                (_, Some(_)) => "AppDial",
                (Role::DialedOut { .. } | Role::Phone { placed: false, .. }, None) => "AppDial2",
                _ => return ("", String::new()),
            };
            return (dialed, "(Outgoing Line)".to_owned());
        };
        let data = match name {
            "Dial" => self.dialed_now(channel),
            "Queue" => "sales,tT,,,20".to_owned(),
            "ConfBridge" => "600".to_owned(),
            "VoiceMail" => "101@default,us".to_owned(),
            "AgentLogin" => "201,s".to_owned(),
            "AgentRequest" => "201".to_owned(),
            "Park" => "default:701".to_owned(),
            "ParkedCall" => "default,701".to_owned(),
            _ => String::new(),
        };
        (name, data)
    }

    /// Returns the arguments of the channel's current `Dial`, which are all the parties it dials.
    fn dialed_now(&self, channel: Ch) -> String {
        let mut ran = 0;
        let mut targets = Vec::new();
        for deed in &self.story.deeds {
            ran += usize::from(deed.channel == channel && deed.act == Act::Runs("Dial"));
            let is_dialed = deed.act == Act::DialBegin { by: Some(channel) };
            if is_dialed && self.dials.get(&channel) == Some(&ran) {
                let name = self.name(deed.channel);
                let technology = name.split('/').next().unwrap_or_default();
                let target = telling::dial_string(self.story, deed.channel);
                targets.push(format!("{technology}/{target}"));
            }
        }
        format!("{},20,tT", targets.join("&"))
    }

    pub fn id(&self, channel: Ch) -> String {
        telling::id(self.story, MANNER, channel).as_str().to_owned()
    }

    pub fn name(&self, channel: Ch) -> String {
        telling::name(self.story, channel)
    }

    /// Returns the number shown on the channel.
    pub fn number(&self, channel: Ch) -> String {
        let born = &self.story.channels[channel];
        match &born.role {
            Role::CameIn { number, .. } => number.clone().unwrap_or_default(),
            Role::DialedOut { .. } if born.dialed_by.is_none() => COMPANY.to_owned(),
            Role::DialedOut { number, .. } => format!("9{number}"),
            Role::Phone { extension, .. } => extension.clone(),
            Role::Local { .. } | Role::Plumbing { .. } => String::new(),
        }
    }

    /// Returns the channel's current extension in the dialplan.
    pub fn exten(&self, channel: Ch) -> String {
        let born = &self.story.channels[channel];
        let is_caller = match born.role {
            Role::CameIn { .. } => return "7001".to_owned(),
            Role::Phone { placed, .. } => placed,
            _ => false,
        };
        if !is_caller {
            return "s".to_owned();
        }
        let mut channels = self.story.channels.iter().enumerate();
        match channels.find(|(_, other)| other.dialed_by == Some(channel)) {
            Some((dialed, _)) => self.number(dialed),
            None => match self.apps.get(&channel).copied() {
                Some("Pickup") => "*8".to_owned(),
                Some("ParkedCall") => "701".to_owned(),
                Some("AgentLogin") => "620".to_owned(),
                _ => "600".to_owned(),
            },
        }
    }

    /// Returns the lead in the channel's variable, which only customers' channels have.
    pub fn lead(&self, channel: Ch) -> &'static str {
        match self.story.channels[channel].role {
            Role::CameIn { .. } | Role::DialedOut { .. } => LEAD.1,
            _ => "",
        }
    }
}
