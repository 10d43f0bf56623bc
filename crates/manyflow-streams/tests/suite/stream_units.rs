//! Sources and sinks of streams, on files, pipes and programs.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use manyflow_layered::unit::pattern::{self, Size};
use manyflow_streams::{Input, Output, Sink, SinkError, Source, SourceConfig, SourceError};
use manyflow_testing::LIMIT;
use serde_json::{Value, json};

/// Fast enough that no test waits.
const FPS: Option<f64> = Some(1_000.0);

fn source(input: Input) -> Source {
    Source::open(SourceConfig { input, fps: FPS }).expect("the source opens")
}

async fn units(source: &mut Source, count: usize) -> Vec<Bytes> {
    let mut units = Vec::new();
    while units.len() < count
        && let Some(unit) = source.next().await.expect("a unit")
    {
        units.push(unit);
    }
    units
}

fn folder(path: &Path, is_repeated: bool) -> Input {
    Input::Folder {
        folder: path.to_owned(),
        is_repeated,
    }
}

#[tokio::test]
async fn a_folder_gives_its_files_by_name_and_can_be_repeated() {
    let files = tempfile::tempdir().unwrap();
    for (name, unit) in [("b", "2"), ("a", "1"), ("c", "3"), (".hidden", "0")] {
        fs::write(files.path().join(name), unit).unwrap();
    }
    fs::create_dir(files.path().join("d")).unwrap();
    let once = units(&mut source(folder(files.path(), false)), 10).await;
    assert_eq!(once, ["1", "2", "3"]);
    let repeated = units(&mut source(folder(files.path(), true)), 5).await;
    assert_eq!(repeated, ["1", "2", "3", "1", "2"]);
}

#[tokio::test]
async fn the_test_picture_gives_units_that_decode() {
    let size = Size::new(40, 30).unwrap();
    let mut source = source(Input::Pattern(size));
    assert_eq!(source.interval().as_millis(), 1);
    let units = units(&mut source, 3).await;
    for (number, unit) in units.iter().enumerate() {
        let picture = pattern::decode(unit).unwrap();
        assert_eq!(picture, pattern::Picture::draw(number as u32, size));
    }
}

#[tokio::test]
async fn units_of_a_sink_come_back_from_a_pipe_and_a_program() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("units");
    let mut sink = Sink::open(Output::Pipe(path.clone())).unwrap();
    for number in 0..3 {
        let unit = vec![number as u8; number * 1_000];
        assert!(sink.push(number as u32, unit.into()).unwrap());
    }
    let stats = sink.finish().await.unwrap();
    assert_eq!((stats.written, stats.dropped), (3, 0));
    let program = format!("cat '{}'", path.display());
    for input in [Input::Pipe(path.clone()), Input::Program(program)] {
        let mut source = Source::open(SourceConfig { input, fps: None }).unwrap();
        let lengths: Vec<usize> = units(&mut source, 10)
            .await
            .iter()
            .map(Bytes::len)
            .collect();
        assert_eq!(lengths, [0, 1_000, 2_000]);
    }
}

#[tokio::test]
async fn a_sink_writes_a_file_for_each_unit() {
    let files = tempfile::tempdir().unwrap();
    let folder = files.path().join("new");
    let extension = "j2k".to_owned();
    let mut sink = Sink::open(Output::Folder {
        folder: folder.clone(),
        extension,
    })
    .unwrap();
    sink.push(7, Bytes::from_static(b"seven")).unwrap();
    sink.push(u32::MAX, Bytes::from_static(b"last")).unwrap();
    sink.finish().await.unwrap();
    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["0000000007.j2k", "4294967295.j2k"]);
    assert_eq!(fs::read(folder.join("0000000007.j2k")).unwrap(), b"seven");
}

#[tokio::test]
async fn units_replace_no_pipe_or_socket() {
    let files = tempfile::tempdir().unwrap();
    let pipe = files.path().join("0000000007.j2k");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Where a unit is written before it has its name.
    let socket = files.path().join(".0000000008.part");
    let _bound = UnixListener::bind(&socket).unwrap();
    for (number, kept) in [(7, &pipe), (8, &socket)] {
        let mut sink = Sink::open(Output::Folder {
            folder: files.path().to_owned(),
            extension: "j2k".to_owned(),
        })
        .unwrap();
        sink.push(number, Bytes::from_static(b"unit")).unwrap();
        let error = sink.finish().await.unwrap_err();
        assert!(
            matches!(&error, SinkError::Special(path) if path == kept),
            "{error}"
        );
        let kind = fs::symlink_metadata(kept).unwrap().file_type();
        assert!(!kind.is_file(), "{} was replaced", kept.display());
    }
}

#[tokio::test]
async fn rows_go_through_a_source_and_a_sink_and_prefixes_are_valid_text() {
    let files = tempfile::tempdir().unwrap();
    let (from, to) = (files.path().join("in.csv"), files.path().join("out.csv"));
    let rows: Vec<String> = (0..250).map(|row| format!("{row},\"a, b\"")).collect();
    let text = format!("row,text\n{}\n", rows.join("\n"));
    fs::write(&from, &text).unwrap();
    let input = Input::Rows {
        path: from,
        columns: Vec::new(),
    };
    let units = units(&mut source(input), 10).await;
    assert_eq!(units.len(), 3, "100 rows each");
    for percent in [100, 40] {
        let mut sink = Sink::open(Output::Pipe(to.clone())).unwrap();
        for (number, unit) in units.iter().enumerate() {
            let prefix = unit.slice(..unit.len() * percent / 100);
            sink.push(number as u32, prefix).unwrap();
        }
        sink.finish().await.unwrap();
        let written = fs::read_to_string(&to).unwrap();
        if percent == 100 {
            assert_eq!(written, text);
            continue;
        }
        let mut lines = written.lines();
        assert_eq!(lines.next(), Some("row,text"));
        let mut all = rows.iter();
        let kept: Vec<&str> = lines.collect();
        assert!((60..150).contains(&kept.len()), "{} rows", kept.len());
        assert!(kept.iter().all(|row| all.any(|known| known == row)));
    }
}

#[tokio::test]
async fn a_prefix_of_rows_by_columns_has_the_important_ones_of_all_rows() {
    let files = tempfile::tempdir().unwrap();
    let (from, to) = (
        files.path().join("in.jsonl"),
        files.path().join("out.jsonl"),
    );
    let row = |row: usize| format!("{{\"note\":\"{row:040}\",\"speed\":{row}.5,\"time\":{row}}}");
    let rows: Vec<String> = (0..200).map(row).collect();
    fs::write(&from, rows.join("\n")).unwrap();
    let input = Input::Rows {
        path: from,
        columns: vec!["time".to_owned(), "speed".to_owned()],
    };
    let units = units(&mut source(input), 10).await;
    let mut sink = Sink::open(Output::Pipe(to.clone())).unwrap();
    for (number, unit) in units.iter().enumerate() {
        let prefix = unit.slice(..unit.len() / 2);
        sink.push(number as u32, prefix).unwrap();
    }
    sink.finish().await.unwrap();
    let written = fs::read_to_string(&to).unwrap();
    let written: Vec<Value> = written
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(written.len(), 200, "all rows");
    for (number, row) in written.iter().enumerate() {
        assert_eq!(
            (&row["time"], &row["speed"]),
            (&json!(number), &json!(number as f64 + 0.5))
        );
    }
    let notes = written
        .iter()
        .filter(|row| row.get("note").is_some())
        .count();
    assert!((20..150).contains(&notes), "{notes} of the long column");
}

#[tokio::test]
async fn a_program_gets_the_units_and_its_failure_is_reported() {
    let files = tempfile::tempdir().unwrap();
    let copy = files.path().join("copy");
    let mut sink = Sink::open(Output::Program(format!("cat > '{}'", copy.display()))).unwrap();
    sink.push(0, Bytes::from_static(b"unit")).unwrap();
    sink.finish().await.unwrap();
    assert_eq!(fs::read(&copy).unwrap(), b"\0\0\0\x04unit");

    let sink = Sink::open(Output::Program("cat > /dev/null; exit 3".to_owned())).unwrap();
    let error = sink.finish().await.unwrap_err();
    assert!(
        matches!(&error, SinkError::Program { reason, .. } if reason.contains('3')),
        "{error}"
    );
}

#[tokio::test]
async fn a_program_that_does_not_read_costs_units_but_no_time() {
    // Its input takes some 64 KiB, and the queue 1,024 units.
    let mut sink = Sink::open(Output::Program("exec sleep 1000".to_owned())).unwrap();
    let unit = Bytes::from(vec![0; 50_000]);
    let pushed = (0..1_200)
        .filter(|number| sink.push(*number, unit.clone()).unwrap())
        .count();
    assert!(
        (1_024..=1_027).contains(&pushed),
        "{pushed} units were queued"
    );
    assert_eq!(sink.stats().dropped, 1_200 - pushed as u64);
    // The queue is bounded in bytes, too; a single unit always fits.
    let mut sink = Sink::open(Output::Program("exec sleep 1000".to_owned())).unwrap();
    let huge = Bytes::from(vec![0; 40 << 20]);
    assert!(sink.push(0, huge.clone()).unwrap());
    assert!(!sink.push(1, huge).unwrap());
}

#[tokio::test]
async fn a_program_that_has_ended_is_an_error_of_a_later_unit() {
    let mut sink = Sink::open(Output::Program("exec true".to_owned())).unwrap();
    let unit = Bytes::from(vec![0; 1 << 20]);
    let ended = async {
        loop {
            if let Err(error) = sink.push(0, unit.clone()) {
                return error;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let error = tokio::time::timeout(LIMIT, ended).await;
    let error = error.expect("the program has ended");
    assert!(error.to_string().contains("`exec true`"), "{error}");
}

async fn error_of(input: Input) -> SourceError {
    match Source::open(SourceConfig { input, fps: FPS }) {
        Ok(mut source) => loop {
            match source.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("no error"),
                Err(error) => break error,
            }
        },
        Err(error) => error,
    }
}

#[tokio::test]
async fn errors_name_the_file_or_the_program() {
    let files = tempfile::tempdir().unwrap();
    let missing = files.path().join("missing");
    let unframed = files.path().join("unframed");
    fs::write(&unframed, "\u{ff}some text without lengths").unwrap();
    let cases = [
        (folder(files.path().join("none").as_path(), false), "none"),
        (Input::Pipe(missing), "missing"),
        (Input::Pipe(unframed), "unframed"),
        (
            Input::Program("printf '\\0\\0\\0\\5ab'".to_owned()),
            "middle of a unit",
        ),
        (Input::Program("exit 4".to_owned()), "`exit 4` failed"),
    ];
    for (input, wanted) in cases {
        let error = error_of(input).await.to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let empty = tempfile::tempdir().unwrap();
    // Nobody is invited to a stream of units that are not there.
    let missing = empty.path().join("missing");
    for input in [
        Input::Pipe(missing.clone()),
        Input::Video(missing.display().to_string()),
        Input::Rows {
            path: missing,
            columns: Vec::new(),
        },
    ] {
        let opened = Source::open(SourceConfig { input, fps: None });
        let error = opened.err().unwrap();
        assert!(matches!(error, SourceError::Unreadable { .. }), "{error}");
    }
    let error = error_of(folder(empty.path(), false)).await;
    assert!(matches!(error, SourceError::NoFiles(_)), "{error}");
    let config = SourceConfig {
        input: Input::Pipe("-".into()),
        fps: Some(f64::NAN),
    };
    assert!(matches!(Source::open(config), Err(SourceError::Fps(_))));
}

/// The program of `contrib` that encodes and decodes a time series.
const SAMPLES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../contrib/python/progressive_samples.py"
);

#[tokio::test]
async fn the_python_program_writes_units_and_decodes_their_prefixes() {
    let check = std::process::Command::new(SAMPLES)
        .arg("--self-test")
        .output();
    assert!(check.unwrap().status.success(), "its examples hold");
    let mut source = source(Input::Program(format!("'{SAMPLES}' encode --units 3")));
    let units = units(&mut source, 10).await;
    assert_eq!(units.len(), 3);

    let files = tempfile::tempdir().unwrap();
    let errors = files.path().join("errors");
    let decode = format!("'{SAMPLES}' decode > '{}'", errors.display());
    let mut sink = Sink::open(Output::Program(decode)).unwrap();
    for (number, unit) in units.iter().enumerate() {
        let prefix = unit.slice(..unit.len() * (number + 1) / 3);
        sink.push(number as u32, prefix).unwrap();
    }
    sink.finish().await.unwrap();
    let text = fs::read_to_string(&errors).unwrap();
    let error = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
    let errors: Vec<f64> = text.lines().map(error).collect();
    assert!(
        matches!(errors[..], [a, b, 0.0] if a > 0.0 && b > 0.0),
        "{text}"
    );
}

#[tokio::test]
async fn an_extension_that_leads_to_another_folder_is_refused() {
    let home = tempfile::tempdir().unwrap();
    for extension in ["../x", "/x"] {
        let output = Output::Folder {
            folder: home.path().join("units"),
            extension: extension.to_owned(),
        };
        let error = Sink::open(output).unwrap_err().to_string();
        assert!(error.contains(extension), "{error}");
    }
}
