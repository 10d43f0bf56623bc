//! Maintenance of a chunk store: members in this process, on real disks, that are lost and join.
//!
//! The runtime's time is paused, as in `anypoint_store`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use manyflow_ensembles::store::{
    Connect, DiskShelf, GcOptions, GetError, GetOptions, MemoryService, PutError, PutOptions,
    PutReport, RepairMode, RepairOptions, RepairReport, StoreClient, StoreError, get, put,
};
use manyflow_store::{Member, MemberName, StoreConfig, UploadError};
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(5);

/// A folder with a disk for each member.
struct Lab {
    folder: TempDir,
    service: Arc<MemoryService<DiskShelf>>,
    client: StoreClient<Service>,
}

/// A service that the test and its client share.
struct Service(Arc<MemoryService<DiskShelf>>);

impl Connect for Service {
    type Frames = <MemoryService<DiskShelf> as Connect>::Frames;

    async fn connect(&self) -> std::io::Result<Self::Frames> {
        self.0.connect().await
    }
}

impl Lab {
    fn new(members: usize) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let all = (0..members).map(|number| member(folder.path(), number));
        let service = Arc::new(MemoryService::new(all));
        let client = StoreClient::new(Service(Arc::clone(&service)), quick(2), PATIENCE);
        Lab {
            folder,
            service,
            client,
        }
    }

    /// Starts another member.
    fn start(&self, number: usize) {
        self.service
            .start(number, member(self.folder.path(), number));
    }

    /// Removes a member and its disk.
    fn lose(&self, number: usize) {
        self.service.kill(number);
        fs::remove_dir_all(self.disk(number)).unwrap();
    }

    fn disk(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("m{number}"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file of random bytes.
    fn file(&self, name: &str, length: usize) -> PathBuf {
        let random = &mut rand_pcg::Pcg64Mcg::seed_from_u64(length as u64);
        let bytes: Vec<u8> = (0..length).map(|_| random.random::<u8>()).collect();
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    async fn put(&self, name: &str, length: usize) -> PutReport {
        self.put_with(name, length, |_| {}).await.unwrap()
    }

    async fn put_with(
        &self,
        name: &str,
        length: usize,
        change: impl FnOnce(&mut PutOptions),
    ) -> Result<PutReport, PutError> {
        let source = self.file(&source_of(name, length), length);
        let mut options = PutOptions {
            chunk_bytes: 4 << 10,
            ..PutOptions::new(name, quick(2), PATIENCE)
        };
        change(&mut options);
        put(&*self.service, &source, options, |_| {}).await
    }

    /// Reads a file, and returns its length.
    async fn get(&self, name: &str, version: Option<u64>) -> Result<usize, GetError> {
        let output = self.path("output");
        let options = GetOptions {
            name: name.to_owned(),
            version,
            output: output.clone(),
            overwrite: true,
            store: quick(2),
            patience: PATIENCE,
        };
        get(&*self.service, options, |_| {}).await?;
        let length = fs::metadata(&output).unwrap().len() as usize;
        let source = self.path(&source_of(name, length));
        assert!(fs::read(output).unwrap() == fs::read(source).unwrap());
        Ok(length)
    }

    async fn repair(&self, mode: RepairMode) -> RepairReport {
        self.repair_with(mode, false).await
    }

    async fn repair_with(&self, mode: RepairMode, is_deep: bool) -> RepairReport {
        let options = RepairOptions {
            mode,
            is_deep,
            rate: None,
        };
        self.client.repair(options, |_| {}).await.unwrap()
    }

    async fn collect(&self, age: Duration) -> Result<(u64, u64), StoreError> {
        let options = GcOptions { age, is_dry: false };
        let report = self.client.collect_garbage(&options).await?;
        println!("{report:?}");
        Ok((report.chunks, report.manifests))
    }

    /// Returns the number of chunks on each member that has a disk.
    fn chunks(&self, members: usize) -> Vec<usize> {
        let count = |number| {
            fs::read_dir(self.disk(number).join("chunks"))
                .unwrap()
                .count()
        };
        (0..members).map(count).collect()
    }
}

/// Returns the name of the file on disk that was put under a name.
fn source_of(name: &str, length: usize) -> String {
    format!("source-{}-{length}", name.replace('/', "-"))
}

fn member(folder: &Path, number: usize) -> Member<DiskShelf> {
    let name = MemberName::new(&format!("m{number}")).unwrap();
    let shelf = DiskShelf::open(&folder.join(name.as_str()), Some(name.clone())).unwrap();
    Member::new(name, shelf)
}

/// Parameters that find out soon that a member is gone.
fn quick(copies: u8) -> StoreConfig {
    StoreConfig {
        copies,
        window_bytes: 64 << 10,
        minimum_timeout: Duration::from_millis(100),
        round_delay: Duration::from_millis(20),
        ..StoreConfig::default()
    }
}

/// Makes all files of a folder older.
fn age(folder: &Path, by: Duration) {
    for entry in fs::read_dir(folder).unwrap() {
        let file = fs::File::open(entry.unwrap().path()).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        file.set_modified(modified - by).unwrap();
    }
}

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::test(start_paused = true)]
async fn three_of_five_members_are_lost_one_after_the_other_and_every_byte_remains() {
    let lab = Lab::new(5);
    lab.put("large", 1_000_001).await;
    lab.put("small", 10).await;
    lab.put("empty", 0).await;
    for lost in [3, 0, 4] {
        lab.lose(lost);
        let before = lab.repair(RepairMode::Verify).await;
        assert!(
            !before.is_sound() && before.lost_files.is_empty(),
            "{before:?}"
        );
        assert!(before.short[&1] > 50, "{before:?}");
        assert_eq!(before.copied, 0);
        let repaired = lab.repair(RepairMode::Repair).await;
        assert!(repaired.is_sound(), "{repaired:?}");
        assert_eq!(repaired.copied, before.short[&1]);
        let after = lab.repair(RepairMode::Verify).await;
        assert!(after.is_sound() && after.short.is_empty(), "{after:?}");
        assert_eq!(after.short_manifests, 0);
    }
    for (name, length) in [("large", 1_000_001), ("small", 10), ("empty", 0)] {
        assert_eq!(lab.get(name, None).await.unwrap(), length);
    }
    // With two members, the third copy of a file has no place, and the report says so.
    lab.put_with("narrow", 5_000, |options| options.store.copies = 2)
        .await
        .unwrap();
    lab.lose(1);
    let alone = lab.repair(RepairMode::Repair).await;
    assert!(
        !alone.is_sound() && alone.lost_files.is_empty(),
        "{alone:?}"
    );
    assert_eq!(lab.get("narrow", None).await.unwrap(), 5_000);
}

#[tokio::test(start_paused = true)]
async fn files_of_which_every_copy_is_lost_are_named() {
    let lab = Lab::new(4);
    lab.put("whole", 100_000).await;
    let gone = lab.put("gone", 4_000).await;
    let hash = gone.manifest.chunks[0].hash.to_string();
    for number in 0..4 {
        let _ = fs::remove_file(lab.disk(number).join("chunks").join(&hash));
    }
    for mode in [RepairMode::Verify, RepairMode::Repair] {
        let report = lab.repair(mode).await;
        assert_eq!(report.lost_files, ["gone"], "{report:?}");
        assert_eq!(report.short, BTreeMap::from([(0, 1)]));
        assert!(!report.is_sound());
    }
}

#[tokio::test(start_paused = true)]
async fn damaged_chunks_are_found_by_reading_and_replaced() {
    let lab = Lab::new(4);
    lab.put("file", 100_000).await;
    let damaged = fs::read_dir(lab.disk(1).join("chunks")).unwrap();
    let damaged: Vec<_> = damaged.map(|entry| entry.unwrap().path()).take(3).collect();
    damaged
        .iter()
        .for_each(|path| fs::write(path, "rot").unwrap());
    assert!(lab.repair(RepairMode::Verify).await.is_sound());
    let read = lab.repair_with(RepairMode::Verify, true).await;
    assert_eq!(read.short, BTreeMap::from([(1, 3)]));
    assert_eq!(lab.repair(RepairMode::Repair).await.copied, 3);
    assert!(lab.repair_with(RepairMode::Verify, true).await.is_sound());
    let usage = lab.client.usage().await.unwrap();
    assert_eq!(usage[1].1.damaged, 3, "{usage:?}");
}

#[tokio::test(start_paused = true)]
async fn garbage_of_replaced_and_removed_files_is_collected_when_it_is_old() {
    let lab = Lab::new(3);
    lab.put("kept", 50_000).await;
    lab.put("replaced", 20_000).await;
    lab.put("replaced", 30_000).await;
    lab.put("removed", 40_000).await;
    lab.client.remove("removed", None).await.unwrap();
    assert!(matches!(
        lab.get("removed", None).await,
        Err(GetError::NotFound { .. })
    ));
    let again = lab.client.remove("removed", None).await;
    assert!(matches!(
        again,
        Err(StoreError::Find(GetError::NotFound { .. }))
    ));

    assert_eq!(
        lab.collect(DAY).await.unwrap(),
        (0, 0),
        "everything is young"
    );
    let before: usize = lab.chunks(3).iter().sum();
    (0..3).for_each(|number| age(&lab.disk(number).join("chunks"), 2 * DAY));
    // A put of the same bytes makes its chunks young.
    lab.put("removed", 40_000).await;
    lab.client.remove("removed", None).await.unwrap();
    assert_eq!(
        lab.collect(DAY).await.unwrap().0,
        2 * 5,
        "chunks of the replaced file"
    );
    (0..3).for_each(|number| age(&lab.disk(number).join("chunks"), 2 * DAY));
    assert_eq!(
        lab.collect(DAY).await.unwrap().0,
        2 * 10,
        "chunks of the removed file"
    );
    let after: usize = lab.chunks(3).iter().sum();
    assert_eq!(before - after, 30);
    assert_eq!(lab.get("kept", None).await.unwrap(), 50_000);
    assert_eq!(lab.get("replaced", None).await.unwrap(), 30_000);

    // Records of removed names are removed, too, and the name stays removed.
    (0..3).for_each(|number| age(&lab.disk(number).join("names"), 2 * DAY));
    let mut manifests = 0;
    for _ in 0..2 {
        manifests += lab.collect(DAY).await.unwrap().1;
    }
    assert!(manifests >= 2, "{manifests}");
    let names: usize = (0..3)
        .map(|n| fs::read_dir(lab.disk(n).join("names")).unwrap().count())
        .sum();
    assert_eq!(names, 4, "two files with two manifests each");
    assert!(matches!(
        lab.get("removed", None).await,
        Err(GetError::NotFound { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn garbage_is_not_collected_while_a_member_that_files_name_is_away() {
    let lab = Lab::new(4);
    lab.put("file", 200_000).await;
    lab.lose(2);
    let refused = lab.collect(Duration::ZERO).await.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("does not answer: m2"), "{text}");
    lab.repair(RepairMode::Repair).await;
    assert_eq!(lab.collect(Duration::ZERO).await.unwrap().0, 0);
    assert_eq!(lab.get("file", None).await.unwrap(), 200_000);
}

#[tokio::test(start_paused = true)]
async fn a_rebalance_moves_chunks_to_members_that_have_joined() {
    let lab = Lab::new(3);
    lab.put("file", 1_000_000).await;
    let before: usize = lab.chunks(3).iter().sum();
    lab.start(3);
    lab.start(4);
    let report = lab.repair(RepairMode::Rebalance).await;
    assert!(report.is_sound() && report.moved > 0, "{report:?}");
    assert!(
        report.moved >= report.copied,
        "some chunks move with both copies: {report:?}"
    );
    let chunks = lab.chunks(5);
    assert_eq!(chunks.iter().sum::<usize>(), before, "{chunks:?}");
    let fair = before / 5;
    assert!(
        chunks
            .iter()
            .all(|count| (fair / 2..2 * fair).contains(count)),
        "{chunks:?}"
    );
    assert_eq!(lab.repair(RepairMode::Rebalance).await.copied, 0);
    assert!(lab.repair(RepairMode::Verify).await.is_sound());
    // Each chunk is found at the first member that is asked.
    let options = GetOptions {
        name: "file".to_owned(),
        version: None,
        output: lab.path("output"),
        overwrite: true,
        store: quick(2),
        patience: PATIENCE,
    };
    let read = get(&*lab.service, options, |_| {}).await.unwrap();
    assert_eq!((read.counters.missing, read.counters.bytes.len()), (0, 5));
}

#[tokio::test(start_paused = true)]
async fn earlier_versions_can_be_read_until_as_many_newer_ones_exist() {
    let lab = Lab::new(3);
    let mut versions = Vec::new();
    for length in [10_000, 20_000, 30_000, 40_000] {
        let stored = lab
            .put_with("file", length, |options| options.keep = 2)
            .await
            .unwrap();
        versions.push(stored.manifest.version);
    }
    (0..3).for_each(|number| age(&lab.disk(number).join("chunks"), 2 * DAY));
    let (collected, _) = lab.collect(DAY).await.unwrap();
    assert!(collected >= 2 * 3, "the chunks of the first version");
    for (version, length) in versions.iter().zip([10_000, 20_000, 30_000, 40_000]) {
        let read = lab.get("file", Some(*version)).await;
        match length {
            10_000 => {
                let text = read.unwrap_err().to_string();
                assert!(text.contains("has no version") && text.contains(&versions[1].to_string()));
            }
            _ => assert_eq!(read.unwrap(), length),
        }
    }
    // A repair restores copies of earlier versions, too.
    lab.lose(1);
    assert!(lab.repair(RepairMode::Repair).await.is_sound());
    lab.lose(0);
    assert_eq!(lab.get("file", Some(versions[1])).await.unwrap(), 20_000);
}

#[tokio::test(start_paused = true)]
async fn one_of_several_puts_that_replace_the_same_version_succeeds() {
    let lab = Lab::new(4);
    let first = lab
        .put_with("file", 1, |options| options.expected = Some(0))
        .await
        .unwrap();
    let version = first.manifest.version;
    let stale = lab
        .put_with("file", 2, |options| options.expected = Some(0))
        .await;
    let held = version;
    assert!(matches!(stale, Err(PutError::Upload(UploadError::Conflict { held: h })) if h == held));
    let replace = |length| lab.put_with("file", length, move |o| o.expected = Some(version));
    let puts = tokio::join!(replace(11), replace(12), replace(13), replace(14));
    let succeeded = [puts.0, puts.1, puts.2, puts.3].map(|put| put.is_ok());
    assert_eq!(
        succeeded.iter().filter(|is_ok| **is_ok).count(),
        1,
        "{succeeded:?}"
    );
    let winner = 11 + succeeded.iter().position(|is_ok| *is_ok).unwrap();
    assert_eq!(lab.get("file", None).await.unwrap(), winner);
}

#[tokio::test(start_paused = true)]
async fn small_files_share_chunks_and_are_read_one_by_one() {
    let lab = Lab::new(4);
    let lengths: Vec<usize> = (0..300).map(|n| n * 97 % 20_000).collect();
    let files: Vec<_> = lengths
        .iter()
        .map(|length| {
            (
                format!("f{length}"),
                lab.file(&format!("source-f{length}-{length}"), *length),
            )
        })
        .collect();
    let mut stored = 0;
    lab.client
        .put_packed(files.clone(), |_, report| {
            assert!(!report.replaced);
            stored += 1;
        })
        .await
        .unwrap();
    assert_eq!(stored, 300);
    let chunks: usize = lab.chunks(4).iter().sum();
    let bytes: usize = lengths.iter().sum();
    assert!(
        chunks <= 2 * (bytes / 900_000 + 1),
        "{chunks} copies of chunks"
    );
    lab.lose(1);
    for length in lengths.iter().step_by(23) {
        assert_eq!(lab.get(&format!("f{length}"), None).await.unwrap(), *length);
    }
    assert!(lab.repair(RepairMode::Repair).await.is_sound());
    // The same files again replace the first ones.
    let mut replaced = 0;
    lab.client
        .put_packed(files, |_, report| replaced += usize::from(report.replaced))
        .await
        .unwrap();
    assert_eq!(replaced, 300);
}

#[tokio::test(start_paused = true)]
async fn parts_of_files_are_read_in_order() {
    let lab = Lab::new(3);
    let manifest = lab.put("file", 50_001).await.manifest;
    let bytes = fs::read(lab.path("source-file-50001")).unwrap();
    for part in [
        0..0,
        0..1,
        4_095..4_097,
        10_000..50_001,
        50_000..50_001,
        0..50_001,
    ] {
        let read = lab.client.read(&manifest, part.clone()).await.unwrap();
        assert!(
            read.concat() == bytes[part.start as usize..part.end as usize],
            "{part:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn names_are_listed_in_order_with_what_members_lack() {
    let lab = Lab::new(3);
    for name in ["b/2", "a", "b/1", "c"] {
        lab.put(name, 100).await;
    }
    lab.client.remove("c", None).await.unwrap();
    let page = lab.client.list("", "").await.unwrap();
    let present = page
        .files
        .iter()
        .filter(|(_, file)| !file.newest.is_removed);
    let names: Vec<_> = present.map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b/1", "b/2"]);
    assert_eq!((page.next, page.members.len()), (None, 3));
    let behind = lab.client.list("b/", "b/1").await.unwrap();
    assert_eq!(behind.files.keys().collect::<Vec<_>>(), ["b/2"]);
    let file = &behind.files["b/2"];
    assert_eq!(
        (file.holders.len(), file.newest.size, file.newest.copies),
        (2, 100, 2)
    );
    assert!(
        file.newest.version
            <= SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap()
                .as_millis() as u64
    );
}
