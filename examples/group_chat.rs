//! Two people chat in a group. They are clients of two daemons, which are linked. All of it is in
//! one process, over real sockets.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::time::Duration;

use manyflow_messages::{
    Client, ClientError, ClientOptions, DaemonConfig, DaemonHandle, LinkConfig, LinkSecurity,
    Messages, start,
};
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let north = start(config("north", None)).await?;
    let address = north.addresses().daemons.ok_or("north has no address")?;
    let south = start(config("south", Some(("north", address.to_string())))).await?;

    let (ann, bob) = (connect(&north).await?, connect(&south).await?);
    let heard = bob.join("chat.>").await?;
    let reading = tokio::spawn(read(bob, heard));
    // The link comes up after a moment. Until then, nobody answers Ann.
    while let Err(error) = ann.request("chat.hello", "anybody here?").await {
        println!("Ann waits: {error}");
        sleep(Duration::from_millis(50)).await;
    }
    for line in ["first", "second", "bye"] {
        ann.publish("chat.ann", line).await?;
    }
    ann.drain().await?;
    Ok(reading.await??)
}

/// Prints messages, and answers those that want an answer, until somebody says goodbye.
async fn read(client: Client, mut heard: Messages) -> Result<(), ClientError> {
    while let Some(message) = heard.next().await {
        let message = message?;
        let text = String::from_utf8_lossy(message.payload());
        println!("Bob reads in {}: {text}", message.subject());
        if let Some(reply) = message.reply() {
            client.publish(reply, "I am").await?;
        }
        if text == "bye" {
            break;
        }
    }
    client.drain().await
}

async fn connect(daemon: &DaemonHandle) -> Result<Client, Box<dyn Error>> {
    let address = daemon
        .addresses()
        .clients
        .ok_or("the daemon serves no clients")?;
    Ok(Client::connect(&address.to_string(), &ClientOptions::default()).await?)
}

fn config(name: &str, neighbour: Option<(&str, String)>) -> DaemonConfig {
    let link = |(name, address): (&str, String)| LinkConfig::new(name, &address);
    DaemonConfig {
        listen: Some("127.0.0.1:0".to_owned()),
        clients: Some("127.0.0.1:0".to_owned()),
        links: neighbour.map(link).into_iter().collect(),
        ..DaemonConfig::new(name, LinkSecurity::Insecure)
    }
}
