use manyflow_store::{Member, Outcome, Query, Reply, Request};

use super::*;

fn chunk(text: &'static str) -> (Address, Bytes) {
    let bytes = Bytes::from_static(text.as_bytes());
    (Address::Chunk(Hash::of(&bytes)), bytes)
}

#[test]
fn chunks_survive_a_restart_and_incomplete_files_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let (address, bytes) = chunk("some bytes");
    let shelf = DiskShelf::open(folder.path(), None).unwrap();
    let name = shelf.name().clone();
    shelf.put(address, &bytes).unwrap();
    drop(shelf);
    let partial = folder.path().join("chunks/.partial-1");
    fs::write(&partial, "half").unwrap();
    let shelf = DiskShelf::open(folder.path(), None).unwrap();
    assert_eq!(shelf.get(address).unwrap(), Some(bytes));
    assert_eq!(shelf.list().unwrap(), [address]);
    assert_eq!(*shelf.name(), name, "the name belongs to the disk");
    assert!(!partial.exists());
}

#[test]
fn damaged_bytes_are_set_aside_and_can_be_put_again() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = DiskShelf::open(folder.path(), None).unwrap();
    let (address, bytes) = chunk("some bytes");
    shelf.put(address, &bytes).unwrap();
    let file = address.hash().to_string();
    fs::write(folder.path().join("chunks").join(&file), "same bytes").unwrap();
    assert_eq!(shelf.get(address).unwrap(), None);
    let aside = fs::read(folder.path().join("damaged").join(&file)).unwrap();
    assert_eq!(aside, b"same bytes");
    shelf.put(address, &bytes).unwrap();
    assert_eq!(shelf.get(address).unwrap(), Some(bytes));
}

#[test]
fn bytes_that_were_put_after_others_had_read_damaged_ones_stay_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = DiskShelf::open(folder.path(), None).unwrap();
    let (address, bytes) = chunk("some bytes");
    shelf.put(address, &bytes).unwrap();
    shelf.set_aside(address).unwrap();
    assert_eq!(shelf.get(address).unwrap(), Some(bytes));
    assert_eq!(shelf.usage().unwrap().damaged, 0);
}

#[test]
fn two_readers_of_damaged_bytes_both_miss_them() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = DiskShelf::open(folder.path(), None).unwrap();
    let (address, _) = chunk("some bytes");
    let file = address.hash().to_string();
    fs::write(folder.path().join("chunks").join(&file), "same bytes").unwrap();
    assert_eq!(shelf.get(address).unwrap(), None);
    // The other reader had read the bytes before the first one moved them.
    shelf.set_aside(address).unwrap();
    assert_eq!(shelf.usage().unwrap().damaged, 1);
}

#[test]
fn a_damaged_manifest_is_not_taken_for_a_name_that_was_never_put() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = DiskShelf::open(folder.path(), None).unwrap();
    let address = Address::of_name("file");
    assert_eq!(shelf.get(address).unwrap(), None);
    let path = folder.path().join("names").join(address.hash().to_string());
    fs::write(path, "no manifest").unwrap();
    for _ in 0..2 {
        let error = shelf.get(address).unwrap_err().to_string();
        assert!(error.contains("its manifest is damaged"), "{error}");
    }
}

#[test]
fn a_damaged_manifest_does_not_keep_garbage_from_being_removed() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = DiskShelf::open(folder.path(), None).unwrap();
    let (name, (address, bytes)) = (Address::of_name("file"), chunk("some bytes"));
    shelf.put(address, &bytes).unwrap();
    let path = folder.path().join("names").join(name.hash().to_string());
    fs::write(path, "no manifest").unwrap();
    shelf.get(name).unwrap_err();
    let member = Member::new(shelf.name().clone(), shelf);
    let query = Query::Remove {
        age_s: 0,
        member: None,
        items: vec![(name, 1), (address, 0)],
    };
    let answer = member.handle_request(&Request::Query { id: 1, query });
    let removed = Reply::Removed {
        count: 1,
        bytes: 10,
    };
    assert_eq!(answer.outcome, Outcome::Reply(removed));
}

#[test]
fn a_folder_has_one_process_and_one_name() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| MemberName::new(name).unwrap());
    let shelf = DiskShelf::open(folder.path(), Some(a)).unwrap();
    let busy = DiskShelf::open(folder.path(), None).unwrap_err();
    assert!(matches!(busy, DiskError::Busy(_)), "{busy}");
    drop(shelf);
    let other = DiskShelf::open(folder.path(), Some(b)).unwrap_err();
    assert!(
        other.to_string().contains("belongs to member a, not b"),
        "{other}"
    );
}

#[test]
fn a_failed_write_says_why_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = DiskShelf::open(folder.path(), None).unwrap();
    let (address, bytes) = chunk("some bytes");
    shelf.put(address, &bytes).unwrap();
    // A folder in the place of a chunk cannot be replaced by a file.
    let (other, others) = chunk("other bytes");
    fs::create_dir(folder.path().join("chunks").join(other.hash().to_string())).unwrap();
    let error = shelf.put(other, &others).unwrap_err();
    assert!(error.to_string().starts_with("cannot write"), "{error}");
    assert_eq!(shelf.get(address).unwrap(), Some(bytes));
    let partial = fs::read_dir(folder.path().join("chunks")).unwrap();
    assert_eq!(partial.count(), 2, "no incomplete file remains");
}

#[test]
fn chunks_leave_room_for_removals() {
    let folder = tempfile::tempdir().unwrap();
    let mut shelf = DiskShelf::open(folder.path(), None).unwrap();
    shelf.reserved = shelf.disk_bytes().unwrap();
    let (address, bytes) = chunk("some bytes");
    let error = shelf.put(address, &bytes).unwrap_err();
    assert_eq!(error.to_string(), "the disk is full; make room");
    let removal = Manifest {
        is_removed: true,
        ..Manifest::empty("file", 1)
    };
    let bytes = removal.encode().unwrap();
    shelf.put(Address::of_name("file"), &bytes).unwrap();
}

#[test]
fn bytes_have_an_age_that_a_refresh_ends_and_can_be_removed() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = DiskShelf::open(folder.path(), None).unwrap();
    let (address, bytes) = chunk("some bytes");
    assert_eq!(shelf.find(address).unwrap(), None);
    shelf.put(address, &bytes).unwrap();
    let path = folder
        .path()
        .join("chunks")
        .join(address.hash().to_string());
    let hour = Duration::from_secs(3600);
    let file = File::open(&path).unwrap();
    file.set_modified(SystemTime::now() - hour).unwrap();
    let held = shelf.find(address).unwrap().unwrap();
    assert!(held.bytes == 10 && held.age >= hour, "{held:?}");
    assert!(shelf.refresh(address).unwrap());
    assert!(shelf.find(address).unwrap().unwrap().age < hour);
    assert_eq!(shelf.remove(address, hour).unwrap(), None, "it is young");
    // A time in the future does not make a file old.
    file.set_modified(SystemTime::now() + hour).unwrap();
    assert_eq!(shelf.find(address).unwrap().unwrap().age, Duration::ZERO);
    let usage = shelf.usage().unwrap();
    assert_eq!((usage.chunks, usage.chunk_bytes, usage.names), (1, 10, 0));
    assert!(usage.free_bytes > 0 && usage.disk_bytes >= usage.free_bytes);
    assert_eq!(shelf.remove(address, Duration::ZERO).unwrap(), Some(10));
    assert_eq!(shelf.remove(address, Duration::ZERO).unwrap(), None);
    assert!(!shelf.refresh(address).unwrap());
    assert_eq!(shelf.get(address).unwrap(), None);
}

#[test]
fn several_files_are_written_at_once_and_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = DiskShelf::open(folder.path(), None).unwrap();
    let manifest = |name| {
        let manifest = Manifest::empty(name, 1);
        (Address::of_name(name), manifest.encode().unwrap())
    };
    let items: Vec<_> = ["a", "b", "c", "d"].map(manifest).into();
    shelf.put_all(&items).unwrap();
    drop(shelf);
    let shelf = DiskShelf::open(folder.path(), None).unwrap();
    for (address, bytes) in items {
        assert_eq!(shelf.get(address).unwrap(), Some(bytes));
    }
    assert_eq!(shelf.list().unwrap().len(), 4);
}
