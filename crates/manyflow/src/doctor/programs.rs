//! Programs that some commands, tests and scripts start.

use std::path::PathBuf;

use super::{Check, Status};

/// A program, the commands that start it, and the package of Debian that has it.
struct Program {
    name: &'static str,
    check: &'static str,
    used_by: &'static str,
    package: &'static str,
}

/// Programs that commands and examples start. `ip` is one of the rights' checks, which starts it.
const PROGRAMS: [Program; 2] = [
    program(
        "openssl",
        "program-openssl",
        "keys that are not made by keygen",
        "openssl",
    ),
    program(
        "iperf3",
        "program-iperf3",
        "the examples of emulate",
        "iperf3",
    ),
];

/// The program of benchmarks and long tests, which most users do not have.
const RIG: &str = "manyflow-rig";

/// Programs that only [`RIG`] and tests start.
const PROGRAMS_OF_RIG: [Program; 5] = [
    program(
        "tshark",
        "program-tshark",
        "tests of captures and dissectors",
        "tshark",
    ),
    program(
        "nats-server",
        "program-nats-server",
        "manyflow-rig bench group",
        "nats-server",
    ),
    program(
        "haproxy",
        "program-haproxy",
        "manyflow-rig bench switch",
        "haproxy",
    ),
    program("uftp", "program-uftp", "manyflow-rig bench live", "uftp"),
    program("ns", "program-ns", "manyflow-rig bench sim", "ns2"),
];

const fn program(
    name: &'static str,
    check: &'static str,
    used_by: &'static str,
    package: &'static str,
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
    let own = std::env::current_exe().ok();
    let own = own.and_then(|path| Some(path.parent()?.to_owned()));
    let has_rig = find(RIG, folders.iter().chain(&own)).is_some();
    checks_in(&folders, has_rig)
}

/// Looks for the programs in these folders, and for those that only [`RIG`] starts if it is there.
fn checks_in(folders: &[PathBuf], has_rig: bool) -> Vec<Check> {
    let of_rig = PROGRAMS_OF_RIG.iter().filter(|_| has_rig);
    let programs = PROGRAMS.iter().chain(of_rig);
    programs.map(|program| program.check(folders)).collect()
}

fn find<'a>(name: &str, folders: impl IntoIterator<Item = &'a PathBuf>) -> Option<PathBuf> {
    let mut paths = folders.into_iter().map(|folder| folder.join(name));
    paths.find(is_executable)
}

impl Program {
    fn check(&self, folders: &[PathBuf]) -> Check {
        match find(self.name, folders) {
            Some(path) => Check::ok(self.check, path.display().to_string()),
            None => {
                let effect = format!("used by: {}", self.used_by);
                let check = Check::unmet(self.check, Status::Missing, "not on the PATH", effect);
                check.fix(format!("sudo apt-get install {}", self.package))
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
        let path = folder.path().join(PROGRAMS[0].name);
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

    #[test]
    fn programs_of_benchmarks_are_left_out_without_the_program_of_benchmarks() {
        let names = |has_rig| {
            let checks = checks_in(&[], has_rig);
            checks.iter().map(|check| check.name).collect::<Vec<_>>()
        };
        let (with, without) = (names(true), names(false));
        assert!(with.contains(&"program-haproxy") && with.contains(&"program-iperf3"));
        assert_eq!(without, ["program-openssl", "program-iperf3"]);
    }
}
