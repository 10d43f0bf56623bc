//! Files through the chunk store: members in this process, on real disks, some of which are killed.
//!
//! The runtime's time is paused. It jumps to the next timer only when no disk is at work, so a slow
//! disk is no member that is gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use manyflow_ensembles::store::{
    DiskShelf, GetError, GetOptions, GetReport, MemoryService, PutError, PutOptions, PutReport,
    get, put,
};
use manyflow_store::{Address, Member, MemberName, Shelf, StoreConfig};
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

/// A folder with a disk for each member.
struct Lab {
    folder: TempDir,
    service: MemoryService<DiskShelf>,
}

impl Lab {
    fn new(members: usize) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let member = |number| {
            let name = MemberName::new(&format!("m{number}")).unwrap();
            let disk = folder.path().join(name.as_str());
            let shelf = DiskShelf::open(&disk, Some(name.clone())).unwrap();
            Member::new(name, shelf)
        };
        let service = MemoryService::new((0..members).map(member));
        Lab { folder, service }
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

    async fn put(&self, path: &Path, copies: u8) -> Result<PutReport, PutError> {
        put(&self.service, path, put_options(copies), |_| {}).await
    }

    async fn get(&self, output: &str) -> Result<GetReport, GetError> {
        get(&self.service, self.get_options(output), |_| {}).await
    }

    fn get_options(&self, output: &str) -> GetOptions {
        GetOptions {
            name: "file".to_owned(),
            version: None,
            output: self.path(output),
            overwrite: false,
            store: quick(2),
            patience: Duration::from_secs(5),
        }
    }

    /// Returns the files of a member's disk that hold chunks.
    fn chunks(&self, member: usize) -> Vec<PathBuf> {
        let folder = self.path(&format!("m{member}")).join("chunks");
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
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

fn put_options(copies: u8) -> PutOptions {
    PutOptions {
        chunk_bytes: 4 << 10,
        ..PutOptions::new("file", quick(copies), Duration::from_secs(5))
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_survives_the_loss_of_fewer_members_than_copies() {
    let lab = Lab::new(8);
    let source = lab.file("source", 1_000_001);
    let stored = lab.put(&source, 3).await.unwrap();
    assert_eq!(stored.manifest.chunks.len(), 245);
    assert!(
        stored
            .manifest
            .chunks
            .iter()
            .all(|chunk| chunk.members.len() == 3)
    );
    lab.service.kill(2);
    lab.service.kill(5);
    let read = lab.get("output").await.unwrap();
    assert_eq!(
        fs::read(lab.path("output")).unwrap(),
        fs::read(source).unwrap()
    );
    assert_eq!(read.counters.bytes.len(), 6, "{:?}", read.counters);
    assert_eq!(read.manifest, stored.manifest);
}

#[tokio::test(start_paused = true)]
async fn members_killed_in_the_middle_of_a_get_are_replaced() {
    let lab = Lab::new(8);
    let source = lab.file("source", 1_000_000);
    lab.put(&source, 3).await.unwrap();
    let has_killed = AtomicBool::new(false);
    let report = |progress: manyflow_ensembles::store::Progress| {
        if 2 * progress.bytes > progress.total && !has_killed.swap(true, Ordering::Relaxed) {
            lab.service.kill(0);
            lab.service.kill(1);
        }
    };
    get(&lab.service, lab.get_options("output"), report)
        .await
        .unwrap();
    assert!(has_killed.into_inner());
    assert_eq!(
        fs::read(lab.path("output")).unwrap(),
        fs::read(source).unwrap()
    );
}

#[tokio::test(start_paused = true)]
async fn a_chunk_without_copies_fails_the_get_and_leaves_no_output() {
    let lab = Lab::new(4);
    let source = lab.file("source", 200_000);
    lab.put(&source, 1).await.unwrap();
    // The manifest has one copy too; the member that holds it remains.
    let address = Address::of_name("file").hash().to_string();
    let holder = (0..4).find(|n| lab.path(&format!("m{n}/names/{address}")).exists());
    let killed = (holder.unwrap() + 1) % 4;
    lab.service.kill(killed);
    let error = lab.get("output").await.unwrap_err().to_string();
    assert!(
        error.contains("has no copy left: 3 members asked"),
        "{error}"
    );
    assert!(
        error.contains(&format!("it was stored on m{killed}")),
        "{error}"
    );
    assert!(!lab.path("output").exists());
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_get_continues_with_the_chunks_that_it_has() {
    let lab = Lab::new(4);
    let source = lab.file("source", 400_000);
    lab.put(&source, 2).await.unwrap();
    let (half, was_reached) = tokio::sync::oneshot::channel();
    let mut half = Some(half);
    let report = move |progress: manyflow_ensembles::store::Progress| {
        if 2 * progress.bytes > progress.total
            && let Some(half) = half.take()
        {
            half.send(()).unwrap();
        }
    };
    tokio::select! {
        biased;
        _ = was_reached => {}
        _ = get(&lab.service, lab.get_options("output"), report) => panic!("it was interrupted"),
    }
    assert!(!lab.path("output").exists());
    let read = lab.get("output").await.unwrap();
    let fetched: u64 = read.counters.bytes.values().sum();
    assert!(read.resumed_bytes > 100_000, "{read:?}");
    assert_eq!(read.resumed_bytes + fetched, 400_000);
    assert_eq!(
        fs::read(lab.path("output")).unwrap(),
        fs::read(source).unwrap()
    );
    let hidden = fs::read_dir(lab.folder.path()).unwrap();
    let hidden = hidden.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().ends_with(".partial")
    });
    assert_eq!(hidden.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn damaged_chunks_are_read_from_other_members() {
    let lab = Lab::new(3);
    let source = lab.file("source", 200_000);
    lab.put(&source, 2).await.unwrap();
    let damaged = lab.chunks(0);
    assert!(!damaged.is_empty());
    for chunk in &damaged {
        fs::write(chunk, "rot").unwrap();
    }
    let read = lab.get("output").await.unwrap();
    assert!(read.counters.missing > 0, "{:?}", read.counters);
    assert_eq!(
        fs::read(lab.path("output")).unwrap(),
        fs::read(source).unwrap()
    );
}

#[tokio::test(start_paused = true)]
async fn the_newest_file_of_a_name_is_read() {
    let lab = Lab::new(5);
    let [first, second] = [300, 70_000].map(|length| lab.file(&format!("f{length}"), length));
    let one = lab.put(&first, 2).await.unwrap();
    let two = lab.put(&second, 2).await.unwrap();
    assert!(!one.replaced && two.replaced);
    assert!(two.manifest.version > one.manifest.version);
    lab.get("output").await.unwrap();
    assert_eq!(
        fs::read(lab.path("output")).unwrap(),
        fs::read(second).unwrap()
    );
}

#[tokio::test(start_paused = true)]
async fn too_few_members_fail_the_put_with_the_number_of_copies() {
    let lab = Lab::new(2);
    let error = lab
        .put(&lab.file("source", 100), 3)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("chunk 0 has 2 of 3 copies (m"), "{error}");
    let missing = lab.get("output").await.unwrap_err().to_string();
    assert!(
        missing.contains("was found on none of the 2 members that answer"),
        "{missing}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_that_cannot_be_reached_is_reported() {
    let lab = Lab::new(1);
    lab.service.kill(0);
    let options = PutOptions {
        store: StoreConfig {
            silence_max: Duration::from_millis(500),
            ..quick(1)
        },
        ..put_options(1)
    };
    let source = lab.file("source", 100);
    let error = put(&lab.service, &source, options, |_| {})
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no member answered"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_file_and_an_existing_output() {
    let lab = Lab::new(2);
    lab.put(&lab.file("source", 0), 2).await.unwrap();
    lab.get("output").await.unwrap();
    assert_eq!(fs::read(lab.path("output")).unwrap(), b"");
    let error = lab.get("output").await.unwrap_err();
    assert!(matches!(error, GetError::Exists(_)), "{error}");
}

#[test]
fn a_restarted_member_has_its_chunks() {
    let lab = Lab::new(2);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        lab.put(&lab.file("source", 50_000), 2).await.unwrap();
    });
    drop(runtime);
    let Lab { folder, service } = lab;
    drop(service);
    let shelf = DiskShelf::open(&folder.path().join("m0"), None).unwrap();
    assert_eq!(shelf.list().unwrap().len(), 14, "13 chunks and a manifest");
}
