//! Ordered groups at a daemon of a simulated overlay.

use std::collections::{BTreeMap, VecDeque};

use manyflow_core::time::Time;
use manyflow_core::{ConfigError, Contents, EndpointId};
use manyflow_overlay::{self as overlay, Agent, ClientFrame, Daemon, DaemonId, GroupId, OriginSeq};

use crate::attachment::Attachment;
use crate::clients::Outgoing;
use crate::config::OrderConfig;
use crate::event::{Delivery, Event};
use crate::names::{ClientId, Service};

/// The number of the group that carries the streams of a simulated overlay.
const STREAMS: GroupId = GroupId(u32::MAX);

/// The bytes at the beginning of a simulated message: when it was ready.
const READY_BYTES: usize = 4;

/// The agent of a simulated daemon whose clients are in ordered groups.
///
/// The daemon takes part from time zero on, whether or not it has clients. Members must read their
/// messages at once: nobody waits for them.
#[derive(Debug)]
pub struct OrderedClients {
    config: OrderConfig,
    here: DaemonId,
    /// The services of the messages to each group; [`Service::Agreed`] to others.
    services: BTreeMap<GroupId, Service>,
    attachment: Option<Attachment>,
    users: BTreeMap<EndpointId, ClientId>,
    endpoints: BTreeMap<ClientId, EndpointId>,
    /// The clients of the overlay by which messages enter.
    senders: BTreeMap<overlay::ClientId, ClientId>,
    delivered: u64,
    frames: VecDeque<(EndpointId, ClientFrame, Contents)>,
}

impl OrderedClients {
    /// Returns the agent of daemon number `here`.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn new(
        config: OrderConfig,
        here: DaemonId,
        services: BTreeMap<GroupId, Service>,
    ) -> Result<OrderedClients, ConfigError> {
        config.check()?;
        Ok(OrderedClients {
            config,
            here,
            services,
            attachment: None,
            users: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            senders: BTreeMap::new(),
            delivered: 0,
            frames: VecDeque::new(),
        })
    }

    fn attach(&mut self, now: Time, daemon: &mut Daemon<Contents>) {
        if self.attachment.is_some() {
            return;
        }
        let client = daemon.connect(now, 100);
        daemon.handle_client(
            now,
            client,
            &ClientFrame::Join(STREAMS),
            Contents::default(),
        );
        let config = self.config.clone();
        let attached = Attachment::new(config, daemon, self.here, client, STREAMS);
        self.attachment = attached.ok();
        debug_assert!(self.attachment.is_some(), "the parameters are checked");
    }

    fn connect(&mut self, now: Time, daemon: &mut Daemon<Contents>, from: EndpointId, share: u16) {
        self.attach(now, daemon);
        let name = format!("#{}#{}", from.0, self.here.0);
        if let Some(attachment) = &mut self.attachment
            && let Ok((user, client)) = attachment.connect(now, daemon, &name, share)
        {
            self.users.insert(from, user);
            self.endpoints.insert(user, from);
            self.senders.insert(client, user);
        }
    }

    fn disconnect(&mut self, now: Time, daemon: &mut Daemon<Contents>, from: EndpointId) {
        if let Some(user) = self.users.remove(&from)
            && let Some(attachment) = &mut self.attachment
        {
            self.endpoints.remove(&user);
            if let Some(client) = attachment.disconnect(now, daemon, user) {
                self.senders.remove(&client);
            }
        }
    }

    /// Returns the message that stands for `length` bytes that were ready at `sent_us`.
    fn payload(sent_us: u32, length: u32) -> Vec<u8> {
        let mut bytes = sent_us.to_be_bytes().to_vec();
        bytes.resize(READY_BYTES.max(length as usize), 0);
        bytes
    }

    /// Returns the frame that hands a message to a member.
    fn deliver(&mut self, delivery: &Delivery) -> Option<(EndpointId, ClientFrame, Contents)> {
        let to = *self.endpoints.get(&delivery.to)?;
        let (_, daemon) = delivery.sender.rsplit_once('#')?;
        let ready = delivery.payload.first_chunk::<READY_BYTES>()?;
        self.delivered += 1;
        let data = overlay::Data {
            group: delivery.groups().next().and_then(number)?,
            version: 0,
            sequence: OriginSeq::new(self.delivered),
            sender: overlay::ClientId(0),
            sent_us: u32::from_be_bytes(*ready),
        };
        let origin = DaemonId(daemon.parse().ok()?);
        let length = delivery.payload.len() as u32;
        let frame = ClientFrame::Deliver {
            origin,
            data,
            layered: false,
        };
        Some((to, frame, length.into()))
    }

    fn show(&mut self, event: &Event) {
        let frame = match event {
            Event::Delivered(delivery) => self.deliver(delivery),
            Event::View(view) => {
                let to = self.endpoints.get(&view.to).copied();
                to.zip(number(&view.group)).map(|(to, group)| {
                    let members = view.members.len() as u32;
                    let frame = ClientFrame::View { group, members };
                    (to, frame, Contents::default())
                })
            }
            _ => None,
        };
        self.frames.extend(frame);
    }
}

/// Returns the name of a group.
fn name(group: GroupId) -> String {
    format!("g{}", group.0)
}

/// Returns the number of the group with this name.
fn number(name: &str) -> Option<GroupId> {
    Some(GroupId(name.strip_prefix('g')?.parse().ok()?))
}

impl Agent for OrderedClients {
    fn handle_client(
        &mut self,
        now: Time,
        daemon: &mut Daemon<Contents>,
        from: EndpointId,
        frame: &ClientFrame,
        payload: Contents,
    ) {
        match *frame {
            ClientFrame::Connect { priority } => return self.connect(now, daemon, from, priority),
            ClientFrame::Disconnect => return self.disconnect(now, daemon, from),
            _ => {}
        }
        let (Some(user), Some(attachment)) = (self.users.get(&from), &mut self.attachment) else {
            return;
        };
        let done = match *frame {
            ClientFrame::Join(group) => attachment.join(now, *user, &name(group)),
            ClientFrame::Leave(group) => attachment.leave(now, *user, &name(group)),
            ClientFrame::Send {
                groups, sent_us, ..
            } => {
                let names: Vec<String> = groups.as_slice().iter().copied().map(name).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let service = self.services.get(&groups.first()).copied();
                let message = Outgoing {
                    service: service.unwrap_or(Service::Agreed),
                    groups: &names,
                    kind: 0,
                    self_discard: false,
                    payload: &OrderedClients::payload(sent_us, payload.length()),
                };
                attachment.send(now, daemon, *user, &message)
            }
            _ => Ok(()),
        };
        debug_assert_eq!(done, Ok(()), "the names are names");
    }

    fn handle_frame(
        &mut self,
        now: Time,
        daemon: &mut Daemon<Contents>,
        to: overlay::ClientId,
        frame: ClientFrame,
        payload: Contents,
    ) {
        let Some(attachment) = &mut self.attachment else {
            return;
        };
        match frame {
            ClientFrame::Deliver { origin, data, .. } if to == attachment.client() => {
                attachment.handle_message(now, origin, &data, payload);
                let took = ClientFrame::Took { messages: 1 };
                daemon.handle_client(now, to, &took, Contents::default());
            }
            ClientFrame::Ready => {
                if let Some(user) = self.senders.get(&to)
                    && attachment.handle_ready(now, daemon, *user)
                    && let Some(endpoint) = self.endpoints.get(user)
                {
                    let frame = (*endpoint, ClientFrame::Ready, Contents::default());
                    self.frames.push_back(frame);
                }
            }
            _ => {}
        }
    }

    fn poll_client(&mut self) -> Option<(EndpointId, ClientFrame, Contents)> {
        self.frames.pop_front()
    }

    fn serve(&mut self, now: Time, daemon: &mut Daemon<Contents>) -> bool {
        let Some(attachment) = &mut self.attachment else {
            return false;
        };
        let mut any = attachment.update_peers(now, daemon);
        let events: Vec<Event> = core::iter::from_fn(|| attachment.poll_event()).collect();
        any |= !events.is_empty() | attachment.transmit(now, daemon);
        events.iter().for_each(|event| self.show(event));
        any
    }

    fn handle_timeout(&mut self, now: Time, daemon: &mut Daemon<Contents>) {
        self.attach(now, daemon);
        if let Some(attachment) = &mut self.attachment {
            attachment.handle_timeout(now);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        match &self.attachment {
            Some(attachment) => attachment.poll_timeout(),
            None => Some(Time::ZERO),
        }
    }
}
