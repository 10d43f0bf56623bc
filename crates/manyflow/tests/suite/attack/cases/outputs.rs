//! Pipes, sockets and devices where a receiver would write a file. `store` has those of `get`.

use crate::common::{
    assert_special, folder_with_file, listing, run, send, special_files, text, write_random,
};

#[test]
fn a_receiver_replaces_no_pipe_socket_or_device_and_the_other_files_arrive() {
    let folder = folder_with_file(20_000);
    let output = tempfile::tempdir().unwrap();
    let special = special_files(output.path());
    for path in &special {
        let name = path.file_name().unwrap();
        write_random(&folder.path().join(name), 20_000, 2);
    }
    let (_sender, url) = send(folder.path(), &["--bundle", "0B"]);
    let output_text = text(output.path());
    let ended = run(&["recv", &url, "--output", output_text, "--overwrite"]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    for path in &special {
        let reason = format!("{}: is not a regular file", path.display());
        assert!(ended.stderr.contains(&reason), "{ended:?}");
    }
    assert_special(&special);
    let received = std::fs::read(output.path().join("file")).unwrap();
    assert!(received == std::fs::read(folder.path().join("file")).unwrap());
    assert_eq!(
        listing(output.path()).len(),
        1 + special.len(),
        "nothing else is left"
    );
}
