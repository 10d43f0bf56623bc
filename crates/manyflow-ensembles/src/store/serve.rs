//! A member's answers on one connection.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use manyflow_store::{Member, Request, Shelf};
use tokio::task::JoinSet;

use super::Frames;

/// The most requests of one connection that a member handles at once. While one waits for the disk,
/// others compute digests, and the disk writes several chunks with one flush of its cache.
const PARALLEL: usize = 8;

/// Answers the requests of a connection, several at once, until the connection is over. Several
/// connections may share a member. A frame that is not a request is logged and ignored.
///
/// # Errors
/// The error with which the connection ended.
pub async fn serve_member<S>(frames: &impl Frames, member: &Arc<Member<S>>) -> io::Result<()>
where
    S: Shelf + Send + Sync + 'static,
{
    let mut answers: JoinSet<(u32, Bytes)> = JoinSet::new();
    loop {
        tokio::select! {
            Some(answer) = answers.join_next() => {
                let (key, answer) = answer?;
                frames.send(key, answer).await?;
            }
            received = frames.recv(), if answers.len() < PARALLEL => {
                let (_, frame) = received?;
                match Request::decode(&frame) {
                    Ok(request) => {
                        let member = Arc::clone(member);
                        let key = request.answer_key();
                        // A disk may take long to sync.
                        answers.spawn_blocking(move || (key, member.handle_request(&request).encode()));
                    }
                    Err(error) => {
                        tracing::warn!("a frame is not a request of the store: {error}");
                    }
                }
            }
        }
    }
}
