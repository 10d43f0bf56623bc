//! Tests of generators, and of the names of nodes and links.

use std::sync::Arc;

use crate::files::parse;
use manyflow_scenario::{Reach, Topology};

fn topology(nodes: &str, links: &str) -> Result<Topology, String> {
    let text = format!("title = \"t\"\n[run]\nduration = \"1 s\"\n[nodes]\n{nodes}\n{links}");
    let scenario = parse(&text).map_err(|error| error.to_string())?;
    Ok(Topology::new(&scenario.cell(0).unwrap().schema).unwrap())
}

#[test]
fn generators_make_the_expected_numbers_of_nodes_and_links() {
    for (nodes, links, counts) in [
        (
            "names = [\"A\", \"B\", \"C\"]",
            "[[links]]\nchain = [\"A\", \"B\", \"C\"]",
            (3, 4),
        ),
        ("groups = { H = 6 }", "[[links]]\nchain = [\"H\"]", (6, 10)),
        (
            "names = [\"hub\"]\ngroups = { H = 9 }",
            "[[links]]\nbetween = [\"hub\", \"H\"]",
            (10, 18),
        ),
        (
            "names = [\"hub\"]\ngroups = { H = 9 }",
            "[[links]]\nbetween = [\"hub\", \"H\"]\none-way = true",
            (10, 9),
        ),
        (
            "trees.T = { depth = 4, children = 2 }",
            "[[links]]\nall-of = \"T\"",
            (31, 60),
        ),
        (
            "trees.T = { depth = 2, children = 10 }",
            "[[links]]\nall-of = \"T\"",
            (111, 220),
        ),
        (
            "random.G = { nodes = 20, links = 40 }",
            "[[links]]\nall-of = \"G\"",
            (20, 80),
        ),
        (
            "dumbbells.D = { left = 3, right = 4 }",
            "[[links]]\nall-of = \"D\"",
            (9, 16),
        ),
        (
            "names = [\"l\", \"r\"]\ngroups = { A = 3, B = 3 }",
            "[[links]]\nbetween = [\"A\", \"l\"]\n[[links]]\nbetween = [\"l\", \"r\"]\n[[links]]\nbetween = [\"r\", \"B\"]",
            (8, 14),
        ),
    ] {
        let made = topology(nodes, links).unwrap();
        assert_eq!((made.nodes.len(), made.links.len()), counts, "{nodes}");
    }
}

#[test]
fn generators_refuse_impossible_parameters() {
    for (nodes, why) in [
        (
            "trees.T = { depth = 60, children = 2 }",
            "nodes: a scenario has from 1 to 5000000 nodes",
        ),
        (
            "random.G = { nodes = 20, links = 18 }",
            "20 nodes take from 19 to 190",
        ),
        (
            "dumbbells.D = { left = 0, right = 1 }",
            "`nodes.dumbbells.D.left`: 0 nodes: a scenario has from 1 to 5000000 nodes",
        ),
        (
            "dumbbells.D = { left = 1 }",
            "`nodes.dumbbells.D`: the key `right` is missing",
        ),
        (
            "trees.D = { depth = 1, children = 2 }\ndumbbells.D = { left = 1, right = 1 }",
            "`nodes.dumbbells.D`: there is a node called `D`",
        ),
        ("names = [\"A\", \"A\"]", "two nodes called `A`"),
    ] {
        let error = topology(nodes, "").unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_trees_nodes_are_numbered_row_by_row() {
    let links = "[[links]]\nall-of = \"T\"\nrate = \"6 Mbit/s\"\ndelay = \"5 ms\"\n\
                 [[links]]\nbetween = [\"T-1\", \"T-3\"]\nrate = \"1 Mbit/s\"";
    let made = topology("trees.T = { depth = 4, children = 2 }", links).unwrap();
    let leaves = made.nodes_named("T-leaves").unwrap();
    let names: Vec<&str> = leaves.map(|n| made.nodes.get(n)).collect();
    assert_eq!((names[0], names[15]), ("T-15", "T-30"));
    // A later entry changes only the properties that it gives.
    let [changed] = made.links_named("T-1-T-3").unwrap()[..] else {
        panic!("there is one such link")
    };
    let config = &made.links[changed as usize].config;
    assert_eq!(config.rate.unwrap().bits_per_s(), 1_000_000);
    assert_eq!(config.delay.as_millis(), 5);
    assert_eq!(made.both_directions("T-3-T-1").unwrap().len(), 1);
}

#[test]
fn generated_nodes_and_their_links_are_found_by_name() {
    let nodes =
        "names = [\"S\", \"a-b\"]\ngroups = { H = 12 }\ntrees.T = { depth = 1, children = 3 }";
    let links = "[[links]]\nname = \"fan\"\nbetween = [\"a-b\", \"H\"]\n[[links]]\nall-of = \"T\"\n\
                 [[links]]\nbetween = [\"S\", \"a-b\"]";
    let made = topology(nodes, links).unwrap();
    assert_eq!(made.nodes_named("H-11"), Ok(13..14));
    assert_eq!(made.nodes_named("H"), Ok(2..14));
    assert_eq!(made.nodes_named("T-leaves"), Ok(15..18));
    for unknown in ["H-12", "H-007", "H-+1", "H-", "T-leaves-0", "a-b-0", "-1"] {
        assert!(made.nodes_named(unknown).is_err(), "{unknown}");
    }
    let ends = |name: &str| {
        let links = made.links_named(name).unwrap();
        let ends = |&link: &u32| (made.links[link as usize].from, made.links[link as usize].to);
        links.iter().map(ends).collect::<Vec<_>>()
    };
    assert_eq!(ends("S-a-b"), [(0, 1)]);
    assert_eq!(ends("H-11-a-b"), [(13, 1)]);
    assert_eq!(ends("T-0-T-3"), [(14, 17)]);
    assert_eq!(ends("fan").len(), 12);
    assert!(made.links_named("S-H-1").is_err());
    let error = topology("names = [\"H-3\"]\ngroups = { H = 4 }", "").unwrap_err();
    assert!(error.contains("two nodes called `H-3`"), "{error}");
    let error = topology("groups = { H = 4, H-3 = 2 }", "").unwrap_err();
    assert!(error.contains("there is a node called `H-3`"), "{error}");
}

#[test]
fn links_that_are_configured_alike_share_their_configuration() {
    let links = "[[links]]\nall-of = \"T\"\ndelay = \"5 ms\"\n\
                 [[links]]\nbetween = [\"T-0\", \"T-1\"]\nback.delay = \"7 ms\"";
    let made = topology("trees.T = { depth = 2, children = 3 }", links).unwrap();
    let config = |name: &str| &made.links[made.links_named(name).unwrap()[0] as usize].config;
    assert!(Arc::ptr_eq(config("T-0-T-2"), config("T-3-T-12")));
    assert_eq!(config("T-1-T-0").delay.as_millis(), 7);
    assert_eq!(config("T-0-T-1").delay.as_millis(), 5);
}

#[test]
fn a_dumbbell_has_two_routers() {
    let links = "[[links]]\nall-of = \"D\"\nrate = \"100 Mbit/s\"\ndelay = \"1 ms\"\n\
                 [[links]]\nname = \"bottleneck\"\nbetween = [\"D-router-0\", \"D-router-1\"]\nrate = \"3 Mbit/s\"";
    let made = topology("dumbbells.D = { left = 2, right = 1 }", links).unwrap();
    let named =
        |links: &[u32]| -> Vec<String> { links.iter().map(|link| made.link_name(*link)).collect() };
    assert_eq!(
        named(&(0..made.links.len() as u32).collect::<Vec<_>>()),
        [
            "D-router-0-D-router-1",
            "D-router-1-D-router-0",
            "D-router-0-D-left-0",
            "D-left-0-D-router-0",
            "D-router-0-D-left-1",
            "D-left-1-D-router-0",
            "D-router-1-D-right-0",
            "D-right-0-D-router-1",
        ]
    );
    let bottleneck = made.both_directions("bottleneck").unwrap();
    assert_eq!(bottleneck, [0, 1]);
    for (number, link) in made.links.iter().enumerate() {
        let rate = if number < 2 { 3_000_000 } else { 100_000_000 };
        assert_eq!(link.config.rate.unwrap().bits_per_s(), rate);
        assert_eq!(link.config.delay.as_millis(), 1);
    }
}

#[test]
fn the_sides_of_a_dumbbell_are_not_joined_past_its_routers() {
    let nodes = "dumbbells.D = { left = 2, right = 3 }";
    let between = |ends: &str| {
        let links = format!("[[links]]\nall-of = \"D\"\n[[links]]\nbetween = [{ends}]");
        topology(nodes, &links)
    };
    for ends in ["\"D-left\", \"D-right\"", "\"D-right\", \"D-left\""] {
        let error = between(ends).unwrap_err();
        assert!(error.contains("past its routers"), "{error}");
        assert!(error.contains("all-of = \"D\""), "{error}");
    }
    // A single link past the routers is what its author has written.
    let made = between("\"D-left-0\", \"D-right-2\"").unwrap();
    assert_eq!(made.links.len(), 2 * (1 + 5 + 1));
    // Groups of other nodes may have such names.
    let groups = "groups = { E-left = 2, E-right = 3 }";
    let mesh = topology(groups, "[[links]]\nbetween = [\"E-left\", \"E-right\"]").unwrap();
    assert_eq!(mesh.links.len(), 2 * 6);
}

#[test]
fn a_random_graph_is_connected_and_reproducible() {
    let make = || {
        let made = topology(
            "random.G = { nodes = 50, links = 60, seed = 3 }",
            "[[links]]\nall-of = \"G\"",
        );
        made.unwrap()
    };
    let made = make();
    let reached = Reach::new(&made).both_ways(0);
    assert!(reached.iter().all(|&reached| reached));
    let ends = |topology: &Topology| -> Vec<(u32, u32)> {
        topology
            .links
            .iter()
            .map(|link| (link.from, link.to))
            .collect()
    };
    assert_eq!(ends(&made), ends(&make()));
}

#[test]
fn paths_are_named_where_there_are_several() {
    let text = |links: &str| {
        format!(
            "title = \"t\"\nrun.duration = \"1 s\"\nnodes.names = [\"S\", \"a\", \"b\", \"R\"]\n{links}\n\
             [[sessions]]\nname = \"tcp\"\nprotocol = \"tcp\"\nsender = \"S\"\nreceivers = [\"R\", \"b\"]\n\
             [[sessions]]\nname = \"tfmcc\"\nprotocol = \"tfmcc\"\nsender = \"R\"\nreceivers = [\"S\"]\n\
             [[at]]\ntime = \"0.5 s\"\nlink = \"S-b\"\ncut = true\n"
        )
    };
    let near = "[[links]]\nchain = [\"S\", \"b\", \"R\"]\ndelay = \"1 ms\"\n";
    let far = "[[links]]\nchain = [\"S\", \"a\", \"R\"]\ndelay = \"2 ms\"\n";
    let circle = parse(&text(&format!("{far}{near}"))).unwrap();
    let (paths, others) = circle.chosen_paths(0, 2).unwrap();
    let paths = paths.iter();
    let paths: Vec<_> = paths
        .map(|path| (path.session.as_str(), path.nodes.join("-")))
        .collect();
    let expected = [("tcp", "S-b"), ("tcp", "S-b-R")];
    assert_eq!(paths, expected.map(|(name, way)| (name, way.to_owned())));
    assert_eq!(others, 1);
    let (all, none) = circle.chosen_paths(0, 9).unwrap();
    assert_eq!(
        (&all[2].nodes[..], none),
        (&["R", "b", "S"].map(str::to_owned)[..], 0)
    );
    // Without the farther way, only one path leads anywhere.
    let line = parse(&text(&near.replace("\"R\"]", "\"R\", \"a\"]"))).unwrap();
    assert_eq!(line.chosen_paths(0, 9).unwrap(), (Vec::new(), 0));
}
