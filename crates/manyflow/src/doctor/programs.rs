//! Programs that some commands, tests and scripts start.

use std::path::PathBuf;

use super::{Check, Status};

/// A program, the commands that start it, and the package of Debian that has it.
struct Program {
    name: &'static str,
    check: &'static str,
    used_by: &'static str,
    package: Option<&'static str>,
}

const PROGRAMS: [Program; 8] = [
    program(
        "ip",
        "program-ip",
        "emulate, and tests between hosts",
        Some("iproute2"),
    ),
    program(
        "tshark",
        "program-tshark",
        "tests of captures and dissectors",
        Some("tshark"),
    ),
    program(
        "openssl",
        "program-openssl",
        "keys that are not made by keygen",
        Some("openssl"),
    ),
    program(
        "iperf3",
        "program-iperf3",
        "the examples of emulate",
        Some("iperf3"),
    ),
    program(
        "nats-server",
        "program-nats-server",
        "manyflow-rig bench group",
        Some("nats-server"),
    ),
    program(
        "haproxy",
        "program-haproxy",
        "manyflow-rig bench switch",
        Some("haproxy"),
    ),
    program(
        "uftp",
        "program-uftp",
        "manyflow-rig bench live",
        Some("uftp"),
    ),
    program("ns", "program-ns", "manyflow-rig bench sim", Some("ns2")),
];

const fn program(
    name: &'static str,
    check: &'static str,
    used_by: &'static str,
    package: Option<&'static str>,
) -> Program {
    Program {
        name,
        check,
        used_by,
        package,
    }
}

pub(super) fn checks() -> Vec<Check> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    PROGRAMS
        .iter()
        .map(|program| program.check(&folders))
        .collect()
}

impl Program {
    fn check(&self, folders: &[PathBuf]) -> Check {
        let found = folders
            .iter()
            .map(|folder| folder.join(self.name))
            .find(is_executable);
        match found {
            Some(path) => Check::ok(self.check, path.display().to_string()),
            None => {
                let effect = format!("used by: {}", self.used_by);
                let check = Check::unmet(self.check, Status::Missing, "not on the PATH", effect);
                match self.package {
                    Some(package) => check.fix(format!("sudo apt-get install {package}")),
                    None => check,
                }
            }
        }
    }
}

/// Whether this user may execute the file.
fn is_executable(path: &PathBuf) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_program_is_found_only_if_it_can_be_executed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ip");
        std::fs::write(&path, "").unwrap();
        let set = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, permissions).unwrap();
        };
        let check = || PROGRAMS[0].check(&[folder.path().to_owned()]);
        set(0o644);
        assert_eq!(check().status, Status::Missing);
        set(0o755);
        assert_eq!(check().status, Status::Ok);
    }
}
