//! The command line, and the program that is measured.

use manyflow_testing::command_lines::{check_all_commands, examples};
use manyflow_testing::programs::{Ended, Manyflow, program, rig};
use serde_json::Value;

/// The commands that show examples in their help.
const WITH_EXAMPLES: [&str; 12] = [
    "bench live",
    "bench downloads",
    "bench heterogeneity",
    "bench loss",
    "bench relay",
    "bench stream",
    "bench switch",
    "bench group",
    "soak files",
    "soak overlay",
    "soak stream",
    "bench",
];

fn run(words: &[&str]) -> Ended {
    Manyflow::start(rig(words)).finish()
}

#[test]
fn help_and_wrong_options_are_the_same_everywhere() {
    let commands = check_all_commands(run);
    assert!(commands > 15, "{commands} commands");
}

#[test]
fn help_shows_examples_that_the_command_line_accepts() {
    let mut count = 0;
    for command in WITH_EXAMPLES {
        let words: Vec<_> = command.split(' ').chain(["--help"]).collect();
        let help = run(&words).succeeded("help").stdout;
        let examples = examples(&help);
        let examples = examples.iter().map(|line| line.trim_start_matches("sudo "));
        for example in examples.filter(|line| line.starts_with("manyflow")) {
            // With `--help` added, the command line is only checked for unknown options.
            let words: Vec<_> = example.split(' ').chain(["--help"]).collect();
            assert_eq!(words[0], "manyflow-rig", "{command}: {example}");
            run(&words[1..]).succeeded(example);
            count += 1;
        }
    }
    assert!(count >= 10, "{count}");
    let help = run(&["--help"]).succeeded("help");
    assert!(help.stdout.contains("Exit codes:"), "{help:?}");
}

#[test]
fn a_benchmark_names_the_program_that_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("manyflow-rig");
    std::fs::copy(program("manyflow-rig"), &alone).unwrap();
    let mut command = std::process::Command::new(alone);
    command.args(["bench", "scale", "--json"]);
    let ended = Manyflow::start(command).finish();
    assert_eq!(ended.code(), 1, "{ended:?}");
    let path = folder.path().join("manyflow");
    let path = path.to_str().unwrap();
    assert!(ended.stderr.contains(path), "{ended:?}");
    assert!(
        ended.stderr.contains("cargo build -p manyflow"),
        "{ended:?}"
    );
    let failed: Value = serde_json::from_str(ended.stdout.trim()).unwrap();
    assert_eq!(
        (&failed["event"], &failed["exit_code"]),
        (&"failed".into(), &1.into())
    );
}
