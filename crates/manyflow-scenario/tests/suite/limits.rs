//! Tests that scenarios which would never end, or would use all memory, fail with an error that
//! names the cause.

use manyflow_scenario::Scenario;

/// Returns the reason why the only run of a scenario with nodes S and R failed.
fn failure(run: &str, link: &str, session: &str) -> String {
    let text = format!(
        r#"title = "Two hosts"
[run]
duration = "100 s"
{run}
[nodes]
names = ["S", "R"]
[[links]]
between = ["S", "R"]
{link}
[[sessions]]
name = "flow"
sender = "S"
receivers = ["R"]
{session}
"#
    );
    let scenario = Scenario::parse("two.toml", &text, false);
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let jobs = scenario.jobs().unwrap();
    scenario.run_one(jobs[0]).unwrap_err().message
}

#[test]
fn a_loop_that_takes_no_time_is_named() {
    for protocol in ["tcp", "acp"] {
        let message = failure("", "", &format!("protocol = \"{protocol}\""));
        for part in ["time stands still", "`flow/R` at R", "link S-R", "link R-S"] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn the_error_of_a_full_link_names_the_link_and_the_limit() {
    let session = "protocol = \"cbr\"\ncbr.rate = \"8 Mbit/s\"";
    let run = "carried-packets-max = 500";
    for link in ["rate = \"1 Mbit/s\"", "delay = \"1000000 s\""] {
        let message = failure(run, link, session);
        for part in [
            "`run.carried-packets-max`",
            "more than 500 packets",
            "S-R",
            "`queue`",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
}
