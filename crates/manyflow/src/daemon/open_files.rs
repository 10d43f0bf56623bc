//! The number of files that the process may open: each connection is one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The number of files that a daemon opens besides its clients: links, sockets, the log.
const OTHERS: u64 = 512;

/// Raises the limit of open files to the hard limit, which needs no privilege. Returns the number
/// of clients for which there is room, at most `clients`. If that is less, the log has the reason:
/// as a warning, if the file has `connections-max`.
pub(super) fn room_for(clients: usize, is_asked: bool) -> usize {
    let files = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) => match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
            Ok(()) => hard,
            Err(_) => soft,
        },
        Err(_) => return clients,
    };
    let room = room_in(files, clients);
    let reason = format_args!(
        "at most {room} clients instead of {clients} (connections-max): this process may open \
         {files} files; raise its hard limit (LimitNOFILE= of systemd, ulimit -Hn)"
    );
    match (room < clients, is_asked) {
        (true, true) => tracing::warn!("{reason}"),
        (true, false) => tracing::info!("{reason}"),
        (false, _) => {}
    }
    room
}

fn room_in(files: u64, clients: usize) -> usize {
    let room = files.saturating_sub(OTHERS).max(1);
    usize::try_from(room).map_or(clients, |room| room.min(clients))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_the_files_that_others_leave() {
        assert_eq!(room_in(1024, 65_536), 512);
        assert_eq!(room_in(1024, 100), 100);
        assert_eq!(room_in(10, 100), 1);
        assert_eq!(room_in(u64::MAX, 65_536), 65_536);
    }

    #[test]
    fn the_limit_becomes_the_hard_one() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(room_for(1, true), 1);
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
    }
}
