//! A map that three programs at three daemons have alike: see `map.rs`.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;

use manyflow_examples::map::{Answer, Operation, Replica, Request};
use manyflow_messages::{
    Client, ClientOptions, DaemonConfig, DaemonHandle, LinkConfig, LinkSecurity, start,
};
use tokio::sync::{mpsc, oneshot, watch};

type Failure = Box<dyn Error>;

/// A daemon with a replica, and the way to it.
struct Site {
    daemon: DaemonHandle,
    requests: mpsc::Sender<Request>,
    serving: watch::Receiver<usize>,
}

impl Site {
    /// Starts a daemon that is linked with another one, and a replica that is its client.
    async fn start(name: &str, link: Option<(&str, &Site)>) -> Result<Site, Failure> {
        let mut config = DaemonConfig::new(name, LinkSecurity::Insecure);
        config.listen = Some("127.0.0.1:0".to_owned());
        config.clients = Some("127.0.0.1:0".to_owned());
        if let Some((name, site)) = link {
            let address = site.daemon.addresses().daemons.ok_or("it has no links")?;
            config.links = vec![LinkConfig::new(name, &address.to_string())];
        }
        let daemon = start(config).await?;
        let address = daemon.addresses().clients.ok_or("it serves no clients")?;
        let client = Client::connect(&address.to_string(), &ClientOptions::default()).await?;
        let (requests, mut asked) = mpsc::channel(16);
        let (status, serving) = watch::channel(0);
        let replica = Replica::new(name, 3);
        tokio::spawn(async move { replica.run(client, &mut asked, &status).await });
        Ok(Site {
            daemon,
            requests,
            serving,
        })
    }

    async fn ask(&self, operation: Operation) -> Result<Answer, Failure> {
        let (answer, answered) = oneshot::channel();
        self.requests.send((operation, answer)).await?;
        Ok(answered.await.unwrap_or(Answer::Unknown))
    }

    async fn wait_for_replicas(&mut self, count: usize) -> Result<(), Failure> {
        self.serving.wait_for(|serving| *serving == count).await?;
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut north = Site::start("north", None).await?;
    let mut east = Site::start("east", Some(("north", &north))).await?;
    let mut south = Site::start("south", Some(("east", &east))).await?;
    for site in [&mut north, &mut east, &mut south] {
        site.wait_for_replicas(3).await?;
    }
    let key = || "chairs".to_owned();
    north.ask(Operation::Put(key(), 17)).await?;
    println!("south reads {:?}", south.ask(Operation::Get(key())).await?);

    // Both want to have one, at the same time.
    let take = |from| Operation::CompareAndSet(key(), Some(from), from - 1);
    let taken = tokio::try_join!(north.ask(take(17)), east.ask(take(17)))?;
    println!("north and east take one: {taken:?}");

    // Two of three go on. The last one stops: the others might have gone on without it.
    south.daemon.stop().await;
    for site in [&mut north, &mut east] {
        site.wait_for_replicas(2).await?;
    }
    println!("two replicas: {:?}", east.ask(take(16)).await?);
    east.daemon.stop().await;
    north.wait_for_replicas(0).await?;
    println!("one replica: {:?}", north.ask(Operation::Get(key())).await?);
    north.daemon.stop().await;
    Ok(())
}
