//! Prefixes of units of video to MPEG-TS, IVF or a byte stream: a file, a pipe, datagrams, or a
//! folder for browsers (HLS, RFC 8216).

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use manyflow_video::{Format, Played, Player};

use super::sink::{STDOUT, SinkError, unwritable};

/// The bytes of a datagram: seven packets of MPEG-TS, as receivers expect.
const DATAGRAM_BYTES: usize = 7 * 188;
/// The share of a unit's time in which its datagrams are sent. The rest absorbs the jitter of
/// units.
const PACED_SHARE: f64 = 0.9;
/// The segments that the playlist of a folder has, and those that are kept behind them for players
/// that have an older playlist.
const SEGMENTS: usize = 8;
const SEGMENTS_KEPT: usize = 4;
/// The maximum length of a segment in seconds, as the playlist announces it. A unit is shorter.
const SEGMENT_S_MAX: u32 = 2;
/// The playlist of a folder, and the page that plays it.
const PLAYLIST: &str = "live.m3u8";
const PAGE: (&str, &str) = ("index.html", include_str!("player.html"));
/// The extensions of files that hold a byte stream, without MPEG-TS or IVF.
const BYTE_STREAMS: [&str; 7] = ["h264", "264", "avc", "h265", "265", "hevc", "obu"];

/// Writes video in a sink's thread.
pub(super) struct VideoWriter {
    player: Player,
    target: Target,
    /// The output as the user has named it.
    name: PathBuf,
    bytes: Vec<u8>,
}

enum Target {
    /// Opened by the first write, because the system waits for the reader of a pipe.
    Unopened,
    Pipe(Box<dyn Write + Send>),
    Datagrams(UdpSocket),
    Folder(Playlist),
}

impl VideoWriter {
    /// Opens an output: `-` is standard output, `udp://HOST:PORT` takes datagrams, a folder gets a
    /// playlist, and anything else is a file or a named pipe. A file whose extension names a codec
    /// gets its byte stream without MPEG-TS or IVF.
    ///
    /// # Errors
    /// If the address cannot be sent to, or the folder not be written.
    pub(super) fn open(output: &str) -> Result<VideoWriter, SinkError> {
        let name = PathBuf::from(output);
        let extension = name.extension().and_then(|extension| extension.to_str());
        let format = match extension {
            Some(extension) if BYTE_STREAMS.contains(&extension) => Format::AnnexB,
            _ => Format::MpegTs,
        };
        let target = if let Some(address) = output.strip_prefix("udp://") {
            let socket = UdpSocket::bind("0.0.0.0:0").or_else(|_| UdpSocket::bind("[::]:0"));
            let socket = socket.map_err(unwritable(&name))?;
            socket.connect(address).map_err(unwritable(&name))?;
            Target::Datagrams(socket)
        } else if output.ends_with('/') || name.is_dir() {
            Target::Folder(Playlist::open(&name).map_err(unwritable(&name))?)
        } else {
            Target::Unopened
        };
        Ok(VideoWriter {
            player: Player::new(format),
            target,
            name,
            bytes: Vec::new(),
        })
    }

    /// Writes the pictures of a unit's prefix.
    ///
    /// # Errors
    /// If the stream is no video, or AV1 for an output that needs MPEG-TS, or the output cannot be
    /// written.
    pub(super) fn write(&mut self, number: u32, prefix: &[u8]) -> Result<(), SinkError> {
        self.bytes.clear();
        let played = self.player.play(number, prefix, &mut self.bytes);
        let played = played.map_err(|error| SinkError::Video(number, error))?;
        tracing::debug!(
            "unit {number}: {} of {} pictures",
            played.pictures,
            played.pictures_sent
        );
        if played.is_av1 && matches!(self.target, Target::Datagrams(_) | Target::Folder(_)) {
            return Err(SinkError::NoMpegTs(self.name.clone()));
        }
        if let Target::Unopened = self.target {
            let pipe: io::Result<Box<dyn Write + Send>> = match self.name == Path::new(STDOUT) {
                true => Ok(Box::new(io::stdout())),
                false => File::create(&self.name).map(|file| Box::new(file) as _),
            };
            self.target = Target::Pipe(pipe.map_err(unwritable(&self.name))?);
        }
        let written = match &mut self.target {
            Target::Unopened => Ok(()),
            Target::Pipe(pipe) => pipe.write_all(&self.bytes).and_then(|()| pipe.flush()),
            Target::Datagrams(socket) => {
                send(socket, &self.bytes, &played);
                Ok(())
            }
            Target::Folder(playlist) => playlist.write(number, &self.bytes, &played),
        };
        written.map_err(unwritable(&self.name))
    }
}

/// Sends the datagrams of a unit at the times of its pictures: a burst would overflow the buffer of
/// the socket that receives them. As with all datagrams, nobody has to receive them.
fn send(socket: &UdpSocket, bytes: &[u8], played: &Played) {
    let start = Instant::now();
    let ends = played.marks.iter().skip(1).map(|mark| mark.at);
    let mut at = 0;
    for (mark, end) in played.marks.iter().zip(ends.chain([bytes.len()])) {
        let due = mark.due.min(played.duration).mul_f64(PACED_SHARE);
        thread::sleep(due.saturating_sub(start.elapsed()));
        for datagram in bytes[at..end].chunks(DATAGRAM_BYTES) {
            let _ = socket.send(datagram);
        }
        at = end;
    }
}

/// A folder with the last units as segments, and their playlist.
struct Playlist {
    folder: PathBuf,
    segments: VecDeque<Segment>,
    /// The segments, and the discontinuities, that the playlist no longer has.
    removed: u64,
    removed_discontinuities: u64,
}

struct Segment {
    name: String,
    duration: Duration,
    /// Whether units before it are missing.
    is_discontinuous: bool,
}

impl Playlist {
    fn open(folder: &Path) -> io::Result<Playlist> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join(PAGE.0), PAGE.1)?;
        Ok(Playlist {
            folder: folder.to_owned(),
            segments: VecDeque::new(),
            removed: 0,
            removed_discontinuities: 0,
        })
    }

    /// Adds a unit. One without a picture is left out.
    fn write(&mut self, number: u32, bytes: &[u8], played: &Played) -> io::Result<()> {
        if played.pictures == 0 {
            return Ok(());
        }
        let name = format!("{number:010}.ts");
        fs::write(self.folder.join(&name), bytes)?;
        self.segments.push_back(Segment {
            name,
            duration: played.duration,
            is_discontinuous: !played.follows && !self.segments.is_empty(),
        });
        if self.segments.len() > SEGMENTS + SEGMENTS_KEPT
            && let Some(old) = self.segments.pop_front()
        {
            self.removed += 1;
            self.removed_discontinuities += u64::from(old.is_discontinuous);
            fs::remove_file(self.folder.join(old.name))?;
        }
        let part = self.folder.join(format!(".{PLAYLIST}"));
        fs::write(&part, self.text())?;
        fs::rename(part, self.folder.join(PLAYLIST))
    }

    fn text(&self) -> String {
        let hidden = self.segments.len().saturating_sub(SEGMENTS);
        let (old, shown) = (
            self.segments.iter().take(hidden),
            self.segments.iter().skip(hidden),
        );
        let discontinuities = old.filter(|segment| segment.is_discontinuous).count() as u64;
        let mut text = format!(
            "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:{SEGMENT_S_MAX}\n\
             #EXT-X-MEDIA-SEQUENCE:{}\n#EXT-X-DISCONTINUITY-SEQUENCE:{}\n",
            self.removed + hidden as u64,
            self.removed_discontinuities + discontinuities
        );
        for segment in shown {
            if segment.is_discontinuous {
                text.push_str("#EXT-X-DISCONTINUITY\n");
            }
            let seconds = segment.duration.as_secs_f64();
            // Writing to a string does not fail.
            let _ = writeln!(text, "#EXTINF:{seconds:.3},\n{}", segment.name);
        }
        text
    }
}
