//! A member's answers on one connection.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use manyflow_store::{Member, Request, Shelf};

use super::Frames;

/// Answers the requests of a connection, one by one, until the connection is over. Several
/// connections may share a member. A frame that is not a request is logged and ignored.
///
/// # Errors
/// The error with which the connection ended.
pub async fn serve_member<S>(frames: &impl Frames, member: &Arc<Mutex<Member<S>>>) -> io::Result<()>
where
    S: Shelf + Send + 'static,
{
    loop {
        let (key, frame) = frames.recv().await?;
        let request = match Request::decode(&frame) {
            Ok(request) => request,
            Err(error) => {
                tracing::warn!("a frame is not a request of the store: {error}");
                continue;
            }
        };
        let member = Arc::clone(member);
        let handle = move || {
            let mut member = member.lock().unwrap_or_else(PoisonError::into_inner);
            member.handle_request(&request)
        };
        // A disk may take long to sync.
        let answer = tokio::task::spawn_blocking(handle).await?;
        frames.send(key, answer.encode()).await?;
    }
}
