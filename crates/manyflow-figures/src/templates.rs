//! Scenarios to begin with: each is complete, short, and explains its keys.

/// A scenario to copy and change.
#[derive(Copy, Clone, Debug)]
pub struct Template {
    /// The name in `manyflow sim --new NAME`.
    pub name: &'static str,
    /// The text of the file.
    pub text: &'static str,
}

/// All templates, the simplest first.
pub const TEMPLATES: &[Template] = &[
    Template {
        name: "bottleneck",
        text: include_str!("../templates/bottleneck.toml"),
    },
    Template {
        name: "receivers",
        text: include_str!("../templates/receivers.toml"),
    },
    Template {
        name: "stream",
        text: include_str!("../templates/stream.toml"),
    },
    Template {
        name: "overlay",
        text: include_str!("../templates/overlay.toml"),
    },
    Template {
        name: "service",
        text: include_str!("../templates/service.toml"),
    },
];

/// Returns the template with this name.
pub fn template(name: &str) -> Option<&'static Template> {
    TEMPLATES.iter().find(|template| template.name == name)
}
