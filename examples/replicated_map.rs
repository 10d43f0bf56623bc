//! A map that three programs at three daemons have alike.
//!
//! Updates are agreed messages, so all members apply them in one order. A member that joins, or
//! comes back from a minority, gets a copy of the map. The copy was made at the view in which the
//! member appeared, and is a message of its own: the updates since that view follow it. A member
//! that sees less than half of all members stops to write, because the others may go on without it.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::collections::BTreeMap;
use std::error::Error;

use manyflow_messages::{
    Client, ClientOptions, DaemonConfig, DaemonHandle, LinkConfig, LinkSecurity, Messages, start,
};
use serde_json::{Value, json};

/// The number of members that there are when all are up.
const MEMBERS: usize = 3;

type Failure = Box<dyn Error>;

/// One of the members.
struct Replica {
    client: Client,
    events: Messages,
    map: BTreeMap<String, Value>,
    /// The view since which this member waits for a copy of the map, and the updates since then.
    waiting: Option<(Value, Vec<Value>)>,
    members: usize,
}

impl Replica {
    async fn join(daemon: &DaemonHandle) -> Result<Replica, Failure> {
        let address = daemon.addresses().clients.ok_or("it serves no clients")?;
        let client = Client::connect(&address.to_string(), &ClientOptions::default()).await?;
        Ok(Replica {
            events: client.join("$MF.order.map").await?,
            client,
            map: BTreeMap::new(),
            waiting: None,
            members: 0,
        })
    }

    /// Sets a value, unless this member is in a minority.
    async fn put(&self, key: &str, value: u32) -> Result<bool, Failure> {
        let may_write = self.members * 2 > MEMBERS;
        if may_write {
            self.send(&json!({"key": key, "value": value})).await?;
        }
        Ok(may_write)
    }

    async fn send(&self, update: &Value) -> Result<(), Failure> {
        let subject = "$MF.agreed.map";
        Ok(self.client.publish(subject, update.to_string()).await?)
    }

    /// Handles the next update or view.
    async fn handle_next(&mut self) -> Result<(), Failure> {
        let message = self.events.next().await.ok_or("the group has ended")??;
        let event: Value = serde_json::from_slice(message.payload())?;
        match message.subject() {
            "$MF.views.map" => self.handle_view(&event).await?,
            _ => self.handle_update(event),
        }
        Ok(())
    }

    async fn handle_view(&mut self, view: &Value) -> Result<(), Failure> {
        let (Some(members), Some(stayed)) = (view["members"].as_array(), view["stayed"].as_array())
        else {
            return Ok(()); // The transitional signal.
        };
        self.members = members.len();
        let was_minority = view["cause"] == "network" && stayed.len() * 2 <= MEMBERS;
        if stayed.len() == members.len() || members.len() == 1 {
            return Ok(());
        }
        if was_minority || view["who"] == view["self"] {
            self.waiting = Some((view["view"].clone(), Vec::new()));
        } else if stayed[0] == view["self"] {
            let copy = json!({"copy": self.map, "of": view["view"]});
            self.send(&copy).await?;
        }
        Ok(())
    }

    fn handle_update(&mut self, update: Value) {
        if let (Value::Object(copy), Some((since, updates))) = (&update["copy"], &mut self.waiting)
        {
            if update["of"] == *since {
                self.map = copy.clone().into_iter().collect();
                let updates = core::mem::take(updates);
                self.waiting = None;
                updates
                    .into_iter()
                    .for_each(|update| self.handle_update(update));
            }
        } else if let Some((_, updates)) = &mut self.waiting {
            updates.push(update);
        } else if let Some(key) = update["key"].as_str() {
            self.map.insert(key.to_owned(), update["value"].clone());
        }
    }

    /// Handles events until this member sees this number of members.
    async fn wait_for_members(&mut self, count: usize) -> Result<(), Failure> {
        while self.members != count || self.waiting.is_some() {
            self.handle_next().await?;
        }
        Ok(())
    }

    /// Writes 100 values, and handles events until each of `writers` has written its last one.
    async fn write(&mut self, own: &str, writers: &[&str]) -> Result<(), Failure> {
        for number in 1..=100 {
            self.put("last", number).await?;
            self.put(own, number).await?;
        }
        let is_done = |map: &BTreeMap<String, Value>, key: &str| map.get(key) == Some(&json!(100));
        while !writers.iter().all(|key| is_done(&self.map, key)) {
            self.handle_next().await?;
        }
        Ok(())
    }
}

/// Starts a daemon that is linked with another one.
async fn daemon(name: &str, link: Option<(&str, &DaemonHandle)>) -> Result<DaemonHandle, Failure> {
    let mut config = DaemonConfig::new(name, LinkSecurity::Insecure);
    config.listen = Some("127.0.0.1:0".to_owned());
    config.clients = Some("127.0.0.1:0".to_owned());
    if let Some((name, to)) = link {
        let address = to.addresses().daemons.ok_or("it has no links")?;
        config.links = vec![LinkConfig {
            name: name.to_owned(),
            id: None,
            address: address.to_string(),
            weight: 1,
        }];
    }
    Ok(start(config).await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let north = daemon("north", None).await?;
    let east = daemon("east", Some(("north", &north))).await?;
    let south = daemon("south", Some(("east", &east))).await?;
    for daemon in [&north, &east, &south] {
        let mut status = daemon.status();
        status.wait_for(|status| status.daemons.len() == 3).await?;
    }
    let mut one = Replica::join(&north).await?;
    one.wait_for_members(1).await?;
    let mut two = Replica::join(&east).await?;
    tokio::try_join!(one.wait_for_members(2), two.wait_for_members(2))?;

    // Two write, and a third one joins in the middle.
    let writers = ["one", "two"];
    let third = async {
        let mut three = Replica::join(&south).await?;
        three.wait_for_members(3).await?;
        three.write("three", &["one", "two", "three"]).await?;
        Ok(three)
    };
    let first = async {
        one.write("one", &writers).await?;
        one.write("one", &["one", "two", "three"]).await
    };
    let second = async {
        two.write("two", &writers).await?;
        two.write("two", &["one", "two", "three"]).await
    };
    let ((), (), three) = tokio::try_join!(first, second, third)?;
    println!("north {:?}", one.map);

    // One daemon ends: the two others go on. Then another one does: the last stops to write.
    drop(three);
    south.stop().await;
    tokio::try_join!(one.wait_for_members(2), two.wait_for_members(2))?;
    assert!(one.put("majority", 1).await?, "two of three may write");
    drop(two);
    east.stop().await;
    one.wait_for_members(1).await?;
    assert!(!one.put("minority", 1).await?, "one of three may not");
    println!("north is alone and stops to write: {:?}", one.map);
    north.stop().await;
    Ok(())
}
