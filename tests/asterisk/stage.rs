//! The environment of a scenario: an Asterisk with phones and carriers, callbridge, and a CRM.

use crate::bridge::{Bridge, line};
use crate::line::Line;
use crate::manager::{Manager, is_event};
use crate::pbx::{CELS, Pbx, Plan, free_tcp, free_udp};
use crate::phone::Phone;
use crate::relay::Relay;
use crate::system::{Driver, System};
use crate::truth::{Truth, number};
use anyhow::{Context, Result};
use callbridge_model::status::SourceState;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Phones and carriers, each with the placeholder of its port in the configuration.
const PHONES: [(&str, &str); 6] = [
    ("101", "PORT101"),
    ("102", "PORT102"),
    ("103", "PORT103"),
    ("105-desk", "PORT105"),
    ("city", "PORTCITY"),
    ("gsm", "PORTGSM"),
];

/// Everything that a scenario can use.
pub struct Stage {
    pub pbx: Pbx,
    /// A manager connection to the PBX.
    pub ami: Manager,
    /// callbridge and its CRM.
    pub bridge: Bridge,
    /// The connection between the PBX and callbridge.
    pub relay: Relay,
    phones: BTreeMap<String, Phone>,
    /// The port of 104, whose phone is off and never answers.
    _silent: UdpSocket,
}

/// Returns a time span of a scenario, from its seconds.
pub const fn seconds(seconds: f64) -> Duration {
    Duration::from_millis((seconds * 1000.0) as u64)
}

impl Stage {
    /// Starts everything.
    pub async fn new(system: System, mut plan: Plan) -> Result<Self> {
        // The phones know the PBX's address before it runs, and the PBX knows the phones'
        // addresses.
        let sip = SocketAddr::from(([127, 0, 0, 1], free_udp()?));
        let mut phones = BTreeMap::new();
        for (user, placeholder) in PHONES {
            let phone = Phone::new(user, sip).await?;
            plan.values.insert(placeholder, phone.port().to_string());
            phones.insert(user.to_owned(), phone);
        }
        let silent = UdpSocket::bind("127.0.0.1:0")?;
        plan.values
            .insert("PORT104", silent.local_addr()?.port().to_string());
        let lookup = free_tcp()?;
        plan.values.insert("LOOKUP", lookup.to_string());
        let pbx = Pbx::start(system, plan, sip).await?;
        let relay = Relay::start(pbx.ami()).await?;
        let file = pbx.file(CELS);
        let flags = [
            format!("--source=ami://callbridge@127.0.0.1:{}", relay.port()),
            format!("--catch-up=file://{}?format=cel-csv", file.display()),
        ];
        let ami = pbx.manager().await?;
        let mut bridge = Bridge::new(pbx.system.driver, &flags, lookup).await?;
        bridge.start().await?;
        Ok(Self {
            pbx,
            ami,
            bridge,
            relay,
            phones,
            _silent: silent,
        })
    }

    fn phone(&mut self, user: &str) -> Result<&mut Phone> {
        let phone = self.phones.get_mut(user);
        phone.with_context(|| format!("nobody is {user}"))
    }

    /// Lets customer `n` call one of the company's numbers over trunk `city`.
    pub async fn customer(&mut self, n: u32, number: &str) -> Result<(Line, Truth)> {
        self.customer_over("city", n, number).await
    }

    /// Lets customer `n` call over this trunk.
    pub async fn customer_over(
        &mut self,
        trunk: &'static str,
        n: u32,
        dialed: &str,
    ) -> Result<(Line, Truth)> {
        let truth = Truth::inbound(n, trunk, dialed);
        let line = self.caller(trunk, &number(n), dialed).await?;
        Ok((line, truth))
    }

    /// Lets a caller with this number call.
    pub async fn caller(&mut self, trunk: &str, number: &str, dialed: &str) -> Result<Line> {
        let caller = format!("<sip:{number}@127.0.0.1>");
        self.phone(trunk)?.dial(dialed, Some(&caller)).await
    }

    /// Lets the employee of this extension dial.
    pub async fn dial(&mut self, extension: &str, number: &str) -> Result<Line> {
        self.phone(extension)?.dial(number, None).await
    }

    /// Lets the employee of this extension fetch the call that is parked at 701. Returns when they
    /// are joined, half a second after the parking lot has answered.
    pub async fn fetch_parked_call(&mut self, extension: &str) -> Result<Line> {
        // A new connection, so that events of earlier fetches are not found.
        self.ami = self.pbx.manager().await?;
        self.dial_and_join(extension, "701", "UnParkedCall").await
    }

    /// Lets the employee of this extension pick up a ringing call. Returns when they are joined.
    /// With chan_sip, this is half a second after the employee's call is answered.
    pub async fn pick_up(&mut self, extension: &str, code: &str) -> Result<Line> {
        self.ami = self.pbx.manager().await?;
        self.dial_and_join(extension, code, "Pickup").await
    }

    async fn dial_and_join(&mut self, extension: &str, number: &str, event: &str) -> Result<Line> {
        let line = self.dial(extension, number).await?;
        line.wait_until_up().await?;
        let found = self.ami.wait_for(event, |message| is_event(message, event));
        found.await?;
        Ok(line)
    }

    /// Waits for a call to this phone or carrier, and lets it ring.
    pub async fn ring(&mut self, user: &str) -> Result<Line> {
        let line = self.next_call(user).await?;
        line.ring().await?;
        Ok(line)
    }

    /// Waits for a call to this phone or carrier, without answering it.
    pub async fn next_call(&mut self, user: &str) -> Result<Line> {
        self.phone(user)?.next_call().await
    }

    /// Waits for a call, rings for a second, and answers.
    pub async fn answer(&mut self, user: &str) -> Result<Line> {
        let line = self.ring(user).await?;
        line.continue_for(seconds(1.0)).await?;
        line.answer().await?;
        Ok(line)
    }

    /// Returns the driver of phones and carriers.
    pub fn driver(&self) -> Driver {
        self.pbx.system.driver
    }

    /// Waits for the channel of this phone or carrier, and returns its name.
    pub async fn channel(&mut self, user: &str) -> Result<String> {
        let begins = self.driver().device(user) + "-";
        self.ami.channel(&begins).await
    }

    /// Sends an AMI action for the channel of this phone.
    pub async fn send_action(
        &mut self,
        action: &str,
        user: &str,
        more: &[(&str, &str)],
    ) -> Result<()> {
        let channel = self.channel(user).await?;
        let mut fields = vec![("Channel", channel.as_str())];
        fields.extend_from_slice(more);
        self.ami.send_action(action, &fields).await.map(drop)
    }

    /// Redirects a channel into the dialplan of the employees.
    pub async fn redirect(&mut self, user: &str, extension: &str) -> Result<()> {
        let more = [
            ("Context", "internal"),
            ("Exten", extension),
            ("Priority", "1"),
        ];
        self.send_action("Redirect", user, &more).await
    }

    /// Transfers the other side of this phone's call over AMI.
    pub async fn transfer(&mut self, user: &str, extension: &str) -> Result<()> {
        let more = [("Context", "internal"), ("Exten", extension)];
        self.send_action("BlindTransfer", user, &more).await
    }

    /// Transfers the other side of this phone's call over AMI, with a consultation first.
    pub async fn consult(&mut self, user: &str, extension: &str) -> Result<()> {
        let more = [("Context", "internal"), ("Exten", extension)];
        self.send_action("Atxfer", user, &more).await
    }

    /// Cuts the connection between the PBX and callbridge. Returns when callbridge has noticed.
    pub async fn cut(&mut self) -> Result<()> {
        self.relay.cut();
        let noticed = self.bridge.wait_until("a line that is down", |status| {
            line(status) == Some(SourceState::Down)
        });
        noticed.await.map(drop)
    }

    /// Restores the connection. Returns when callbridge is connected again.
    pub async fn mend(&mut self) -> Result<()> {
        self.relay.mend();
        self.bridge.wait_until_connected().await
    }

    /// Ends everything that a scenario has left.
    pub async fn clear(&mut self) -> Result<()> {
        self.relay.mend();
        if self.bridge.is_down() {
            self.bridge.start().await?;
        }
        self.ami = self.pbx.manager().await?;
        self.ami.hang_up_all().await?;
        self.phones.values_mut().for_each(Phone::forget);
        Ok(())
    }
}
